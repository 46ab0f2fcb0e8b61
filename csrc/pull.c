/* A pull is judged (tables), fetched (consume queue units), and answered or held. Nothing of a message is touched:
 * the answer names slices of the log, which the selector writes from its mapping.
 *
 * Holding is race-free against dispatch: mark the queue watched, full fence, look at its max offset once more;
 * dispatch publishes the max offset, full fence, swaps watched. One of the two sees the other. */
#include "pull.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "atomic.h"
#include "clock.h"
#include "commits.h"
#include "error_reply.h"
#include "fetch.h"
#include "header.h"
#include "held.h"
#include "subscription.h"
#include "tables.h"

enum {
    BATCH_REQUESTS = 128,
    HEAD_MAX = 512, /* the head of a pull reply */
    LOOKS_MAX = 8,  /* of a held pull at one time, some 800 messages each */
    FLAG_COMMIT_OFFSET = 1, FLAG_SUSPEND = 2, FLAG_SUBSCRIPTION = 4,
    CODE_SUCCESS = 0, CODE_SYSTEM_ERROR = 1, CODE_SYSTEM_BUSY = 2, CODE_PULL_NOT_FOUND = 19,
    CODE_PULL_RETRY_IMMEDIATELY = 20, CODE_PULL_OFFSET_MOVED = 21
};
static const uint64_t SWEEP_NS = 500000000;

/* A pull that was judged fit: what fetching and answering need. */
typedef struct judged {
    const rp_pull_request *request;
    uint32_t size;
    const uint8_t *group_name;
    const uint8_t *topic_name;
    const rp_group *group;
    const rp_tags *tags;
    rp_queue *queue;
} judged;

struct rp_pull {
    rp_pull_config config;
    rp_fetch_limits limits;
    rp_control *control;
    rp_cq_reader *reader;
    rp_cq_ext *ext; /* or NULL */
    rp_ring_reader **inputs; /* codecs, manager, store */
    rp_ring **input_rings;
    uint32_t input_count;
    uint64_t waiting_bytes; /* where the request at hand came from */
    rp_ring_writer *manager;
    rp_ring_writer **selectors;
    uint32_t selector_count;
    rp_map topics, groups, subscriptions;
    rp_helds helds;
    rp_commits commits;
    rp_tags parsed; /* the expression of the pull at hand */
    rp_fetch fetch; /* its result */
    int32_t permission;
    int tables_ready;
    uint64_t now_ns;
    uint64_t swept_ns;
    uint32_t sweep_chain;
};

static void count(rp_pull *pull, uint32_t counter, uint64_t n) { rp_add(&pull->config.worker->counters[counter], n); }

rp_pull *rp_pull_open(const rp_pull_config *config) {
    rp_pull *pull = calloc(1, sizeof *pull);
    if (!pull) return NULL;
    pull->config = *config;
    pull->control = rp_control_header(config->block);
    pull->permission = RP_PERM_READ | RP_PERM_WRITE;
    pull->limits = (rp_fetch_limits){config->bytes_in_memory, config->count_in_memory, config->bytes_on_disk,
                                     config->count_on_disk, config->memory_bytes};
    pull->inputs = calloc(config->input_count + 2, sizeof *pull->inputs);
    pull->input_rings = calloc(config->input_count + 2, sizeof *pull->input_rings);
    pull->selectors = calloc(config->selector_count + 1, sizeof *pull->selectors);
    if (!pull->inputs || !pull->input_rings || !pull->selectors || rp_map_init(&pull->topics, 256) != 0 ||
        rp_map_init(&pull->groups, 64) != 0 || rp_map_init(&pull->subscriptions, 64) != 0 ||
        rp_helds_init(&pull->helds, config->held) != 0 || rp_commits_init(&pull->commits) != 0)
        goto fail;
    pull->reader = rp_cq_reader_open(config->block, config->consume_queue_directory, config->consume_queue_file_size,
                                     config->files_max);
    if (config->consume_queue_ext_file_size &&
        !(pull->ext = rp_cq_ext_open(config->block, config->consume_queue_directory, config->consume_queue_ext_file_size)))
        goto fail;
    if (!pull->reader || !(pull->manager = rp_ring_writer_open(config->to_manager))) goto fail;
    for (uint32_t i = 0; i < config->input_count + 2; i++, pull->input_count++) {
        rp_ring *ring = i < config->input_count    ? config->inputs[i]
                        : i == config->input_count ? config->from_manager
                                                   : config->from_store;
        pull->input_rings[i] = ring;
        if (!(pull->inputs[i] = rp_ring_reader_open(ring))) goto fail;
    }
    for (uint32_t i = 0; i < config->selector_count; i++, pull->selector_count++)
        if (!(pull->selectors[i] = rp_ring_writer_open(config->selectors[i]))) goto fail;
    return pull;
fail:;
    int error = errno;
    rp_pull_close(pull);
    errno = error ? error : ENOMEM;
    return NULL;
}

void rp_pull_close(rp_pull *pull) {
    if (!pull) return;
    for (uint32_t i = 0; i < pull->input_count; i++) rp_ring_reader_close(pull->inputs[i]);
    for (uint32_t i = 0; i < pull->selector_count; i++) rp_ring_writer_close(pull->selectors[i]);
    if (pull->manager) rp_ring_writer_close(pull->manager);
    if (pull->reader) rp_cq_reader_close(pull->reader);
    rp_cq_ext_close(pull->ext);
    rp_map_destroy(&pull->topics, free);
    rp_map_destroy(&pull->groups, free);
    rp_map_destroy(&pull->subscriptions, free);
    if (pull->helds.by_queue && pull->helds.by_connection) rp_helds_destroy(&pull->helds);
    rp_commits_destroy(&pull->commits);
    free(pull->inputs);
    free(pull->input_rings);
    free(pull->selectors);
    free(pull);
}

static rp_ring_writer *selector_of(const rp_pull *pull, uint64_t connection) {
    uint64_t index = connection >> 56;
    return index < pull->selector_count ? pull->selectors[index] : NULL;
}

/* ------------------------------------------------------------------ answers */

static rp_status error_reply(rp_pull *pull, const rp_pull_request *request, int32_t code, const char *remark) {
    rp_ring_writer *selector = selector_of(pull, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    rp_error_reply reply = {.connection = request->origin.connection,
                            .opaque = request->opaque,
                            .code = code,
                            .version = pull->config.version,
                            .serialize_type = request->flags & RP_REQUEST_ROCKETMQ ? 1 : 0,
                            .remark = remark};
    if (code == CODE_SYSTEM_BUSY) count(pull, RP_COUNT_BUSY, 1);
    return rp_error_reply_send(selector, &reply);
}

static int32_t code_of(const rp_fetch *fetch, const rp_pull_request *request) {
    switch (fetch->status) {
        case RP_FOUND:
            return CODE_SUCCESS;
        case RP_NO_MATCHED_MESSAGE:
        case RP_MESSAGE_WAS_REMOVING:
            return CODE_PULL_RETRY_IMMEDIATELY;
        case RP_OFFSET_OVERFLOW_ONE:
        case RP_OFFSET_FOUND_NULL:
            return CODE_PULL_NOT_FOUND;
        case RP_NO_MESSAGE_IN_QUEUE:
            return request->queue_offset == 0 ? CODE_PULL_NOT_FOUND : CODE_PULL_OFFSET_MOVED;
        default:
            return CODE_PULL_OFFSET_MOVED;
    }
}

static int64_t suggest_broker(const rp_pull *pull, const judged *pulled) {
    if (!pull->config.slave_read_enable) return 0;
    return pull->fetch.is_far_behind ? pulled->group->which_broker_when_slow : pulled->group->broker_id;
}

/* Answer with what pull->fetch holds. RP_OK or RP_FULL. */
static rp_status answer(rp_pull *pull, const judged *pulled, int32_t code) {
    const rp_pull_request *request = pulled->request;
    const rp_fetch *fetch = &pull->fetch;
    rp_ring_writer *selector = selector_of(pull, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    uint32_t slices = code == CODE_SUCCESS ? fetch->slice_count : 0;
    uint32_t fixed = (uint32_t)(sizeof(rp_stage_pull_reply) + slices * sizeof(rp_slice));
    uint8_t *room = rp_ring_reserve(selector, fixed + HEAD_MAX);
    if (!room) return RP_FULL;
    const char *remark = rp_fetch_status_name(fetch->status);
    rp_pull_reply reply = {.serialize_type = request->flags & RP_REQUEST_ROCKETMQ ? 1 : 0,
                           .opaque = request->opaque,
                           .code = code,
                           .version = pull->config.version,
                           .suggest_which_broker_id = suggest_broker(pull, pulled),
                           .next_begin_offset = fetch->next_begin_offset,
                           .min_offset = fetch->min_offset,
                           .max_offset = fetch->max_offset,
                           .body_size = slices ? fetch->body_size : 0,
                           .remark = (const uint8_t *)remark,
                           .remark_size = (uint32_t)strlen(remark)};
    rp_stage_pull_reply *record = (rp_stage_pull_reply *)room;
    *record = (rp_stage_pull_reply){.connection = request->origin.connection,
                                    .slice_count = slices,
                                    .message_count = slices ? fetch->message_count : 0};
    memcpy(record + 1, fetch->slices, slices * sizeof(rp_slice));
    record->head_size = rp_pull_reply_encode(&reply, room + fixed, HEAD_MAX);
    rp_ring_commit(selector, fixed + record->head_size, RP_STAGE_PULL_REPLY);
    if (slices) {
        count(pull, RP_COUNT_MESSAGES_GET, fetch->message_count);
        count(pull, RP_COUNT_BYTES_GET, fetch->body_size);
    } else {
        count(pull, RP_COUNT_PULL_MISS, 1);
    }
    return RP_OK;
}

/* ------------------------------------------------------------------ judging */

static int is_whole(const rp_pull_request *request, uint32_t size) {
    return size >= sizeof *request && (uint64_t)request->group_size + request->topic_size +
                                              request->subscription_size + request->expression_type_size ==
                                          size - sizeof *request;
}

/* The pull's filter, or NULL: not a tag expression, or the subscription table does not (yet) allow the pull. */
static const rp_tags *tags_of(rp_pull *pull, const judged *pulled) {
    const rp_pull_request *request = pulled->request;
    if (request->sys_flag & FLAG_SUBSCRIPTION) {
        const uint8_t *subscription = pulled->topic_name + request->topic_size;
        const uint8_t *type = subscription + request->subscription_size;
        if (request->expression_type_size && !(request->expression_type_size == 3 && memcmp(type, "TAG", 3) == 0))
            return NULL;
        return rp_tags_parse(subscription, request->subscription_size, &pull->parsed) == RP_OK ? &pull->parsed : NULL;
    }
    uint32_t flags = pulled->group->flags;
    if (!(flags & RP_GROUP_ONLINE) || (flags & RP_GROUP_BROADCASTING && !(flags & RP_GROUP_BROADCAST_ENABLE)))
        return NULL;
    const rp_tags *tags = rp_subscriptions_find(&pull->subscriptions, pulled->group_name, request->group_size,
                                                pulled->topic_name, request->topic_size);
    return tags && !(tags->flags & RP_SUBSCRIPTION_SLOW) && tags->sub_version >= request->sub_version ? tags : NULL;
}

/* Fill `pulled`; 0 if the hot lane cannot serve this pull (the manager then says why, or puts it right). */
static int judge(rp_pull *pull, const uint8_t *data, uint32_t size, judged *pulled) {
    const rp_pull_request *request = (const rp_pull_request *)data;
    *pulled = (judged){.request = request, .size = size, .group_name = data + sizeof *request};
    pulled->topic_name = pulled->group_name + request->group_size;
    if (!(pull->permission & RP_PERM_READ)) return 0;
    pulled->group = rp_map_get(&pull->groups, pulled->group_name, request->group_size);
    if (!pulled->group || !(pulled->group->flags & RP_GROUP_CONSUME_ENABLE)) return 0;
    const rp_topic *topic = rp_map_get(&pull->topics, pulled->topic_name, request->topic_size);
    if (!topic || !(topic->perm & RP_PERM_READ)) return 0;
    if (request->queue_id < 0 || request->queue_id >= topic->read_queue_nums) return 0;
    pulled->tags = tags_of(pull, pulled);
    pulled->queue = (uint32_t)request->queue_id < topic->queue_count ? topic->queues[request->queue_id] : NULL;
    return pulled->tags != NULL && pulled->queue != NULL;
}

static rp_status to_manager(rp_pull *pull, const uint8_t *data, uint32_t size) {
    const rp_pull_request *request = (const rp_pull_request *)data;
    rp_span span = {data, size};
    if (request->flags & RP_REQUEST_RESOLVED)
        return error_reply(pull, request, CODE_SYSTEM_ERROR, "topic, group or subscription changed meanwhile; pull again");
    count(pull, RP_COUNT_SLOW, 1);
    if (rp_ring_write(pull->manager, RP_STAGE_PULL, &span, 1) == RP_OK) return RP_OK;
    return error_reply(pull, request, CODE_SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while");
}

/* ------------------------------------------------------------------ fetching and holding */

static void fetch(rp_pull *pull, const judged *pulled, int64_t offset) {
    rp_fetch_messages(pull->reader, pull->ext, pull->control, pulled->queue, offset, pulled->request->max_msg_nums, pulled->tags,
                      &pull->limits, &pull->fetch);
}

static rp_status look_again(rp_pull *pull, rp_held *held, int expired);

static rp_status hold(rp_pull *pull, const judged *pulled) {
    const rp_pull_request *request = pulled->request;
    rp_held *held =
        rp_helds_add(&pull->helds, pull->config.block, pulled->queue, (const uint8_t *)request, pulled->size);
    if (!held) return answer(pull, pulled, CODE_PULL_NOT_FOUND);
    int64_t hold_ms = pull->config.long_polling ? request->suspend_timeout_ms : pull->config.short_polling_ms;
    if (hold_ms < 0) hold_ms = 0;
    held->deadline_ns = pull->now_ns + (uint64_t)hold_ms * 1000000u;
    held->scanned = (uint64_t)request->queue_offset;
    ((rp_pull_request *)held->request)->flags |= RP_REQUEST_FIRST_TRY_DONE;
    if (rp_held_watch(held, pull->config.store)) return RP_OK;
    rp_status status = look_again(pull, held, 0);
    if (status == RP_FULL) rp_helds_remove(&pull->helds, held); /* its request stays in the ring, and is held anew */
    return status;
}

/* Examine what has come since the last look. A miss leaves the queue watched and everything below max_offset
 * examined; what is still behind after LOOKS_MAX has moved so far that its client is to go on from there. */
static int32_t examine(rp_pull *pull, rp_held *held, const judged *pulled) {
    for (int looks = 0;; looks++) {
        fetch(pull, pulled, (int64_t)held->scanned);
        int32_t code = code_of(&pull->fetch, pulled->request);
        if (code == CODE_PULL_RETRY_IMMEDIATELY) held->scanned = pull->fetch.next_begin_offset;
        else if (code != CODE_PULL_NOT_FOUND) return code;
        if (rp_held_watch(held, pull->config.store)) return CODE_PULL_NOT_FOUND;
        if (looks == LOOKS_MAX) return code;
    }
}

/* A held pull whose queue may have grown, or whose time is over. Answered, it is gone; RP_FULL: it stays. Messages
 * that do not match move `scanned` on, so that they are examined once; at the deadline the client learns of it. */
static rp_status look_again(rp_pull *pull, rp_held *held, int expired) {
    judged pulled;
    rp_status status;
    if (!judge(pull, held->request, held->size, &pulled)) {
        status = to_manager(pull, held->request, held->size);
    } else {
        int32_t code = examine(pull, held, &pulled);
        if (code == CODE_PULL_NOT_FOUND && !expired) return RP_OK;
        if (code == CODE_PULL_NOT_FOUND && held->scanned > (uint64_t)pulled.request->queue_offset)
            code = CODE_PULL_RETRY_IMMEDIATELY;
        status = answer(pull, &pulled, code);
    }
    if (status == RP_OK) rp_helds_remove(&pull->helds, held);
    return status;
}

static rp_status take_pull(rp_pull *pull, const uint8_t *data, uint32_t size) {
    const rp_pull_request *request = (const rp_pull_request *)data;
    judged pulled;
    if (!is_whole(request, size)) return RP_OK;
    if (pull->config.fast_failure && !(request->flags & RP_REQUEST_RESOLVED) &&
        pull->now_ns > request->origin.received_ns + (uint64_t)pull->config.wait_time_in_queue_ms * 1000000u) {
        char remark[160];
        return error_reply(pull, request, CODE_SYSTEM_BUSY,
                           rp_busy_remark(remark, sizeof remark, "TIMEOUT_CLEAN_QUEUE",
                                          pull->now_ns - request->origin.received_ns, pull->waiting_bytes / size));
    }
    if (!judge(pull, data, size, &pulled)) return to_manager(pull, data, size);
    fetch(pull, &pulled, request->queue_offset);
    int32_t code = code_of(&pull->fetch, request);
    int is_first = !(request->flags & RP_REQUEST_FIRST_TRY_DONE);
    rp_status status = code == CODE_PULL_NOT_FOUND && is_first && request->sys_flag & FLAG_SUSPEND
                           ? hold(pull, &pulled)
                           : answer(pull, &pulled, code);
    if (status != RP_OK) return status;
    count(pull, RP_COUNT_PULLS, 1);
    if (is_first && request->sys_flag & FLAG_COMMIT_OFFSET && !pull->config.is_slave)
        rp_commits_add(&pull->commits, pulled.group_name, request->group_size, pulled.topic_name, request->topic_size,
                       request->queue_id, request->commit_offset, request->origin.received_ns);
    return RP_OK;
}

static rp_status arrived(rp_pull *pull, uint32_t queue_index) {
    rp_held *next;
    for (rp_held *held = rp_helds_of_queue(&pull->helds, queue_index); held; held = next) {
        next = held->next_of_queue;
        if (rp_control_queue_index(pull->config.block, held->queue) != queue_index) continue;
        if (look_again(pull, held, 0) == RP_FULL) return RP_FULL;
    }
    return RP_OK;
}

/* Deadlines, and whatever a lost notice might have left: a part of the chains per call, all of them twice a second. */
static void sweep(rp_pull *pull, int stopping) {
    uint32_t chains = pull->helds.mask + 1;
    uint64_t due = stopping ? chains : (pull->now_ns - pull->swept_ns) * chains / SWEEP_NS;
    if (!due) return;
    if (due > chains) due = chains;
    pull->swept_ns = pull->now_ns;
    for (uint64_t i = 0; i < due && pull->helds.count; i++) {
        rp_held *next;
        for (rp_held *held = pull->helds.by_queue[pull->sweep_chain]; held; held = next) {
            next = held->next_of_queue;
            int expired = stopping || pull->now_ns >= held->deadline_ns;
            if (expired || rp_load_acquire(&held->queue->max_offset) > held->scanned) look_again(pull, held, expired);
        }
        pull->sweep_chain = (pull->sweep_chain + 1) & pull->helds.mask;
    }
}

/* The pulls that our predecessor held: their clients are to ask again, from where they asked. */
static void answer_orphans(rp_pull *pull) {
    static const char REMARK[] = "the pull service was restarted; pull again";
    for (const rp_held_slot *held; (held = rp_helds_orphan(&pull->helds)); rp_helds_drop_orphan(&pull->helds)) {
        rp_ring_writer *selector = selector_of(pull, held->connection);
        if (!selector || held->flags & RP_REQUEST_ONEWAY) continue;
        rp_stage_pull_reply *record = (rp_stage_pull_reply *)rp_ring_reserve(selector, sizeof *record + HEAD_MAX);
        if (!record) return;
        const rp_queue *queue = rp_control_queue(pull->config.block, held->queue);
        rp_pull_reply reply = {.serialize_type = held->flags & RP_REQUEST_ROCKETMQ ? 1 : 0,
                               .opaque = held->opaque,
                               .code = CODE_PULL_RETRY_IMMEDIATELY,
                               .version = pull->config.version,
                               .next_begin_offset = (uint64_t)held->queue_offset,
                               .min_offset = rp_load_acquire(&queue->min_offset),
                               .max_offset = rp_load_acquire(&queue->max_offset),
                               .remark = (const uint8_t *)REMARK,
                               .remark_size = sizeof REMARK - 1};
        *record = (rp_stage_pull_reply){.connection = held->connection};
        record->head_size = rp_pull_reply_encode(&reply, (uint8_t *)(record + 1), HEAD_MAX);
        rp_ring_commit(selector, (uint32_t)sizeof *record + record->head_size, RP_STAGE_PULL_REPLY);
    }
}

/* ------------------------------------------------------------------ the loop */

static rp_status take(rp_pull *pull, const uint8_t *data, uint32_t size, uint16_t type) {
    switch (type) {
        case RP_STAGE_PULL:
            return take_pull(pull, data, size);
        case RP_STAGE_ARRIVAL:
            return size >= sizeof(rp_arrival) ? arrived(pull, ((const rp_arrival *)data)->queue) : RP_OK;
        case RP_STAGE_CLOSED:
            if (size >= sizeof(rp_origin)) rp_helds_drop_connection(&pull->helds, ((const rp_origin *)data)->connection);
            return RP_OK;
        case RP_STAGE_TOPIC:
            return rp_topics_apply(&pull->topics, pull->config.block, data, size) == RP_NO_MEMORY ? RP_NO_MEMORY : RP_OK;
        case RP_STAGE_GROUP:
            return rp_groups_apply(&pull->groups, data, size) == RP_NO_MEMORY ? RP_NO_MEMORY : RP_OK;
        case RP_STAGE_SUBSCRIPTION:
            return rp_subscriptions_apply(&pull->subscriptions, data, size) == RP_NO_MEMORY ? RP_NO_MEMORY : RP_OK;
        case RP_STAGE_BROKER:
            if (size >= sizeof(rp_stage_broker)) pull->permission = ((const rp_stage_broker *)data)->permission;
            return RP_OK;
        case RP_STAGE_TABLES_END: /* of another epoch: it was for our predecessor, and ours is still to come */
            if (size >= sizeof(rp_stage_tables_end) &&
                ((const rp_stage_tables_end *)data)->epoch == pull->config.worker->epoch)
                pull->tables_ready = 1;
            return RP_OK;
        default:
            return RP_OK;
    }
}

static uint32_t drain(rp_pull *pull, uint32_t input) {
    rp_ring_reader *reader = pull->inputs[input];
    const uint8_t *data;
    uint32_t size, taken = 0;
    uint16_t type;
    pull->waiting_bytes = rp_ring_depth(pull->input_rings[input]);
    while (taken < BATCH_REQUESTS && rp_ring_read(reader, &data, &size, &type) == RP_OK) {
        rp_status status = take(pull, data, size, type);
        if (status == RP_FULL || status == RP_NO_MEMORY) {
            count(pull, RP_COUNT_STALLS, 1);
            break;
        }
        rp_ring_release(reader);
        taken++;
    }
    return taken;
}

static uint32_t pass(rp_pull *pull) {
    uint32_t codecs = pull->input_count - 2, taken = 0;
    pull->now_ns = rp_now_ns();
    answer_orphans(pull);
    taken += drain(pull, codecs);
    taken += drain(pull, codecs + 1);
    for (uint32_t i = 0; i < codecs && pull->tables_ready; i++) taken += drain(pull, i);
    sweep(pull, 0);
    __atomic_store_n(&pull->config.worker->counters[RP_COUNT_HELD], pull->helds.count, __ATOMIC_RELAXED);
    if (pull->commits.pending.live &&
        (pull->commits.pending.live >= RP_COMMITS_MAX || pull->now_ns - pull->commits.flushed_ns > RP_COMMITS_INTERVAL_NS))
        rp_commits_flush(&pull->commits, pull->manager, pull->now_ns);
    for (uint32_t i = 0; i < pull->selector_count; i++) {
        rp_ring_pump(pull->selectors[i]);
        rp_ring_wake(pull->selectors[i]);
    }
    rp_ring_pump(pull->manager);
    rp_ring_wake(pull->manager);
    return taken;
}

/* How long the loop may sleep: commits and deadlines want to be looked at in time. */
static int64_t nap(const rp_pull *pull, uint64_t end) {
    uint64_t until = end;
    if (pull->helds.count && pull->now_ns + SWEEP_NS / 4 < until) until = pull->now_ns + SWEEP_NS / 4;
    if (pull->commits.pending.live && pull->now_ns + RP_COMMITS_INTERVAL_NS < until)
        until = pull->now_ns + RP_COMMITS_INTERVAL_NS;
    return (int64_t)(until - pull->now_ns);
}

rp_status rp_pull_run(rp_pull *pull, int64_t timeout_ns) {
    rp_worker *worker = pull->config.worker;
    uint64_t end = rp_now_ns() + (uint64_t)timeout_ns;
    for (;;) {
        uint32_t taken = pass(pull);
        worker->heartbeat_ns = pull->now_ns;
        count(pull, RP_COUNT_LOOPS, 1);
        if (!taken) {
            if (rp_load_acquire32(&worker->stop)) {
                sweep(pull, 1);
                rp_commits_flush(&pull->commits, pull->manager, pull->now_ns);
                pass(pull);
                return RP_STOPPED;
            }
            rp_worker_prepare_sleep(worker);
            if (!pass(pull) && pull->now_ns < end) {
                count(pull, RP_COUNT_SLEEPS, 1);
                rp_worker_sleep(worker, nap(pull, end));
            } else {
                rp_worker_awake(worker);
            }
        }
        if (pull->now_ns >= end) return RP_OK;
    }
}
