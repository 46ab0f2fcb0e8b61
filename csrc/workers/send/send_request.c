/* One send. In this order: decide (append, divert to the manager, refuse), check that there is room for the response,
 * append, set the resume point, publish, answer; then send.c releases the input. So nothing is stored that cannot be
 * answered, and a restarted worker knows from the resume point which requests were stored.
 *
 * Order of a connection: once one of its sends was diverted to the manager, later ones follow it (diverted.h). */
#include <stdlib.h>
#include "wire/codes.h"
#include "workers/send/send_delay.h"
#include "workers/send/send_private.h"
#include "workers/send/send_store.h"
#include "workers/send/send_timer.h"

#define KEEP_NS (RP_SEND_KEEP_MS * 1000000ull)

static const char REFUSED_BY_SLAVE[] =
    "service not available now: this broker is a slave and takes no messages; send to its master";

/* The line of the request log for a send that is answered; NULL: it has none. */
static rp_served *line_of(rp_send *send, const rp_msg_send *request, int32_t queue_id, int64_t queue_offset,
                          rp_served *room) {
    if (rp_is_internal(request->origin.connection) || !rp_request_log_takes(&send->request_log)) return NULL;
    const uint8_t *topic = (const uint8_t *)(request + 1);
    rp_served_fill(room,
                   &(rp_msg_served){.origin = request->origin,
                                    .queue_offset = queue_offset,
                                    .opaque = request->opaque,
                                    .code = request->code,
                                    .queue_id = queue_id,
                                    .group_size = request->group_size,
                                    .topic_size = request->topic_size},
                   topic + request->topic_size, topic);
    return room;
}

static rp_status refuse(rp_send *send, const rp_msg_send *request, int32_t code, const char *remark) {
    rp_refused refused = {&request->origin, request->token, request->opaque, request->queue_id, request->flags};
    rp_served line;
    count(send, code == RP_RESPONSE_SYSTEM_BUSY ? RP_COUNT_BUSY : RP_COUNT_PUT_FAILED, 1);
    rp_status status = rp_send_refuse(send, &refused, code, remark);
    if (status == RP_OK)
        rp_request_log_write(&send->request_log, line_of(send, request, request->queue_id, -1, &line), code);
    return status;
}

static void set_resume_point_stored(void *context, const rp_put *put, const rp_stored *stored) {
    rp_send *send = context;
    rp_send_set_resume_point(send, RESUME_AT_LOG, stored->end_phy_offset);
    if (put->queue == send->half_queue && send->half_records) {
        rp_half_states_add(send->config.half_states, stored->queue_offset);
        rp_half_places_add(&send->half_places, stored->queue_offset, stored->phy_offset);
    }
    if (put->ends_timer)
        rp_send_timer_end(
            send,
            &(rp_timer_end){.number = put->timer, .end_phy_offset = stored->end_phy_offset, .kind = RP_TIMER_CHANGED});
    if (put->is_delivery) rp_delivery_marks_mark(send->config.marks, &put->delivery, stored->end_phy_offset);
}

static void set_resume_point_diverted(void *send, uint64_t position) {
    rp_send_set_resume_point(send, RESUME_AT_MANAGER, position);
}

static rp_status refuse_overload(rp_send *send, const rp_msg_send *request) {
    return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while");
}

/* No other request waits behind it, even if the manager's ring is full (diverted.h). */
static rp_status divert(rp_send *send, const uint8_t *data, uint32_t size) {
    uint64_t connection = ((const rp_msg_send *)data)->origin.connection;
    int is_pipelined = rp_diverted_has(&send->diverted, connection);
    if (rp_diverted_put(&send->diverted, data, size, set_resume_point_diverted, send) != RP_OK)
        return refuse_overload(send, (const rp_msg_send *)data);
    if (is_pipelined) rp_send_steer(send, connection, RP_REPLY_PAUSE);
    count(send, RP_COUNT_SLOW, 1);
    return RP_OK;
}

void rp_send_refuse_waiting(rp_send *send, int all) {
    for (const rp_msg_send *first; (first = rp_diverted_first(&send->diverted));
         rp_diverted_drop_first(&send->diverted)) {
        int is_kept =
            first->flags & RP_REQUEST_ONEWAY || !rp_admission_is_too_old(&send->admission, first->origin.received_ns);
        if (!all && is_kept) return;
        if (refuse_overload(send, first) != RP_OK) return;
    }
}

static int is_for_manager(const rp_send *send, const rp_msg_send *request, const rp_topic *topic) {
    if (request->flags & RP_REQUEST_RESOLVED) return 0;
    return !topic || request->flags & (RP_REQUEST_SPECIAL | RP_REQUEST_UNCHECKED) ||
           topic->flags & (RP_TOPIC_NO_SEND | RP_TOPIC_SLOW) ||
           (request->flags & RP_REQUEST_HALF && !rp_send_takes_halves(send)) ||
           request->body_size > send->config.max_message_size || !(send->permission & topic->perm & RP_PERM_WRITE) ||
           rp_diverted_has(&send->diverted, request->origin.connection);
}

/* maxMessageSize bounds what clients send. An internal put (delayed, retried) was within the limit when its client sent
 * it: only the record format and the size of a CommitLog file bound it. */
static int is_too_long(const rp_send *send, const rp_msg_send *request) {
    return !rp_is_internal(request->origin.connection) && request->body_size > send->config.max_message_size;
}

/* Make room for the ids of so many messages. 0: no memory. */
static int reserve_ids(rp_send *send, uint32_t messages) {
    if (messages <= send->ids_capacity / RP_MESSAGE_ID_MAX) return 1;
    uint8_t *ids = realloc(send->ids, (uint64_t)messages * RP_MESSAGE_ID_MAX);
    if (!ids) return 0;
    send->ids = ids;
    send->ids_capacity = messages * RP_MESSAGE_ID_MAX;
    return 1;
}

static rp_status append(rp_send *send, const rp_put *put) {
    const rp_msg_send *request = put->request;
    uint64_t total;
    uint32_t messages = rp_put_measure(put, &total);
    if (messages > RP_BATCH_ENTRIES_MAX)
        return refuse(send, request, RP_RESPONSE_MESSAGE_ILLEGAL,
                      "the batch has more than 32768 messages; send them in several batches");
    if (!messages || is_too_long(send, request))
        return refuse(send, request, RP_RESPONSE_MESSAGE_ILLEGAL,
                      "the message is illegal: malformed batch, body too long, topic or properties beyond the limits, "
                      "or a zero byte in the properties");
    if (!reserve_ids(send, messages))
        return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR, "no memory for the message ids of this batch");
    int is_oneway = request->flags & RP_REQUEST_ONEWAY && !rp_is_internal(request->origin.connection);
    rp_wait wait = {.received_ns = request->origin.received_ns,
                    .connection = request->origin.connection,
                    .token = request->token,
                    .opaque = request->opaque,
                    .queue_id = put->answer_queue_id,
                    .flags = request->flags,
                    .store_timestamp_ms = put->store_timestamp_ms,
                    .ids = send->ids,
                    .ids_size = messages * RP_MESSAGE_ID_MAX};
    rp_send_plan_wait(send, &wait, !is_oneway && !(request->flags & RP_REQUEST_NO_WAIT), total);
    if (!rp_send_has_room(send, &wait)) return RP_FULL;

    rp_stored stored;
    rp_status status = rp_put_append(send->log, put, total, messages, set_resume_point_stored, send, &stored);
    if (status != RP_OK) {
        int32_t code;
        const char *remark = rp_send_append_fault(send, status, &code);
        return refuse(send, request, code, remark);
    }
    rp_send_count_put(send, put, messages, total);
    wait.need_phy_offset = stored.end_phy_offset;
    wait.phy_offset = stored.phy_offset;
    wait.queue_offset = stored.queue_offset;
    wait.size = stored.size;
    rp_served line;
    wait.served = line_of(send, request, put->answer_queue_id, (int64_t)stored.queue_offset, &line);
    if (is_oneway) {
        rp_request_log_write(&send->request_log, wait.served, wait.code);
        return RP_OK;
    }
    wait.ids_size = rp_put_message_ids(put, &stored, send->ids);
    /* The message is stored: if there is no memory for the reply, the client repeats the request, but we must not store
     * it again. */
    if (rp_send_answer_or_wait(send, &wait) != RP_OK) count(send, RP_COUNT_STALLS, 1);
    return RP_OK;
}

/* A send with a property that asks for a later delivery. */
static rp_status append_timer(rp_send *send, rp_put *put, const uint8_t *data, uint32_t size) {
    rp_timed timed;
    switch (rp_send_timer_accept(send, put, &timed)) {
        case RP_OK: return append(send, put);
        case RP_NOT_FOUND: /* the manager creates the timer topic */
            if (!(put->request->flags & RP_REQUEST_RESOLVED)) return divert(send, data, size);
            return refuse(send, put->request, RP_RESPONSE_SYSTEM_ERROR, "the timer topic is missing");
        case RP_FULL:
            return refuse(send, put->request, RP_RESPONSE_SYSTEM_BUSY,
                          "[TIMER_SPAN]system busy, too many timers since the oldest pending one");
        default: return refuse(send, put->request, RP_RESPONSE_MESSAGE_ILLEGAL, timed.fault);
    }
}

/* A send with a delay level. */
static rp_status append_delayed(rp_send *send, rp_put *put, const uint8_t *data, uint32_t size) {
    uint8_t tail[RP_DELAY_TAIL_MAX];
    return rp_send_delay_accept(send, put, tail) == RP_OK ? append(send, put) : divert(send, data, size);
}

/* Return the reason why this broker takes no sends at all; NULL: it does. */
static const char *role_refusal(const rp_send *send) {
    if (send->config.is_slave) return REFUSED_BY_SLAVE;
    return send->config.member && !send->orders.takes_sends ? rp_send_refusal(send) : NULL;
}

/* Have the selector close the connection of a request that gets no answer. RP_OK, RP_FULL, RP_NO_MEMORY. */
static rp_status close_connection(rp_send *send, const rp_msg_send *request) {
    rp_ring_writer *selector = rp_send_ring_to(send, request->origin.connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    return rp_flags_send(selector, request->origin.connection, RP_REPLY_CLOSE_AFTER);
}

/* A client's send that the role does not allow to store. A planned change of the master takes about a second: until it
 * is over a send stays in the ring (RP_FULL), or goes to the manager, which passes it on to the master. One that comes
 * when the process tree of a former master is about to end has no answer: its connection closes, and does not outlive
 * the tree as others do. Go's client repeats such a send after its timeout, and would repeat none that is refused. If
 * the tree does not end, requests are read again (rp_send_read_orders), and sends have answers. */
static rp_status turn_away(rp_send *send, const uint8_t *data, uint32_t size, const char *fault) {
    const rp_msg_send *request = (const rp_msg_send *)data;
    int is_resolved = rp_is_internal(request->origin.connection) || request->flags & RP_REQUEST_RESOLVED;
    if (send->config.member && !is_resolved) {
        if (!send->config.is_slave && send->orders.role == RP_ROLE_SLAVE && send->orders.keeps_sends &&
            rp_load_acquire32(&send->config.member->intake_paused))
            return close_connection(send, request);
        uint64_t now_ns = send->admission.now_ns, received_ns = request->origin.received_ns;
        int is_kept = send->orders.keeps_sends && now_ns < received_ns + KEEP_NS;
        if (is_kept && !send->config.is_slave) return RP_FULL;
        if (is_kept && !(request->version & RP_VERSION_PASSED_ON) &&
            rp_diverted_put(&send->diverted, data, size, set_resume_point_diverted, send) == RP_OK) {
            count(send, RP_COUNT_SLOW, 1);
            return RP_OK;
        }
    }
    return refuse(send, request, RP_RESPONSE_SERVICE_NOT_AVAILABLE, fault);
}

/* Answer an internal put that has nothing to store: its delayed message was delivered before, or must not be tried
 * again, or the timer that it is to end cannot be ended. Returns 0 if it is to be stored; then a delivery has begun.
 * Otherwise *status is that of the answer. */
static int answer_without_storing(rp_send *send, const rp_put *put, rp_status *status) {
    if (!put->is_delivery && !put->ends_timer) return 0;
    rp_wait wait = {.token = put->request->token, .queue_id = put->request->queue_id};
    int32_t code = put->ends_timer ? rp_send_timer_check_change(send, put, &wait.timer_state) : RP_RESPONSE_SUCCESS;
    int is_delivered = put->is_delivery && rp_delivery_marks_has(send->config.marks, &put->delivery);
    if (!is_delivered && put->is_delivery && !rp_delivery_marks_begin(send->config.marks, &put->delivery))
        code = RP_RESPONSE_MESSAGE_ILLEGAL;
    if (!is_delivered && code == RP_RESPONSE_SUCCESS) return 0;
    *status = rp_send_put_result(send, &wait, code);
    return 1;
}

/* The remark if this send of `size` bytes has waited too long, or dispatch is too far behind; NULL: neither. */
static const char *overload(rp_send *send, const rp_msg_send *request, uint32_t size) {
    if (request->flags & RP_REQUEST_RESOLVED) return NULL;
    uint64_t received_ns = request->origin.received_ns;
    uint64_t others = rp_ring_depth(send->input_rings[send->current_input]) / size; /* an estimate, for the remark */
    const char *busy = rp_admission_lag_refusal(&send->admission, received_ns, others);
    /* Nobody waits for a oneway send and nobody repeats it: to refuse it by age would only lose it. */
    if (busy || !send->config.fast_failure || request->flags & RP_REQUEST_ONEWAY) return busy;
    return rp_admission_refusal(&send->admission, received_ns, others);
}

/* Set the queue of a message; put->queue stays NULL if there is none. `topic`: NULL, it is not known here. */
static void choose_queue(rp_send *send, const rp_topic *topic, rp_put *put) {
    const rp_msg_send *request = put->request;
    if (topic) put->queue = rp_topic_choose(topic, request->queue_id, &send->random, &put->queue_id);
    if (put->queue || !(request->flags & RP_REQUEST_RESOLVED) || request->queue_id < 0) return;
    /* Handed back to a restarted worker whose tables come later in the ring. */
    put->queue_id = request->queue_id;
    put->queue = rp_control_find(send->config.block, put->topic, request->topic_size, (uint32_t)put->queue_id);
    if (put->queue && put->queue->state != RP_QUEUE_LIVE) put->queue = NULL;
}

/* Add to a message what the broker adds to all of its kind; direct a half message to its queue. */
static void complete(rp_send *send, const rp_topic *topic, rp_put *put) {
    uint32_t flags = put->request->flags;
    put->answer_queue_id = put->queue_id;
    if (flags & RP_REQUEST_ADD_CLUSTER) {
        put->properties_tail = (const uint8_t *)send->config.cluster_property;
        put->properties_tail_size = send->cluster_size;
    }
    if (flags & RP_REQUEST_HALF && !(flags & RP_REQUEST_RESOLVED)) rp_send_redirect_half(send, put);
    put->extra_sys_flag = topic && topic->flags & RP_TOPIC_MULTI_TAG ? RP_SYS_FLAG_MULTI_TAGS : 0;
    put->store_host = send->config.store_host;
    /* The manager found it due by the clock after this pass had looked at it. */
    if (put->is_delivery) rp_send_look_at_clock(send);
    put->store_timestamp_ms = send->now_ms;
}

static rp_status append_half(rp_send *send, const rp_put *put) {
    if (!rp_half_states_has_room(send->config.half_states, put->queue->next_offset))
        return refuse(send, put->request, RP_RESPONSE_SYSTEM_BUSY,
                      "[HALF_WINDOW]system busy, the oldest open transaction is too far behind: see the metrics of "
                      "transactions");
    count(send, RP_COUNT_HALF_MESSAGES, 1);
    return append(send, put);
}

/* Store it, leave it to the manager, or refuse it. */
static rp_status take(rp_send *send, rp_put *put, const uint8_t *data, uint32_t size) {
    const rp_msg_send *request = put->request;
    const char *fault;
    const rp_topic *topic = rp_map_get(&send->topics, put->topic, request->topic_size);
    if ((fault = overload(send, request, size))) return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, fault);
    if (is_for_manager(send, request, topic)) return divert(send, data, size);
    choose_queue(send, topic, put);
    if (!put->queue && !(request->flags & RP_REQUEST_RESOLVED)) return divert(send, data, size);
    if (!put->queue)
        return refuse(send, request,
                      rp_is_internal(request->origin.connection) ? RP_RESPONSE_TOPIC_NOT_EXIST
                                                                 : RP_RESPONSE_SYSTEM_ERROR,
                      "the topic or queue of this message is gone");
    if ((fault = rp_send_refusal(send))) return refuse(send, request, RP_RESPONSE_SERVICE_NOT_AVAILABLE, fault);
    complete(send, topic, put);
    if ((request->flags & (RP_REQUEST_DELAY | RP_REQUEST_RESOLVED)) == RP_REQUEST_DELAY)
        return append_delayed(send, put, data, size);
    if (request->flags & RP_REQUEST_TIMER) return append_timer(send, put, data, size);
    return put->queue == send->half_queue && send->half_records ? append_half(send, put) : append(send, put);
}

rp_status rp_send_take(rp_send *send, const uint8_t *data, uint32_t size) {
    const char *fault;
    rp_status status;
    rp_put put;
    if (!rp_put_open(data, size, &put)) return RP_OK;
    put.is_delivery &= send->config.marks != NULL;
    if ((fault = role_refusal(send))) return turn_away(send, data, size, fault);
    if (answer_without_storing(send, &put, &status)) return status;
    status = take(send, &put, data, size);
    if (put.is_delivery) rp_delivery_marks_end(send->config.marks, &put.delivery);
    return status;
}
