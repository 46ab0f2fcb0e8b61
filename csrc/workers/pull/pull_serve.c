/* Serves a pull: check it against the tables, fetch its consume queue units, answer or suspend it. Messages are read
 * for SQL92 expressions alone: the answer names slices of the log, which the selector writes from its mapping.
 *
 * Suspending is race-free against dispatch: mark the queue watched, full fence, look at its max offset once more;
 * dispatch publishes the max offset, full fence, swaps watched. One of the two sees the other.
 *
 * No request blocks the loop for long: one fetch examines a bounded number of units (fetch.h), and a suspended pull
 * gets at most LOOKS_MAX fetches at a time. If many pulls wait for one queue, each turn serves a part of them and the
 * next turn continues. Queues with new units take turns, so that none waits for the pulls of another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "wire/codes.h"
#include "ipc/serving.h"
#include "workers/pull/pull_private.h"

enum { LOOKS_MAX = 8 /* of a suspended pull at one time */ };
enum { REMARK_MAX = 160 };
/* As in the reference, whose sweep wakes such pulls: else the group, which commits what its pulls have passed, would
 * seem to be behind by messages that are not for it. */
static const uint64_t REPORT_NS = 5000000000;
static const int64_t SUSPEND_MAX_MS = 86400000; /* a day; asked for more, a pull is answered then */
/* The wait of a pull outside of a slave's range. Its answer means "pull again at once", with the same offset. */
static const uint64_t OUTSIDE_NS = 1000000000;

static void add_commit(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names) {
    rp_msg_commit_offset offset = {.offset = request->commit_offset,
                                   .queue_id = request->queue_id,
                                   .group_size = request->group_size,
                                   .topic_size = request->topic_size,
                                   .received_ns = request->origin.received_ns};
    if (!rp_commits_add(&pull->commits, &offset, names)) pull_count(pull, RP_COUNT_COMMITS_DROPPED, 1);
}

/* ---- the check against the tables ---- */

/* The expression of the pull itself; NULL if it is no tag expression, and no known SQL92 expression. */
static const rp_tags *tags_of_pull(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names) {
    const uint8_t *subscription = names + request->group_size + request->topic_size;
    const uint8_t *type = subscription + request->subscription_size;
    if (request->expression_type_size == 5 && memcmp(type, "SQL92", 5) == 0)
        return rp_expressions_find(&pull->expressions, subscription, request->subscription_size);
    if (request->expression_type_size && !(request->expression_type_size == 3 && memcmp(type, "TAG", 3) == 0))
        return NULL;
    rp_status status = rp_tags_parse(subscription, request->subscription_size, pull->parsed_hashes, &pull->parsed);
    pull->units += pull->parsed.count * PULL_UNITS_OF_A_TAG;
    return status == RP_OK ? &pull->parsed : NULL;
}

/* The subscription of its group; NULL if that cannot be evaluated, or is not (yet) in the subscription table. */
static const rp_tags *tags_of_group(const rp_pull *pull, const pull_checked *pulled) {
    const rp_msg_pull *request = pulled->request;
    uint32_t flags = pulled->group->flags;
    if (!(flags & RP_GROUP_ONLINE) || (flags & RP_GROUP_BROADCASTING && !(flags & RP_GROUP_BROADCAST_ENABLE)))
        return NULL;
    const rp_tags *tags = rp_subscriptions_find(&pull->subscriptions, pulled->names, request->group_size,
                                                pulled->names + request->group_size, request->topic_size);
    return tags && !(tags->flags & RP_SUBSCRIPTION_SLOW) && tags->sub_version >= request->sub_version ? tags : NULL;
}

static rp_queue *queue_of(const rp_topic *topic, int32_t id) {
    return id >= 0 && id < topic->read_queue_nums && (uint32_t)id < topic->queue_count ? topic->queues[id] : NULL;
}

static int lacks(pull_checked *pulled, const char *fault) {
    pulled->fault = fault;
    return 0;
}

/* Fill `pulled`; 0 if the tables or permissions do not allow the fast path: `fault` says why. `tags`: of a suspended
 * pull, else NULL. */
static int pull_check(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names, const rp_tags *tags,
                      pull_checked *pulled) {
    *pulled = (pull_checked){.request = request, .names = names};
    if (request->flags & RP_REQUEST_UNCHECKED) return lacks(pulled, "access control has not seen the pull");
    if (!(pull->permission & RP_PERM_READ)) return lacks(pulled, "brokerPermission has no read; pull again");
    pulled->group = rp_map_get(&pull->groups, names, request->group_size);
    if (!pulled->group || !(pulled->group->flags & RP_GROUP_CONSUME_ENABLE))
        return lacks(pulled, "the group was removed or may not consume; pull again");
    const rp_topic *topic = rp_map_get(&pull->topics, names + request->group_size, request->topic_size);
    if (!topic || !(topic->perm & RP_PERM_READ))
        return lacks(pulled, "the topic was removed or may not be read; pull again");
    pulled->queue = queue_of(topic, request->queue_id);
    if (!pulled->queue) return lacks(pulled, "the topic has no such queue; pull again");
    pulled->tags = !(request->sys_flag & PULL_FLAG_SUBSCRIPTION) ? tags_of_group(pull, pulled)
                   : tags                                        ? tags
                                                                 : tags_of_pull(pull, request, names);
    if (pulled->tags) return 1;
    return lacks(pulled, request->sys_flag & PULL_FLAG_SUBSCRIPTION
                             ? "the filter of this pull cannot be evaluated"
                             : "the group is offline, or its filter cannot be evaluated; pull again");
}

/* ---- answers ---- */

/* A pull was answered. `names`: group, topic. */
static void log_served(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names, int32_t answer) {
    rp_served line;
    if (!rp_request_log_takes(&pull->request_log)) return;
    rp_served_fill(&line,
                   &(rp_msg_served){.origin = request->origin,
                                    .queue_offset = request->queue_offset,
                                    .opaque = request->opaque,
                                    .code = request->code,
                                    .queue_id = request->queue_id,
                                    .group_size = request->group_size,
                                    .topic_size = request->topic_size},
                   names, names + request->group_size);
    rp_request_log_write(&pull->request_log, &line, answer);
}

static rp_status error_reply(rp_pull *pull, const rp_msg_pull *request, int32_t code, const char *remark) {
    rp_ring_writer *selector = pull_selector_of(pull, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    rp_error_reply reply = {.opaque = request->opaque,
                            .code = code,
                            .version = pull->config.version,
                            .serialize_type = rp_serialize_type(request->flags),
                            .remark = remark};
    if (code == RP_RESPONSE_SYSTEM_BUSY) pull_count(pull, RP_COUNT_BUSY, 1);
    rp_status status = rp_error_reply_send(selector, request->origin.connection, &reply);
    if (status == RP_OK) log_served(pull, request, (const uint8_t *)(request + 1), code);
    return status;
}

static int32_t code_of(const rp_fetch *fetch, const rp_msg_pull *request) {
    switch (fetch->status) {
        case RP_FOUND: return RP_RESPONSE_SUCCESS;
        case RP_NO_MATCHED_MESSAGE:
        case RP_MESSAGE_WAS_REMOVING: return RP_RESPONSE_PULL_RETRY_IMMEDIATELY;
        case RP_OFFSET_OVERFLOW_ONE:
        case RP_OFFSET_FOUND_NULL: return RP_RESPONSE_PULL_NOT_FOUND;
        case RP_NO_MESSAGE_IN_QUEUE:
            return request->queue_offset == 0 ? RP_RESPONSE_PULL_NOT_FOUND : RP_RESPONSE_PULL_OFFSET_MOVED;
        case RP_LOG_UNREADABLE: return RP_RESPONSE_SYSTEM_ERROR;
        default: return RP_RESPONSE_PULL_OFFSET_MOVED;
    }
}

/* A master may have what its slave lacks: without offsetCheckInSlave a slave moves no consumer to another offset. */
static int is_outside_slave(const rp_pull *pull, int32_t code) {
    return code == RP_RESPONSE_PULL_OFFSET_MOVED && pull->config.is_slave && !pull->config.offset_check_in_slave;
}

static int64_t suggest_broker(const rp_pull *pull, const pull_checked *pulled, int is_outside) {
    if (is_outside) return pulled->group->broker_id;
    if (!pull->config.slave_read_enable || !pulled->group) return 0;
    return pull->fetch.is_far_behind ? pulled->group->which_broker_when_slow : pulled->group->broker_id;
}

static const char *remark_of(const rp_fetch *fetch, char *room, size_t size) {
    if (fetch->status != RP_LOG_UNREADABLE) return rp_fetch_status_name(fetch->status);
    snprintf(room, size, "the broker cannot read its CommitLog now (%s); pull again later", strerror(fetch->error));
    return room;
}

static void count_messages(rp_pull *pull, const pull_checked *pulled) {
    const rp_msg_pull *request = pulled->request;
    int was_suspended = (request->flags & RP_REQUEST_FIRST_TRY_DONE) != 0;
    uint64_t received_ns = request->origin.received_ns;
    pull_count(pull, RP_COUNT_MESSAGES_GET, pull->fetch.message_count);
    pull_count(pull, RP_COUNT_BYTES_GET, pull->fetch.body_size);
    rp_traffic_add(&pull->traffic,
                   &(rp_msg_traffic){
                       .messages = pull->fetch.message_count,
                       .bytes = pull->fetch.body_size,
                       .requests = 1,
                       .wait_us = was_suspended || pull->now_ns < received_ns ? 0 : (pull->now_ns - received_ns) / 1000,
                       .behind_bytes = pull->fetch.behind_bytes,
                       .queue_id = request->queue_id,
                       .group_size = request->group_size,
                       .topic_size = request->topic_size},
                   pulled->names, pull->now_ns);
}

/* Answer with the messages in pull->fetch. RP_OK or RP_FULL. */
static rp_status answer(rp_pull *pull, const pull_checked *pulled, int32_t code) {
    const rp_msg_pull *request = pulled->request;
    const rp_fetch *fetch = &pull->fetch;
    rp_ring_writer *selector = pull_selector_of(pull, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    uint32_t slices = code == RP_RESPONSE_SUCCESS ? fetch->slice_count : 0;
    uint32_t fixed = (uint32_t)(sizeof(rp_msg_pull_reply) + slices * sizeof(rp_slice));
    uint8_t *room = rp_ring_reserve(selector, fixed + PULL_HEAD_MAX);
    if (!room) return RP_FULL;
    char text[REMARK_MAX];
    const char *remark = remark_of(fetch, text, sizeof text);
    int is_outside = is_outside_slave(pull, code);
    rp_pull_reply reply = {.serialize_type = rp_serialize_type(request->flags),
                           .opaque = request->opaque,
                           .code = is_outside ? RP_RESPONSE_PULL_RETRY_IMMEDIATELY : code,
                           .version = pull->config.version,
                           .suggest_which_broker_id = suggest_broker(pull, pulled, is_outside),
                           .next_begin_offset = is_outside ? (uint64_t)request->queue_offset : fetch->next_begin_offset,
                           .min_offset = fetch->min_offset,
                           .max_offset = fetch->max_offset,
                           .body_size = slices ? fetch->body_size : 0,
                           .remark = (const uint8_t *)remark,
                           .remark_size = (uint32_t)strlen(remark)};
    rp_msg_pull_reply *record = (rp_msg_pull_reply *)room;
    *record = (rp_msg_pull_reply){.connection = request->origin.connection,
                                  .slice_count = slices,
                                  .message_count = slices ? fetch->message_count : 0};
    memcpy(record + 1, fetch->slices, slices * sizeof(rp_slice));
    record->head_size = rp_pull_reply_encode(&reply, room + fixed, PULL_HEAD_MAX);
    rp_ring_commit(selector, fixed + record->head_size, RP_MSG_PULL_REPLY);
    log_served(pull, request, pulled->names, reply.code);
    if (slices)
        count_messages(pull, pulled);
    else
        pull_count(pull, fetch->status == RP_LOG_UNREADABLE ? RP_COUNT_LOG_UNREADABLE : RP_COUNT_PULL_MISS, 1);
    return RP_OK;
}

/* ---- requests ---- */

static int is_whole(const rp_msg_pull *request, uint32_t size) {
    uint64_t strings = (uint64_t)request->group_size + request->topic_size + request->subscription_size +
                       request->expression_type_size;
    return size >= sizeof *request && (strings == size - sizeof *request ||
                                       (request->flags & RP_REQUEST_UNCHECKED && strings < size - sizeof *request));
}

/* A pull that the manager has handed back is answered: it would come back for ever. */
static rp_status to_manager(rp_pull *pull, const pull_checked *pulled, const uint8_t *data, uint32_t size) {
    const rp_msg_pull *request = pulled->request;
    rp_span span = {data, size};
    if (request->flags & RP_REQUEST_RESOLVED)
        return error_reply(pull, request, RP_RESPONSE_SYSTEM_ERROR, pulled->fault);
    pull_count(pull, RP_COUNT_SLOW, 1);
    if (rp_backlog_put(&pull->for_manager, request->origin.connection, RP_MSG_PULL, &span, 1) == RP_OK) return RP_OK;
    return error_reply(pull, request, RP_RESPONSE_SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while");
}

/* The queue ends before the offset: the log had more, before a power failure or on another master. The manager knows
 * where the group has to go on, and hands the pull back if it does not. */
static int is_beyond_queue(const rp_pull *pull, const rp_msg_pull *request) {
    return pull->fetch.status == RP_OFFSET_OVERFLOW_BADLY && !pull->config.is_slave &&
           !(request->flags & RP_REQUEST_RESOLVED);
}

/* ---- fetching and suspending ---- */

static void fetch(rp_pull *pull, const pull_checked *pulled, int64_t offset) {
    const rp_msg_pull *request = pulled->request;
    if (pull->config.filter_retries)
        rp_selection_of_retries(&pull->selection, &pull->subscriptions, pulled->names, request->group_size,
                                request->topic_size);
    rp_fetch_messages(pull->reader, &pull->selection, pull->control, pulled->queue, offset, request->max_msg_nums,
                      pulled->tags, request->sys_flag & PULL_FLAG_BULK ? &pull->bulk_limits : &pull->limits,
                      &pull->fetch);
    pull->units += pull->fetch.examined + PULL_UNITS_OF_A_LOOK + (uint32_t)(pull->fetch.work / PULL_WORK_OF_A_UNIT);
}

static rp_status look_again(rp_pull *pull, rp_suspended_pull *suspended, int expired);

static uint64_t deadline_of(const rp_pull *pull, const rp_msg_pull *request) {
    int64_t wait_ms = pull->config.long_polling ? request->suspend_timeout_ms : pull->config.short_polling_ms;
    if (wait_ms < 0) wait_ms = 0;
    if (wait_ms > SUSPEND_MAX_MS) wait_ms = SUSPEND_MAX_MS;
    return pull->now_ns + (uint64_t)wait_ms * 1000000u;
}

/* 1 if the pull before may have passed messages that are not for this client, after the last that it found. The client
 * commits them when this pull is answered. */
static int may_owe_a_commit(const pull_checked *pulled) {
    const rp_msg_pull *request = pulled->request;
    if (pulled->tags->flags & RP_SUBSCRIPTION_ALL) return 0;
    int64_t committed = request->sys_flag & PULL_FLAG_COMMIT_OFFSET ? request->commit_offset : 0;
    return committed < request->queue_offset;
}

/* A pull beyond the bounds of suspended_pulls.h is answered at once, as without long polling. `code`: what the fetch
 * gave. */
static rp_status suspend(rp_pull *pull, const pull_checked *pulled, int32_t code) {
    const rp_msg_pull *request = pulled->request;
    rp_suspended_pull *suspended =
        rp_suspended_pulls_add(&pull->suspended_pulls, pull->config.block, pulled->queue, request, pulled->names,
                               request->sys_flag & PULL_FLAG_SUBSCRIPTION ? pulled->tags : NULL);
    if (!suspended) {
        rp_status status = answer(pull, pulled, code);
        if (status == RP_OK) pull_count(pull, RP_COUNT_SUSPEND_REFUSED, 1);
        return status;
    }
    suspended->deadline_ns = is_outside_slave(pull, code) ? pull->now_ns + OUTSIDE_NS : deadline_of(pull, request);
    suspended->report_ns = pull->now_ns + REPORT_NS;
    if (may_owe_a_commit(pulled) && suspended->report_ns < suspended->deadline_ns)
        suspended->deadline_ns = suspended->report_ns;
    suspended->scanned = (uint64_t)request->queue_offset;
    suspended->restrictions = pull->restrictions;
    suspended->request.flags |= RP_REQUEST_FIRST_TRY_DONE;
    if (rp_suspension_watch(suspended, pull->config.store)) return RP_OK;
    rp_status status = look_again(pull, suspended, 0);
    if (status == RP_FULL)
        rp_suspended_pulls_remove(&pull->suspended_pulls,
                                  suspended); /* its request stays in the ring and is served again */
    return status;
}

/* Examine the units since the last fetch. If none matches, all units below max_offset are examined and the queue is
 * watched. After LOOKS_MAX fetches without reaching the end, the response tells the client to continue from there. */
static int32_t examine(rp_pull *pull, rp_suspended_pull *suspended, const pull_checked *pulled) {
    for (int looks = 0;; looks++) {
        fetch(pull, pulled, (int64_t)suspended->scanned);
        int32_t code = code_of(&pull->fetch, pulled->request);
        if (code == RP_RESPONSE_PULL_RETRY_IMMEDIATELY)
            suspended->scanned = pull->fetch.next_begin_offset;
        else if (code != RP_RESPONSE_PULL_NOT_FOUND)
            return code;
        if (rp_suspension_watch(suspended, pull->config.store)) return RP_RESPONSE_PULL_NOT_FOUND;
        if (looks == LOOKS_MAX) return code;
    }
}

/* The client pulls again from the same offset, and that pull gets the reason. `queue`: NULL if there is none. */
static rp_status send_back(rp_pull *pull, const pull_checked *pulled, const rp_queue *queue) {
    pull->fetch = (rp_fetch){.status = RP_NO_MATCHED_MESSAGE,
                             .next_begin_offset = (uint64_t)pulled->request->queue_offset,
                             .min_offset = queue ? rp_load_acquire(&queue->min_offset) : 0,
                             .max_offset = queue ? rp_load_acquire(&queue->max_offset) : 0};
    return answer(pull, pulled, RP_RESPONSE_PULL_RETRY_IMMEDIATELY);
}

/* Examine a suspended pull whose queue may have grown, whose deadline has passed or whose permission may be gone. It is
 * removed when answered; RP_FULL: it stays. `scanned` moves past messages that do not match, so each is examined once;
 * the response contains it. */
static rp_status look_again(rp_pull *pull, rp_suspended_pull *suspended, int expired) {
    pull_checked pulled;
    rp_status status;
    suspended->looked_ns = pull->now_ns;
    rp_serving(pull->config.worker, suspended->request.origin.connection);
    if (!pull_check(pull, &suspended->request, suspended->names, suspended->tags, &pulled)) {
        /* Topic, group or permission has changed. The manager cannot answer: the full request was not kept. */
        status = send_back(pull, &pulled, suspended->queue);
    } else {
        suspended->restrictions = pull->restrictions;
        int32_t code = examine(pull, suspended, &pulled);
        if ((code == RP_RESPONSE_PULL_NOT_FOUND || is_outside_slave(pull, code)) && !expired) return RP_OK;
        if (code == RP_RESPONSE_PULL_NOT_FOUND && suspended->scanned > (uint64_t)pulled.request->queue_offset)
            code = RP_RESPONSE_PULL_RETRY_IMMEDIATELY;
        status = answer(pull, &pulled, code);
    }
    if (status == RP_OK) rp_suspended_pulls_remove(&pull->suspended_pulls, suspended);
    return status;
}

rp_status rp_pull_take(rp_pull *pull, const uint8_t *data, uint32_t size) {
    const rp_msg_pull *request = (const rp_msg_pull *)data;
    pull_checked pulled;
    if (!is_whole(request, size)) return RP_OK;
    if (!pull->tables_ready) { /* the manager handed it back to the worker before this one, whose tables are gone */
        pulled = (pull_checked){.request = request, .names = data + sizeof *request};
        return send_back(pull, &pulled,
                         rp_control_find(pull->config.block, pulled.names + request->group_size, request->topic_size,
                                         (uint32_t)request->queue_id));
    }
    uint64_t age_ns = rp_presence_age(&pull->presence, request->origin.received_ns, pull->now_ns);
    if (pull->config.fast_failure && !(request->flags & RP_REQUEST_RESOLVED) &&
        age_ns > (uint64_t)pull->config.wait_time_in_queue_ms * 1000000u) {
        char remark[160];
        return error_reply(
            pull, request, RP_RESPONSE_SYSTEM_BUSY,
            rp_busy_remark(remark, sizeof remark, "TIMEOUT_CLEAN_QUEUE", age_ns, pull->waiting_bytes / size));
    }
    if (!pull_check(pull, request, data + sizeof *request, NULL, &pulled)) return to_manager(pull, &pulled, data, size);
    fetch(pull, &pulled, request->queue_offset);
    if (is_beyond_queue(pull, request)) return to_manager(pull, &pulled, data, size);
    int32_t code = code_of(&pull->fetch, request);
    int is_first = !(request->flags & RP_REQUEST_FIRST_TRY_DONE);
    int waits =
        (code == RP_RESPONSE_PULL_NOT_FOUND && request->sys_flag & PULL_FLAG_SUSPEND) || is_outside_slave(pull, code);
    rp_status status = waits && is_first ? suspend(pull, &pulled, code) : answer(pull, &pulled, code);
    if (status != RP_OK) return status;
    pull_count(pull, RP_COUNT_PULLS, 1);
    if (is_first && request->sys_flag & PULL_FLAG_COMMIT_OFFSET && !pull->config.is_slave &&
        pull->fetch.status != RP_OFFSET_OVERFLOW_BADLY)
        add_commit(pull, request, pulled.names);
    return RP_OK;
}

/* The chain stores where it stops. RP_FULL: no room for the response to that pull. */
static rp_status look_at_chain(rp_pull *pull, rp_suspension_chain *chain) {
    uint32_t end = pull->units + PULL_UNITS_OF_A_CHAIN;
    for (rp_suspended_pull *suspended; (suspended = chain->next) && pull->units < end;) {
        pull->units++;
        pull_count(pull, RP_COUNT_SUSPENDED_STEPS, 1);
        chain->next = suspended->next_of_queue;
        /* Watched anew: it may wait for more than one further message, outside of a slave's range. */
        if (rp_load_acquire(&suspended->queue->max_offset) <= suspended->scanned &&
            rp_suspension_watch(suspended, pull->config.store))
            continue;
        if (look_again(pull, suspended, 0) != RP_FULL) continue;
        chain->next = suspended;
        return RP_FULL;
    }
    return RP_OK;
}

void rp_pull_look_at_arrived(rp_pull *pull) {
    uint32_t full = 0; /* chains that had no room for their answer, one after the other */
    pull->units = 0;
    while (pull->suspended_pulls.arrived > full && pull->units < PULL_UNITS_MAX) {
        rp_suspension_chain *chain = rp_suspended_pulls_take_arrived(&pull->suspended_pulls);
        full = look_at_chain(pull, chain) == RP_FULL ? full + 1 : 0;
        rp_suspended_pulls_return_arrived(&pull->suspended_pulls, chain);
    }
    if (full) {
        pull_count(pull, RP_COUNT_STALLS, 1);
        pull->is_blocked = 1;
    }
    if (pull->suspended_pulls.arrived > full) pull->is_unfinished = 1;
    rp_serving(pull->config.worker, 0);
}

static void sweep_pull(rp_pull *pull, rp_suspended_pull *suspended, int stopping) {
    if (pull_is_gone(pull, suspended->request.origin.connection)) {
        rp_suspended_pulls_remove(&pull->suspended_pulls, suspended);
        return;
    }
    int has_passed = suspended->scanned > (uint64_t)suspended->request.queue_offset;
    int expired = stopping || pull->now_ns >= (has_passed ? suspended->report_ns : suspended->deadline_ns) ||
                  pull->now_ns >= suspended->deadline_ns;
    int is_late = !suspended->chain->is_arrived && pull->now_ns - suspended->looked_ns >= PULL_SWEEP_NS / 2 &&
                  rp_load_acquire(&suspended->queue->max_offset) > suspended->scanned;
    if (expired || is_late || suspended->restrictions != pull->restrictions) look_again(pull, suspended, expired);
}

/* Sweep one chain, from where the last call stopped in it. 0: stopped at PULL_UNITS_MAX. */
static int sweep_chain(rp_pull *pull, int stopping) {
    rp_suspended_pulls *suspended_pulls = &pull->suspended_pulls;
    if (!pull->is_in_chain || stopping) suspended_pulls->sweep = suspended_pulls->by_queue[pull->sweep_chain].first;
    pull->is_in_chain = 1;
    for (rp_suspended_pull *suspended; (suspended = suspended_pulls->sweep);) {
        if (!stopping && pull->units >= PULL_UNITS_MAX) return 0;
        pull->units++;
        pull_count(pull, RP_COUNT_SUSPENDED_STEPS, 1);
        suspended_pulls->sweep = suspended->next_of_queue;
        sweep_pull(pull, suspended, stopping);
    }
    pull->is_in_chain = 0;
    return 1;
}

void rp_pull_sweep(rp_pull *pull, int stopping) {
    uint32_t chains = pull->suspended_pulls.mask + 1;
    uint64_t due = stopping ? chains : (pull->now_ns - pull->swept_ns) * chains / PULL_SWEEP_NS;
    if (due) {
        pull->sweep_due = due < chains - pull->sweep_due ? pull->sweep_due + (uint32_t)due : chains;
        pull->swept_ns = pull->now_ns;
    }
    pull->units = 0;
    for (; pull->sweep_due && pull->suspended_pulls.count; pull->sweep_due--) {
        if (!sweep_chain(pull, stopping)) {
            pull->is_unfinished = 1;
            break;
        }
        pull->sweep_chain = (pull->sweep_chain + 1) & pull->suspended_pulls.mask;
    }
    if (!pull->suspended_pulls.count) pull->sweep_due = 0;
    rp_serving(pull->config.worker, 0);
}
