/* Each input frame yields exactly one output message (or a refusal), and the input is released only after the output
 * is published. A resume point in the worker block connects the two, so that a codec that dies in between neither loses
 * the request nor passes it on twice: the restarted codec skips the input that the resume point shows as processed. */
#include "workers/codec/codec.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "wire/codes.h"
#include "wire/header.h"
#include "ipc/backlog.h"
#include "ipc/resume.h"
#include "ipc/serving.h"
#include "workers/codec/codec_request.h"
#include "workers/shared/admission.h"
#include "workers/shared/replies.h"

static const int64_t LOOK_INTERVAL_NS = 1000000;
enum {
    BATCH_FRAMES = 256,
    CODES = 512,
    SMALL_PULL = 2048, /* bytes of a pull that is built on the stack */
    PULLS_WAITING_MAX = 512 * 1024 /* bytes of pulls that wait for the ring: each may take long to serve */
};
enum output { OUT_SEND, OUT_MANAGER, OUT_PULLS }; /* then the query workers */
static const char OVERLOAD[] = "[OVERLOAD]system busy, start flow control for a while";

struct rp_codec {
    rp_codec_config config;
    uint32_t input_count;
    uint32_t selector_count;
    uint32_t output_count; /* send, manager, pull workers, query workers */
    uint32_t query_turn; /* the query worker whose turn it is */
    uint64_t opened_ns; /* ages of requests count from here: before, the last codec was being replaced */
    uint64_t send_stall_ns;
    uint64_t looked_ns; /* when busy_since_ns of the send worker was last read; seldom, since each read slows its next
                           write */
    int is_send_stalled;
    uint8_t destinations[CODES]; /* RP_TO_*, by request code; others go to the manager */
    rp_ring_reader **inputs;
    rp_ring_writer **outputs;   /* by enum output */
    rp_backlog *backlogs;       /* likewise; all but that of sends are used */
    rp_ring_writer **selectors;
    rp_ring **output_rings;
    uint32_t current_input; /* whose frame is being taken; input_count when inline */
    /* For the frames of one rp_codec_frames: */
    rp_header headers[RP_HMAC_JOBS];
    rp_signer signers[RP_HMAC_JOBS];
    rp_status parsed[RP_HMAC_JOBS];
};

static uint64_t reached(void *context, uint32_t output) {
    const rp_codec *codec = context;
    return output < codec->output_count ? rp_ring_tail(codec->output_rings[output]) : 0;
}

static rp_ring *ring_of(const rp_codec_config *config, uint32_t output) {
    if (output == OUT_SEND) return config->send;
    if (output == OUT_MANAGER) return config->manager;
    output -= OUT_PULLS;
    return output < config->pull_count ? config->pulls[output] : config->queries[output - config->pull_count];
}

rp_codec *rp_codec_open(const rp_codec_config *config) {
    rp_codec *codec = calloc(1, sizeof *codec);
    if (!codec) return NULL;
    codec->config = *config;
    if (!config->clock_ns) codec->config.clock_ns = rp_now_ns;
    codec->opened_ns = codec->config.clock_ns();
    codec->send_stall_ns = config->send_stall_ms > 0 ? (uint64_t)config->send_stall_ms * 1000000u : 0;
    codec->inputs = calloc(config->input_count + 1, sizeof *codec->inputs);
    uint32_t outputs = OUT_PULLS + config->pull_count + config->query_count;
    codec->outputs = calloc(outputs, sizeof *codec->outputs);
    codec->output_rings = calloc(outputs, sizeof *codec->output_rings);
    codec->backlogs = calloc(outputs, sizeof *codec->backlogs);
    codec->selectors = calloc(config->selector_count + 1, sizeof *codec->selectors);
    if (!codec->inputs || !codec->outputs || !codec->backlogs || !codec->output_rings || !codec->selectors) goto fail;
    memset(codec->destinations, RP_TO_MANAGER, sizeof codec->destinations);
    for (uint32_t i = 0; i < config->route_count; i++)
        if (config->routes[i].code >= 0 && config->routes[i].code < CODES &&
            config->routes[i].destination <= RP_TO_QUERY)
            codec->destinations[config->routes[i].code] = (uint8_t)config->routes[i].destination;
    for (uint32_t i = 0; i < outputs; i++, codec->output_count++) {
        codec->output_rings[i] = ring_of(config, i);
        if (!(codec->outputs[i] = rp_ring_writer_open(codec->output_rings[i])) ||
            rp_backlog_init(&codec->backlogs[i], codec->outputs[i]) != 0)
            goto fail;
        if (i >= OUT_PULLS && i < OUT_PULLS + config->pull_count) codec->backlogs[i].bytes_max = PULLS_WAITING_MAX;
    }
    for (uint32_t i = 0; i < config->selector_count; i++, codec->selector_count++)
        if (!(codec->selectors[i] = rp_ring_writer_open(config->selectors[i]))) goto fail;
    for (uint32_t i = 0; i < config->input_count; i++, codec->input_count++)
        if (!(codec->inputs[i] = rp_ring_reader_open(config->inputs[i]))) goto fail;
    rp_resume(codec->config.worker, codec->inputs, codec->input_count, reached, codec);
    return codec;
fail:
    rp_codec_close(codec);
    return NULL;
}

void rp_codec_close(rp_codec *codec) {
    if (!codec) return;
    for (uint32_t i = 0; i < codec->input_count; i++) rp_ring_reader_close(codec->inputs[i]);
    for (uint32_t i = 0; i < codec->output_count; i++) {
        rp_backlog_destroy(&codec->backlogs[i]);
        rp_ring_writer_close(codec->outputs[i]);
    }
    for (uint32_t i = 0; i < codec->selector_count; i++) rp_ring_writer_close(codec->selectors[i]);
    free(codec->inputs);
    free(codec->outputs);
    free(codec->backlogs);
    free(codec->output_rings);
    free(codec->selectors);
    free(codec);
}

static rp_ring_writer *selector_of(const rp_codec *codec, uint64_t connection) {
    return rp_selector_of(codec->selectors, codec->selector_count, connection);
}

/* Answer SYSTEM_BUSY, and keep the fast path moving. */
static rp_status refuse(rp_codec *codec, const rp_origin *origin, const rp_header *header, uint8_t serialize_type,
                        const char *remark) {
    rp_ring_writer *selector = selector_of(codec, origin->connection);
    rp_add(&codec->config.worker->counters[RP_COUNT_BUSY], 1);
    if (!selector || !header || header->flag & (RP_FLAG_ONEWAY | RP_FLAG_RESPONSE)) return RP_OK;
    rp_error_reply reply = {.opaque = header->opaque,
                            .code = RP_RESPONSE_SYSTEM_BUSY,
                            .version = codec->config.version,
                            .serialize_type = serialize_type,
                            .remark = remark};
    return rp_error_reply_send(selector, origin->connection, &reply);
}

/* Before the output is published: it proves the current input done. */
static void set_resume_point(rp_codec *codec, uint32_t output, uint64_t tail_after) {
    if (codec->current_input < codec->input_count)
        rp_resume_set(codec->config.worker, codec->inputs, codec->current_input, output, tail_after);
}

/* Pass a message on, behind those that wait already. RP_FULL: no room for it. */
static rp_status pass_on(rp_codec *codec, uint32_t out, uint16_t type, uint64_t connection, const rp_span *spans,
                         uint32_t span_count) {
    uint32_t size = spans[0].size + (span_count > 1 ? spans[1].size : 0);
    uint8_t *room = rp_backlog_is_empty(&codec->backlogs[out]) ? rp_ring_reserve(codec->outputs[out], size) : NULL;
    if (!room) /* full, or large: no resume point */
        return rp_backlog_put(&codec->backlogs[out], connection, type, spans, span_count);
    memcpy(room, spans[0].data, spans[0].size);
    if (span_count > 1) memcpy(room + spans[0].size, spans[1].data, spans[1].size);
    set_resume_point(codec, out, rp_ring_tail_after(codec->outputs[out], size));
    rp_ring_commit(codec->outputs[out], size, type);
    return RP_OK;
}

/* Pass a command to the manager or a query worker. No other request waits behind it: if the ring is full, it goes to a
 * backlog, or is refused, as in the reference when a pool's queue is full. If there is no room for the refusal, its
 * connection is closed (RP_INVALID). */
static rp_status command(rp_codec *codec, uint32_t out, const rp_origin *origin, const uint8_t *frame, uint32_t size,
                         const rp_header *header) {
    rp_span spans[2] = {{origin, sizeof *origin}, {frame, size}};
    int is_heartbeat = header && header->code == RP_CODE_HEART_BEAT && !(header->flag & RP_FLAG_RESPONSE);
    uint16_t type = is_heartbeat ? RP_MSG_HEARTBEAT : RP_MSG_COMMAND;
    rp_status status = pass_on(codec, out, type, origin->connection, spans, 2);
    if (status != RP_FULL) return status;
    return header ? refuse(codec, origin, header, frame[0], OVERLOAD) : RP_INVALID;
}

typedef uint32_t (*fill_function)(const rp_header *, const rp_frame *, const rp_origin *, const rp_signer *, uint8_t *);

/* Build the message in the ring. RP_UNSUPPORTED: it takes the slow path; RP_FULL: no room, or it is too large. */
static rp_status fill_ring(rp_codec *codec, uint32_t out, fill_function fill, uint32_t bound, uint16_t type,
                           const rp_origin *origin, const rp_frame *frame, const rp_header *header,
                           const rp_signer *signer) {
    rp_ring_writer *output = codec->outputs[out];
    uint8_t *room = rp_ring_reserve(output, bound);
    if (!room) return RP_FULL;
    uint32_t size = fill(header, frame, origin, signer, room);
    if (!size) return RP_UNSUPPORTED;
    set_resume_point(codec, out, rp_ring_tail_after(output, size));
    rp_ring_commit(output, size, type);
    return RP_OK;
}

static rp_status send_to_ring(rp_codec *codec, const rp_origin *origin, const rp_frame *frame, const rp_header *header,
                              const rp_signer *signer) {
    int is_end = header->code == RP_CODE_END_TRANSACTION;
    uint16_t type = is_end ? RP_MSG_END_TRANSACTION : RP_MSG_SEND;
    fill_function fill = is_end ? rp_end_request_fill : rp_send_request_fill;
    uint32_t bound = rp_request_bound(header, frame, signer, sizeof(rp_msg_send)); /* the larger of both */
    rp_status status = fill_ring(codec, OUT_SEND, fill, bound, type, origin, frame, header, signer);
    if (status != RP_FULL || bound <= rp_ring_capacity(codec->output_rings[OUT_SEND]) / 4) return status;
    if (rp_ring_pump(codec->outputs[OUT_SEND]) != RP_OK) return RP_FULL;
    uint8_t *copy = malloc(bound);
    if (!copy) return RP_NO_MEMORY;
    rp_span span = {copy, fill(header, frame, origin, signer, copy)};
    status = span.size ? rp_ring_write(codec->outputs[OUT_SEND], type, &span, 1) : RP_UNSUPPORTED;
    free(copy);
    return status;
}

/* Pass a pull to the worker that owns its queue. RP_FULL: the ring has no room. */
static rp_status pass_pull(rp_codec *codec, const uint8_t *pull, uint32_t size) {
    const rp_msg_pull *request = (const rp_msg_pull *)pull;
    const uint8_t *topic = pull + sizeof *request + request->group_size;
    uint32_t out = OUT_PULLS + rp_queue_owner(topic, request->topic_size, request->queue_id, codec->config.pull_count);
    rp_span span = {pull, size};
    return pass_on(codec, out, RP_MSG_PULL, request->origin.connection, &span, 1);
}

/* A pull. Pulls may take long, and sends of other connections must not wait behind them: if the ring is full, a pull
 * goes to a backlog, or is refused. With one pull worker it is built in the ring. */
static rp_status to_pull(rp_codec *codec, const rp_origin *origin, const rp_frame *frame, const rp_header *header,
                         const rp_signer *signer) {
    uint32_t bound = rp_request_bound(header, frame, signer, sizeof(rp_msg_pull));
    _Alignas(8) uint8_t small[SMALL_PULL];
    rp_status status = RP_FULL;
    if (codec->config.pull_count == 1 && rp_backlog_is_empty(&codec->backlogs[OUT_PULLS]))
        status = fill_ring(codec, OUT_PULLS, rp_pull_request_fill, bound, RP_MSG_PULL, origin, frame, header, signer);
    if (status != RP_FULL) return status;
    uint8_t *pull = bound <= sizeof small ? small : malloc(bound);
    if (!pull) return RP_NO_MEMORY;
    uint32_t size = rp_pull_request_fill(header, frame, origin, signer, pull);
    status = size ? pass_pull(codec, pull, size) : RP_UNSUPPORTED;
    if (pull != small) free(pull);
    return status == RP_FULL ? refuse(codec, origin, header, frame->serialize_type, OVERLOAD) : status;
}

static int is_send_stalled(rp_codec *codec, uint64_t now_ns) {
    codec->looked_ns = now_ns;
    codec->is_send_stalled =
        rp_worker_is_stalled(rp_ring_consumer(codec->output_rings[OUT_SEND]), codec->send_stall_ns, now_ns);
    return codec->is_send_stalled;
}

/* A send. While the send worker is stalled (its disk is busy), sends are refused as in the reference, so that those
 * that wait for room in its ring do not block other requests. Oneway sends are refused when there is no room. */
static rp_status to_send(rp_codec *codec, const rp_origin *origin, const rp_frame *frame, const rp_header *header,
                         const rp_signer *signer) {
    int is_time = (int64_t)(origin->received_ns - codec->looked_ns) > LOOK_INTERVAL_NS;
    int stalled = is_time ? is_send_stalled(codec, origin->received_ns) : codec->is_send_stalled;
    if (header->flag & RP_FLAG_ONEWAY || !stalled || !is_send_stalled(codec, codec->config.clock_ns())) {
        rp_status status = send_to_ring(codec, origin, frame, header, signer);
        if (status != RP_FULL || !is_send_stalled(codec, codec->config.clock_ns())) return status;
    }
    return refuse(codec, origin, header, frame->serialize_type,
                  "[REJECTREQUEST]system busy, start flow control for a while");
}

static int has_waiting(const rp_ring *ring) {
    return rp_ring_depth(ring) || rp_load_acquire(&rp_ring_consumer(ring)->counters[RP_COUNT_WAITING]);
}

/* The query worker for the next query. Queries belong to nobody: the first worker, counted from `turn` on, that has
 * none waiting in its ring of `rings` or for its tasks; if all have, that of `turn`. So a worker that stands still
 * delays few queries while another is free. 0 < count. */
static uint32_t next_query_worker(rp_ring *const *rings, uint32_t count, uint32_t turn) {
    for (uint32_t i = 0; i < count; i++)
        if (!has_waiting(rings[(turn + i) % count])) return (turn + i) % count;
    return turn % count;
}

/* RP_TO_*, for a request that came to `listener`. */
static uint32_t destination_of(const rp_codec *codec, const rp_header *header, uint32_t listener) {
    if (header->flag & RP_FLAG_RESPONSE || header->code < 0 || header->code >= CODES) return RP_TO_MANAGER;
    uint32_t destination = codec->destinations[header->code];
    return destination == RP_TO_PULL && listener != 0 ? (uint32_t)RP_TO_MANAGER : destination;
}

/* Read the headers of `count` frames, RP_HMAC_JOBS at most, and find who has signed the sends and pulls among them. */
static void read_requests(rp_codec *codec, const rp_origin *origin, const rp_frame *frames, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        rp_header *header = &codec->headers[i];
        codec->parsed[i] = rp_header_parse(frames[i].serialize_type, frames[i].header, frames[i].header_size, header);
        int is_checked = codec->parsed[i] == RP_OK && destination_of(codec, header, origin->listener) <= RP_TO_PULL;
        codec->signers[i].access = is_checked ? codec->config.access : NULL;
    }
    if (codec->config.access) rp_access_identify(codec->config.access, codec->headers, frames, codec->signers, count);
}

/* Pass on request `at` of those that were read. */
static rp_status take(rp_codec *codec, const rp_origin *origin, const rp_frame *frame, uint32_t at) {
    const uint8_t *data = frame->header - RP_DESCRIPTOR_SIZE;
    const rp_header *header = &codec->headers[at];
    const rp_signer *signer = codec->signers[at].access ? &codec->signers[at] : NULL;
    uint32_t size = frame->size - RP_LENGTH_SIZE;
    /* The header cannot be read, so it may be any request. The manager serves it in order if it is a command, and
     * refuses a send or pull with the reason. So no send is stored after a later one of its connection. */
    if (codec->parsed[at] == RP_UNSUPPORTED) return command(codec, OUT_MANAGER, origin, data, size, NULL);
    if (codec->parsed[at] != RP_OK) return RP_INVALID;
    uint32_t destination = destination_of(codec, header, origin->listener);
    if (destination <= RP_TO_PULL) {
        uint64_t now_ns =
            codec->config.limits && signer && signer->version && !signer->is_broker ? codec->config.clock_ns() : 0;
        uint32_t row = 0;
        const char *limit =
            now_ns ? rp_limits_busy(codec->config.limits, signer->key, signer->key_size, now_ns, &row) : NULL;
        if (limit) return refuse(codec, origin, header, frame->serialize_type, limit);
        rp_status status = destination == RP_TO_SEND ? to_send(codec, origin, frame, header, signer)
                                                     : to_pull(codec, origin, frame, header, signer);
        if (status == RP_OK && row) rp_limits_take(codec->config.limits, row, size, now_ns); /* else it comes again */
        if (status != RP_UNSUPPORTED) return status;
    }
    uint32_t out = OUT_MANAGER, first_query = OUT_PULLS + codec->config.pull_count;
    if (destination == RP_TO_QUERY && codec->config.query_count)
        out = first_query +
              next_query_worker(&codec->output_rings[first_query], codec->config.query_count, codec->query_turn++);
    return command(codec, out, origin, data, size, header);
}

rp_status rp_codec_frames(rp_codec *codec, const rp_origin *origin, const rp_frame *frames, uint32_t count,
                          uint32_t *taken) {
    uint32_t together = codec->config.access ? RP_HMAC_JOBS : 1;
    for (*taken = 0; *taken < count; ++*taken) {
        uint32_t at = *taken % together, left = count - *taken;
        if (at == 0) read_requests(codec, origin, frames + *taken, left < together ? left : together);
        rp_status status = take(codec, origin, &frames[*taken], at);
        if (status != RP_OK) return status;
    }
    return RP_OK;
}

rp_status rp_codec_frame(rp_codec *codec, const rp_origin *origin, const uint8_t *frame, uint32_t size) {
    rp_origin from = *origin;
    rp_frame cut;
    uint32_t taken;
    if (from.received_ns < codec->opened_ns && codec->input_count) from.received_ns = codec->opened_ns;
    rp_add(&codec->config.worker->counters[RP_COUNT_FRAMES_IN], codec->input_count ? 1 : 0);
    rp_status status = rp_frame_read(frame, size, &cut);
    return status == RP_OK ? rp_codec_frames(codec, &from, &cut, 1, &taken) : status;
}

/* All workers but the send worker must receive it; receiving it twice does no harm. */
rp_status rp_codec_closed(rp_codec *codec, const rp_origin *origin) {
    rp_span span = {origin, sizeof *origin};
    for (uint32_t i = OUT_MANAGER; i < codec->output_count; i++)
        if (rp_backlog_put(&codec->backlogs[i], RP_CONNECTION_INTERNAL, RP_MSG_CLOSED, &span, 1) == RP_FULL)
            return RP_FULL;
    return RP_OK;
}

static void flush_outputs(rp_codec *codec) {
    for (uint32_t i = 0; i < codec->output_count; i++) {
        rp_ring_pump(codec->outputs[i]);
        rp_backlog_flush(&codec->backlogs[i]);
    }
}

static int has_backlog(const rp_codec *codec) {
    for (uint32_t i = 0; i < codec->output_count; i++)
        if (!rp_backlog_is_empty(&codec->backlogs[i])) return 1;
    return 0;
}

void rp_codec_wake(rp_codec *codec) {
    flush_outputs(codec);
    for (uint32_t i = 0; i < codec->output_count; i++) rp_ring_wake(codec->outputs[i]);
    for (uint32_t i = 0; i < codec->selector_count; i++) rp_ring_wake(codec->selectors[i]);
}

/* The connection broke the protocol: ask its selector to close it. */
static rp_status close_bad(rp_codec *codec, const rp_origin *origin) {
    rp_ring_writer *selector = selector_of(codec, origin->connection);
    rp_add(&codec->config.worker->counters[RP_COUNT_FRAMES_BAD], 1);
    return selector ? rp_flags_send(selector, origin->connection, RP_REPLY_CLOSE_AFTER) : RP_OK;
}

/* Process up to BATCH_FRAMES frames of one selector; returns their number. */
static uint32_t drain(rp_codec *codec, uint32_t input) {
    rp_ring_reader *reader = codec->inputs[input];
    const uint8_t *data;
    uint32_t size, taken = 0;
    uint16_t type;
    codec->current_input = input;
    while (taken < BATCH_FRAMES && rp_ring_read(reader, &data, &size, &type) == RP_OK) {
        const rp_origin *origin = (const rp_origin *)data;
        rp_status status = RP_OK;
        rp_serving_message(codec->config.worker, data, size);
        if (size >= sizeof *origin && type == RP_MSG_FRAME)
            status = rp_codec_frame(codec, origin, data + sizeof *origin, size - (uint32_t)sizeof *origin);
        else if (size >= sizeof *origin && type == RP_MSG_CLOSED)
            status = rp_codec_closed(codec, origin);
        if (status == RP_INVALID) status = close_bad(codec, origin);
        if (status == RP_FULL || status == RP_NO_MEMORY) {
            rp_add(&codec->config.worker->counters[RP_COUNT_STALLS], 1);
            break;
        }
        rp_ring_release(reader);
        taken++;
    }
    rp_serving(codec->config.worker, 0);
    return taken;
}

static uint32_t pass(rp_codec *codec) {
    uint32_t taken = 0;
    /* Before the inputs, so that an input that waits for a large message to be written is served in this pass. */
    flush_outputs(codec);
    for (uint32_t i = 0; i < codec->input_count; i++) taken += drain(codec, i);
    rp_codec_wake(codec);
    return taken;
}

rp_status rp_codec_run(rp_codec *codec, int64_t timeout_ns) {
    rp_worker *worker = codec->config.worker;
    uint64_t end = rp_now_ns() + (uint64_t)timeout_ns;
    for (;;) {
        uint64_t now = rp_now_ns();
        worker->heartbeat_ns = now;
        rp_add(&worker->counters[RP_COUNT_LOOPS], 1);
        uint32_t taken = pass(codec);
        if (!taken && rp_load_acquire32(&worker->stop) && !has_backlog(codec)) return RP_STOPPED;
        if (now >= end) return RP_OK;
        if (taken) continue;
        rp_worker_prepare_sleep(worker);
        if (pass(codec)) {
            rp_worker_end_sleep(worker);
            continue;
        }
        rp_add(&worker->counters[RP_COUNT_SLEEPS], 1);
        rp_worker_sleep(worker, (int64_t)(end - now));
    }
}
