/* One pass takes up to BATCH_REQUESTS of each input. For each request, in this order: decide (append, pass to the
 * manager, refuse), check that there is room for the response, append, set the resume point, publish, answer, release
 * the input. So nothing is stored that cannot be answered, and a restarted worker knows from the resume point which
 * requests were stored.
 *
 * Order of a connection: once one of its sends was passed to the manager, later ones follow it (diverted.h). A
 * restarted send worker does not know which sends are there. It reads nothing from codecs before TABLES_END, which the
 * manager sends when all of those are completed. */
#include "workers/send.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "workers/admission.h"
#include "base/atomic.h"
#include "store/broker_clock.h"
#include "base/clock.h"
#include "workers/diverted.h"
#include "workers/error_reply.h"
#include "wire/codes.h"
#include "store/record.h"
#include "store/recovery.h"
#include "workers/send_reply.h"
#include "workers/send_store.h"
#include "workers/send_wait.h"
#include "ipc/selectors.h"
#include "ipc/serving.h"
#include "ipc/resume.h"
#include "workers/tables.h"

enum {
    BATCH_REQUESTS = 256,
    NAP_NS = 50000000, /* at the most, while sends wait for the manager's ring: they grow old */
    RESUME_AT_LOG = UINT32_MAX,
    RESUME_AT_MANAGER = UINT32_MAX - 1
};

struct rp_send {
    rp_send_config config;
    rp_control *control;
    rp_commitlog *log;
    rp_ring_reader **inputs; /* codecs, then the manager */
    rp_ring **input_rings;
    uint32_t input_count;    /* codecs + 1 */
    rp_ring_writer *manager;
    rp_ring_writer **selectors;
    uint32_t selector_count;
    rp_map topics;
    rp_diverted diverted;
    rp_backlog results; /* of the manager's own puts */
    rp_waits waits;
    uint8_t *ids; /* scratch for message ids */
    uint32_t ids_capacity;
    uint32_t region_size;
    uint32_t current_input;
    uint32_t appended; /* in this pass */
    int is_awaited;    /* some of it by a suspended pull */
    int is_blocked;    /* an input waits for room in a ring */
    int32_t permission;
    int tables_ready;
    uint64_t random;
    rp_admission admission;
    rp_broker_clock clock;
    int64_t now_ms; /* of the broker's clock */
};

static uint64_t reached(void *context, uint32_t output) {
    const rp_send *send = context;
    if (output == RESUME_AT_LOG) return rp_load_acquire(&send->control->published_phy_offset);
    return output == RESUME_AT_MANAGER ? rp_ring_tail(send->config.to_manager) : 0;
}

rp_send *rp_send_open(const rp_send_config *config) {
    rp_send *send = calloc(1, sizeof *send);
    if (!send) return NULL;
    send->config = *config;
    if (!config->wall_ms) send->config.wall_ms = rp_wall_ms;
    if (!config->boot_ms) send->config.boot_ms = rp_boot_ms;
    send->control = rp_control_header(config->block);
    send->permission = RP_PERM_READ | RP_PERM_WRITE;
    send->random = rp_now_ns() | 1;
    rp_admission_init(&send->admission, config->worker, config->clock_ns, config->wait_time_in_queue_ms,
                      config->page_cache_busy_ms);
    rp_admission_bound_lag(&send->admission, send->control, config->dispatch_lag_max);
    send->region_size = (uint32_t)strlen(config->region);
    send->inputs = calloc(config->input_count + 1, sizeof *send->inputs);
    send->input_rings = calloc(config->input_count + 1, sizeof *send->input_rings);
    send->selectors = calloc(config->selector_count + 1, sizeof *send->selectors);
    if (!send->inputs || !send->input_rings || !send->selectors || rp_map_init(&send->topics, 256) != 0) goto fail;
    for (uint32_t i = 0; i < config->input_count + 1; i++, send->input_count++) {
        send->input_rings[i] = i < config->input_count ? config->inputs[i] : config->from_manager;
        if (!(send->inputs[i] = rp_ring_reader_open(send->input_rings[i]))) goto fail;
    }
    for (uint32_t i = 0; i < config->selector_count; i++, send->selector_count++)
        if (!(send->selectors[i] = rp_ring_writer_open(config->selectors[i]))) goto fail;
    if (!(send->manager = rp_ring_writer_open(config->to_manager)) ||
        rp_diverted_init(&send->diverted, send->manager) != 0 || rp_backlog_init(&send->results, send->manager) != 0)
        goto fail;
    if (!(send->log = rp_commitlog_open(config->commitlog_directory, send->control))) goto fail;
    if (rp_recovery_next_offsets(config->block, config->commitlog_directory) != RP_OK) goto fail;
    rp_broker_clock_open(&send->clock, send->control, send->config.wall_ms(), send->config.boot_ms());
    if (config->marks && rp_delivery_marks_open(config->marks, send->control->published_phy_offset) != RP_OK) {
        errno = EINVAL;
        goto fail;
    }
    rp_resume(send->config.worker, send->inputs, send->input_count, reached, send);
    return send;
fail:;
    int error = errno;
    rp_send_close(send);
    errno = error ? error : ENOMEM;
    return NULL;
}

void rp_send_close(rp_send *send) {
    if (!send) return;
    for (uint32_t i = 0; i < send->input_count; i++) rp_ring_reader_close(send->inputs[i]);
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_writer_close(send->selectors[i]);
    if (send->manager) rp_ring_writer_close(send->manager);
    if (send->log) rp_commitlog_close(send->log);
    rp_map_destroy(&send->topics, free);
    rp_diverted_destroy(&send->diverted);
    rp_backlog_destroy(&send->results);
    rp_waits_destroy(&send->waits);
    free(send->inputs);
    free(send->input_rings);
    free(send->selectors);
    free(send->ids);
    free(send);
}

static int is_internal(const rp_send_request *request) { return request->origin.connection >= RP_CONNECTION_INTERNAL; }

static rp_ring_writer *selector_of(const rp_send *send, uint64_t connection) {
    return rp_selector_of(send->selectors, send->selector_count, connection);
}

static void count(rp_send *send, uint32_t counter, uint64_t n) { rp_add(&send->config.worker->counters[counter], n); }

/* ------------------------------------------------------------------ answers */

static rp_status put_result(rp_send *send, const rp_wait *wait, int32_t code) {
    rp_put_result result = {.token = wait->token,
                            .phy_offset = wait->phy_offset,
                            .queue_offset = wait->queue_offset,
                            .store_timestamp_ms = wait->store_timestamp_ms,
                            .code = code,
                            .queue_id = wait->queue_id,
                            .size = wait->size};
    rp_span span = {&result, sizeof result};
    return rp_backlog_put(&send->results, RP_CONNECTION_INTERNAL, RP_MSG_PUT_RESULT, &span, 1);
}

static rp_status refuse(rp_send *send, const rp_send_request *request, int32_t code, const char *remark) {
    count(send, code == RP_RESPONSE_SYSTEM_BUSY ? RP_COUNT_BUSY : RP_COUNT_PUT_FAILED, 1);
    if (is_internal(request)) {
        rp_wait wait = {.token = request->token, .queue_id = request->queue_id};
        return put_result(send, &wait, code);
    }
    rp_ring_writer *selector = selector_of(send, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    rp_error_reply reply = {.opaque = request->opaque,
                            .code = code,
                            .version = send->config.version,
                            .serialize_type = request->flags & RP_REQUEST_ROCKETMQ ? 1 : 0,
                            .remark = remark,
                            .region = send->config.region,
                            .trace_on = (uint8_t)send->config.trace_on};
    return rp_error_reply_send(selector, request->origin.connection, &reply);
}

/* Whether there is room for the reply to `wait`; checked before anything is stored. */
static int has_room(rp_send *send, const rp_wait *wait, int must_wait) {
    if (must_wait) return rp_waits_have_room(&send->waits, wait->ids_size);
    if (wait->connection >= RP_CONNECTION_INTERNAL) return rp_backlog_has_room(&send->results, sizeof(rp_put_result));
    rp_ring_writer *selector = selector_of(send, wait->connection);
    if (!selector || wait->flags & RP_REQUEST_ONEWAY) return 1;
    return rp_ring_can_take(selector, rp_send_reply_bound(send->region_size, wait->ids_size));
}

static rp_status answer(rp_send *send, const rp_wait *wait, int32_t code) {
    if (wait->connection >= RP_CONNECTION_INTERNAL) return put_result(send, wait, code);
    rp_ring_writer *selector = selector_of(send, wait->connection);
    if (!selector || wait->flags & RP_REQUEST_ONEWAY) return RP_OK;
    rp_send_reply reply = {.serialize_type = wait->flags & RP_REQUEST_ROCKETMQ ? 1 : 0,
                           .trace_on = (uint8_t)send->config.trace_on,
                           .opaque = wait->opaque,
                           .code = code,
                           .version = send->config.version,
                           .queue_id = wait->queue_id,
                           .queue_offset = wait->queue_offset,
                           .message_ids = wait->ids,
                           .message_ids_size = wait->ids_size,
                           .region = (const uint8_t *)send->config.region,
                           .region_size = send->region_size};
    rp_status status = rp_send_reply_send(selector, wait->connection, &reply);
    if (status == RP_OK) rp_admission_count_latency(&send->admission, wait->received_ns);
    return status;
}

/* Send replies whose messages are on the disk, or which have waited too long for it. */
static uint32_t release_waits(rp_send *send) {
    uint64_t durable = rp_load_acquire(&send->control->durable_phy_offset);
    uint32_t released = 0;
    for (rp_wait *wait; (wait = rp_waits_first(&send->waits)); released++) {
        int32_t code = RP_RESPONSE_SUCCESS;
        if (wait->need_phy_offset > durable) {
            if (send->admission.now_ns < wait->deadline_ns) break;
            code = RP_RESPONSE_FLUSH_DISK_TIMEOUT;
        }
        if (!has_room(send, wait, 0) || answer(send, wait, code) != RP_OK) break;
        rp_waits_pop(&send->waits);
    }
    return released;
}

/* ------------------------------------------------------------------ sends */

/* Set before the output is published: the published output shows that the input was processed. */
static void set_resume_point(rp_send *send, uint32_t output, uint64_t position) {
    uint32_t input = send->current_input;
    if (input >= RP_RESUME_POINTS_MAX) return;
    send->config.worker->resume_points[input].output = output;
    send->config.worker->resume_points[input].output_position = position;
    rp_store_release(&send->config.worker->resume_points[input].source_head, rp_ring_head_after(send->inputs[input]));
}

static void set_resume_point_stored(void *context, const rp_put *put, const rp_stored *stored) {
    rp_send *send = context;
    set_resume_point(send, RESUME_AT_LOG, stored->end_phy_offset);
    if (put->is_delivery && send->config.marks)
        rp_delivery_marks_mark(send->config.marks, &put->delivery, stored->end_phy_offset);
}

static void set_resume_point_left(void *send, uint64_t position) {
    set_resume_point(send, RESUME_AT_MANAGER, position);
}

static rp_status refuse_overload(rp_send *send, const rp_send_request *request) {
    return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while");
}

/* No other request waits behind it, even if the manager's ring is full (diverted.h). */
static rp_status divert(rp_send *send, const uint8_t *data, uint32_t size) {
    if (rp_diverted_leave(&send->diverted, data, size, set_resume_point_left, send) != RP_OK)
        return refuse_overload(send, (const rp_send_request *)data);
    count(send, RP_COUNT_SLOW, 1);
    return RP_OK;
}

/* Refuse sends that have waited for room too long; `all`: every one, because the manager has stopped. */
static void refuse_waiting(rp_send *send, int all) {
    for (const rp_send_request *first; (first = rp_diverted_first(&send->diverted));
         rp_diverted_drop_first(&send->diverted)) {
        if (!all && !rp_admission_is_too_old(&send->admission, first->origin.received_ns)) return;
        if (refuse_overload(send, first) != RP_OK) return;
    }
}

/* A restarted manager continues to read at `from`: sends that the previous one had read before will not be completed.
 * */
static void end_tables(rp_send *send, const rp_msg_tables_end *end) {
    rp_diverted_forget(&send->diverted, end->sends_from);
    if (send->tables_ready || end->epoch != send->config.worker->epoch) return; /* it was for the previous worker */
    send->tables_ready = 1;
    rp_admission_serve(&send->admission);
}

static int is_for_manager(const rp_send *send, const rp_send_request *request, const rp_topic *topic) {
    if (request->flags & RP_REQUEST_RESOLVED) return 0;
    return !topic || request->flags & RP_REQUEST_SPECIAL || topic->flags & (RP_TOPIC_NO_SEND | RP_TOPIC_SLOW) ||
           request->body_size > send->config.max_message_size ||
           (topic->flags & RP_TOPIC_ORDER && !(send->permission & RP_PERM_WRITE)) ||
           rp_diverted_has(&send->diverted, request->origin.connection);
}

/* maxMessageSize bounds what clients send. An internal put (delayed, retried) was within the limit when its client sent
 * it: only the record format and the size of a CommitLog file bound it. */
static int is_too_long(const rp_send *send, const rp_send_request *request) {
    return !is_internal(request) && request->body_size > send->config.max_message_size;
}

static rp_status append(rp_send *send, const rp_put *put) {
    const rp_send_request *request = put->request;
    uint64_t total;
    uint32_t messages = rp_put_measure(put, &total);
    if (!messages || is_too_long(send, request))
        return refuse(send, request, RP_RESPONSE_MESSAGE_ILLEGAL,
                      "the message is illegal: malformed batch, body too long, topic or properties beyond the limits, "
                      "or a zero byte "
                      "in the properties");
    if (messages > send->ids_capacity / RP_MESSAGE_ID_MAX) {
        uint8_t *ids = realloc(send->ids, (uint64_t)messages * RP_MESSAGE_ID_MAX);
        if (!ids) return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR, "no memory for the message ids of this batch");
        send->ids = ids;
        send->ids_capacity = messages * RP_MESSAGE_ID_MAX;
    }
    int must_wait = send->config.sync_flush && !(request->flags & RP_REQUEST_NO_WAIT);
    rp_wait wait = {.deadline_ns = send->admission.now_ns + (uint64_t)send->config.sync_flush_timeout_ms * 1000000u,
                    .received_ns = request->origin.received_ns,
                    .connection = request->origin.connection,
                    .token = request->token,
                    .opaque = request->opaque,
                    .queue_id = put->queue_id,
                    .flags = request->flags,
                    .store_timestamp_ms = put->store_timestamp_ms,
                    .ids = send->ids,
                    .ids_size = messages * RP_MESSAGE_ID_MAX};
    if (!has_room(send, &wait, must_wait)) return RP_FULL;

    rp_stored stored;
    rp_status status = rp_put_append(send->log, put, total, messages, set_resume_point_stored, send, &stored);
    if (status == RP_TOO_LARGE)
        return refuse(send, request, RP_RESPONSE_MESSAGE_ILLEGAL,
                      "the message is illegal: larger than a CommitLog file");
    if (status == RP_NO_SPACE)
        return refuse(send, request, RP_RESPONSE_SERVICE_NOT_AVAILABLE,
                      "service not available now: no space on the disk for the next CommitLog file");
    if (status != RP_OK)
        return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR, "create mapped file failed: see the log of the broker");
    send->appended++;
    send->is_awaited |= __atomic_load_n(&put->queue->watched, __ATOMIC_RELAXED) != 0;
    count(send, RP_COUNT_MESSAGES_PUT, messages);
    count(send, RP_COUNT_BYTES_PUT, total);
    wait.need_phy_offset = stored.end_phy_offset;
    wait.phy_offset = stored.phy_offset;
    wait.queue_offset = stored.queue_offset;
    wait.size = stored.size;
    if (request->flags & RP_REQUEST_ONEWAY && !is_internal(request)) return RP_OK;
    wait.ids_size = rp_put_message_ids(put, &stored, send->ids);
    /* The message is stored: if there is no memory for the reply, the client repeats the request, but we must not store
     * it again. */
    if ((must_wait ? rp_waits_push(&send->waits, &wait) : answer(send, &wait, RP_RESPONSE_SUCCESS)) != RP_OK)
        count(send, RP_COUNT_STALLS, 1);
    return RP_OK;
}

/* Estimated number of requests of `size` bytes that wait in the same ring, for the remark. */
static uint64_t waiting(const rp_send *send, uint32_t size) {
    return rp_ring_depth(send->input_rings[send->current_input]) / size;
}

/* Serve one SEND message. RP_FULL: no room, it stays in the ring. */
static rp_status take_send(rp_send *send, const uint8_t *data, uint32_t size) {
    const rp_send_request *request = (const rp_send_request *)data;
    rp_put put;
    if (!rp_put_open(data, size, &put)) return RP_OK;
    if (put.is_delivery && send->config.marks && rp_delivery_marks_has(send->config.marks, &put.delivery)) {
        rp_wait wait = {.token = request->token, .queue_id = request->queue_id};
        return put_result(send, &wait, RP_RESPONSE_SUCCESS);
    }
    rp_topic *topic = rp_map_get(&send->topics, put.topic, request->topic_size);
    if (!(request->flags & RP_REQUEST_RESOLVED)) {
        uint64_t received_ns = request->origin.received_ns, others = waiting(send, size);
        const char *busy = rp_admission_lag_refusal(&send->admission, received_ns, others);
        if (!busy && send->config.fast_failure) busy = rp_admission_refusal(&send->admission, received_ns, others);
        if (busy) return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, busy);
    }
    if (is_for_manager(send, request, topic)) return divert(send, data, size);
    if (topic) put.queue = rp_topic_choose(topic, request->queue_id, &send->random, &put.queue_id);
    if (!put.queue && request->flags & RP_REQUEST_RESOLVED && request->queue_id >= 0) {
        /* Passed back to a restarted worker whose tables are still behind it in the ring. */
        put.queue_id = request->queue_id;
        put.queue = rp_control_find(send->config.block, put.topic, request->topic_size, (uint32_t)put.queue_id);
        if (put.queue && put.queue->state != RP_QUEUE_LIVE) put.queue = NULL;
    }
    if (!put.queue) {
        if (!(request->flags & RP_REQUEST_RESOLVED)) return divert(send, data, size);
        return refuse(send, request, is_internal(request) ? RP_RESPONSE_TOPIC_NOT_EXIST : RP_RESPONSE_SYSTEM_ERROR,
                      "the topic or queue of this message is gone");
    }
    const char *fault = rp_store_fault(rp_load_acquire32(&send->control->running_flags));
    if (fault) return refuse(send, request, RP_RESPONSE_SERVICE_NOT_AVAILABLE, fault);
    put.cluster_property = request->flags & RP_REQUEST_ADD_CLUSTER ? send->config.cluster_property : NULL;
    put.extra_sys_flag = topic && topic->flags & RP_TOPIC_MULTI_TAG ? RP_SYS_FLAG_MULTI_TAGS : 0;
    put.store_host = send->config.store_host;
    put.store_timestamp_ms = send->now_ms;
    return append(send, &put);
}

/* ------------------------------------------------------------------ the loop */

static void set_broker(rp_send *send, const rp_msg_broker *broker) {
    send->permission = broker->permission;
    if (broker->max_message_size) send->config.max_message_size = broker->max_message_size;
}

/* Table entries sent before are valid from the position that this message names. */
static rp_status tell_position(rp_send *send, uint64_t token) {
    return put_result(send, &(rp_wait){.token = token, .phy_offset = send->control->published_phy_offset},
                      RP_RESPONSE_SUCCESS);
}

static rp_status take(rp_send *send, const uint8_t *data, uint32_t size, uint16_t type) {
    switch (type) {
        case RP_MSG_POSITION:
            return size >= sizeof(rp_position) ? tell_position(send, ((const rp_position *)data)->token) : RP_OK;
        case RP_MSG_SEND: return take_send(send, data, size);
        case RP_MSG_TOPIC: return rp_topics_apply(&send->topics, send->config.block, data, size);
        case RP_MSG_COMPLETED:
            if (size >= sizeof(rp_completed)) rp_diverted_complete(&send->diverted, (const rp_completed *)data);
            return RP_OK;
        case RP_MSG_BROKER:
            if (size >= sizeof(rp_msg_broker)) set_broker(send, (const rp_msg_broker *)data);
            return RP_OK;
        case RP_MSG_TABLES_END:
            if (size >= sizeof(rp_msg_tables_end)) end_tables(send, (const rp_msg_tables_end *)data);
            return RP_OK;
        default: return RP_OK;
    }
}

static void look_at_clock(rp_send *send) {
    send->now_ms = rp_broker_clock_tick(&send->clock, send->config.wall_ms(), send->config.boot_ms());
}

static uint32_t drain(rp_send *send, uint32_t input) {
    rp_ring_reader *reader = send->inputs[input];
    const uint8_t *data;
    uint32_t size, taken = 0;
    uint16_t type;
    send->current_input = input;
    while (taken < BATCH_REQUESTS && rp_ring_read(reader, &data, &size, &type) == RP_OK) {
        if (rp_admission_look(&send->admission)) look_at_clock(send);
        rp_serving_record(send->config.worker, data, type == RP_MSG_SEND ? size : 0);
        rp_status status = take(send, data, size, type);
        if (status == RP_FULL || status == RP_NO_MEMORY) {
            count(send, RP_COUNT_STALLS, 1);
            send->is_blocked = 1;
            break;
        }
        rp_ring_release(reader);
        taken++;
    }
    rp_serving(send->config.worker, 0);
    return taken;
}

static void flush_to_manager(rp_send *send) {
    rp_ring_pump(send->manager);
    rp_backlog_flush(&send->results);
    rp_diverted_flush(&send->diverted);
    refuse_waiting(send, 0);
}

static uint32_t pass(rp_send *send) {
    rp_admission_begin(&send->admission);
    look_at_clock(send);
    send->appended = 0;
    send->is_awaited = send->is_blocked = 0;
    /* Before the inputs, so that an input that waits for a large record to be written is served in this pass. */
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_pump(send->selectors[i]);
    flush_to_manager(send);
    uint32_t manager = send->input_count - 1;
    uint32_t taken = drain(send, manager);
    for (uint32_t i = 0; i < manager && send->tables_ready; i++) taken += drain(send, i);
    rp_admission_end(&send->admission, taken);
    taken += release_waits(send);
    for (uint32_t i = 0; i < send->selector_count; i++) rp_ring_wake(send->selectors[i]);
    flush_to_manager(send);
    rp_ring_wake(send->manager);
    if (rp_diverted_first(&send->diverted)) send->is_blocked = 1;
    if (send->appended) {
        rp_full_fence(); /* what was published is out before we look whether the store worker sleeps */
        rp_worker_wake(send->config.store, send->is_awaited);
    }
    return taken;
}

rp_status rp_send_run(rp_send *send, int64_t timeout_ns) {
    rp_worker *worker = send->config.worker;
    uint64_t end = send->admission.clock_ns() + (uint64_t)timeout_ns;
    for (;;) {
        uint32_t taken = pass(send);
        worker->heartbeat_ns = send->admission.now_ns;
        count(send, RP_COUNT_LOOPS, 1);
        if (!taken) {
            if (rp_load_acquire32(&worker->stop)) {
                refuse_waiting(send, 1);
                if (!rp_waits_first(&send->waits) && !rp_diverted_first(&send->diverted)) return RP_STOPPED;
            }
            rp_worker_prepare_sleep(worker);
            if (!pass(send) && send->admission.now_ns < end) {
                count(send, RP_COUNT_SLEEPS, 1);
                send->admission.presence.has_slept = !send->is_blocked;
                uint64_t nap_ns = end - send->admission.now_ns;
                rp_worker_sleep(worker,
                                rp_diverted_first(&send->diverted) && nap_ns > NAP_NS ? NAP_NS : (int64_t)nap_ns);
            } else {
                rp_worker_end_sleep(worker);
            }
        }
        if (send->admission.now_ns >= end) return RP_OK;
    }
}
