/* Ends of transactions (docs/adr/0100).
 *
 * The end of a half message appends the committed message and an op message, or the op message alone, in one published
 * step: a killed worker leaves all of it or nothing. Its state says whether it has ended, so that a repeated end stores
 * nothing. A half message that is not in memory is read by a thread first (docs/adr/0100). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/crash_point.h"
#include "base/endian.h"
#include "base/utf8.h"
#include "wire/codes.h"
#include "store/transactions/half_states.h"
#include "workers/send/send_private.h"

static const char OP_PROPERTIES[] = "WAIT\x01true\x02TAGS\x01"
                                    "d";

enum {
    HEAD = 4, /* bytes: the size of a record */
    GROUP_MAX = 512, /* bytes of a producer group in an end that is for another place */
    FIRST_STORED_SIZE = 48, /* bytes of that property */
    RECORD_ROOM = 64 << 10 /* bytes of a record besides its body, at the most */
};

/* An END_TRANSACTION, and the half message that it names. */
struct end {
    const rp_msg_end_transaction *request;
    rp_record_view half;  /* points into the log */
    rp_queue *queue;      /* where the message goes; NULL: nowhere */
    int32_t queue_id;
    const uint8_t *topic;
    uint32_t topic_size;
    int has_no_input; /* it is not the request at the head of a ring */
    char first_stored[FIRST_STORED_SIZE]; /* of a renewal: a property that it gets */
};

/* An END_TRANSACTION for the place where its half message was stored again. */
struct moved_end {
    rp_msg_end_transaction request;
    uint8_t group[GROUP_MAX];
};

/* The line of the request log for an end that is answered; NULL: it has none. */
static rp_served *line_of(rp_send *send, const rp_msg_end_transaction *request, rp_served *room) {
    if (rp_is_internal(request->origin.connection) || !rp_request_log_takes(&send->request_log)) return NULL;
    const uint8_t *group = (const uint8_t *)(request + 1);
    rp_served_fill(room,
                   &(rp_msg_served){.origin = request->origin,
                                    .queue_offset = request->queue_offset,
                                    .opaque = request->opaque,
                                    .code = request->code,
                                    .queue_id = -1,
                                    .group_size = request->group_size},
                   group, group);
    return room;
}

static rp_status refuse(rp_send *send, const rp_msg_end_transaction *request, int32_t code, const char *remark) {
    rp_served line;
    rp_refused refused = {
        .origin = &request->origin, .token = request->token, .opaque = request->opaque, .flags = request->flags};
    count(send, code == RP_RESPONSE_SYSTEM_BUSY ? RP_COUNT_BUSY : RP_COUNT_ENDS_REFUSED, 1);
    rp_status status = rp_send_refuse(send, &refused, code, remark);
    if (status == RP_OK) rp_request_log_write(&send->request_log, line_of(send, request, &line), code);
    return status;
}

/* A property of the half message; the size is 0 if there is none. */
static uint32_t property(const struct end *end, const char *name, const uint8_t **value) {
    return rp_property_find(end->half.properties, end->half.properties_size, name, value);
}

static const char HALF_UNKNOWN[] = "[HALF_NOT_DISPATCHED]system busy, the half message is not in its queue yet; the "
                                   "broker will check this transaction again";
static const char MISSING[] = "Find prepared transaction message failed";
static const char WRONG_OFFSET[] = "The transaction state table offset wrong";

/* 1 if the half queue has its message at the place in the log that the request names. What is there may look like a
 * half message without being one: bodies hold what their senders like. NULL, or the remark of the refusal. */
static const char *find_place(rp_send *send, const rp_msg_end_transaction *request) {
    uint64_t offset = (uint64_t)request->queue_offset, phy_offset;
    if (request->phy_offset < 0 || (uint64_t)request->phy_offset >= send->control->published_phy_offset) return MISSING;
    if (!send->half_queue || request->queue_offset < 0 || offset >= send->half_queue->next_offset) return WRONG_OFFSET;
    switch (rp_half_places_find(&send->half_places, send->half_queue, offset, &phy_offset)) {
        case RP_OK: return phy_offset == (uint64_t)request->phy_offset ? NULL : MISSING;
        case RP_NOT_FOUND: return MISSING;
        default: return HALF_UNKNOWN;
    }
}

/* Read the half message at the place of its unit. NULL: it is there, and end->half borrows it until
 * rp_log_view_release; else the remark of the refusal. */
static const char *look_up(rp_send *send, struct end *end) {
    uint64_t offset = (uint64_t)end->request->phy_offset;
    const char *fault = find_place(send, end->request);
    if (fault) return fault;
    if (!rp_log_view_record(send->half_records, offset, send->control->published_phy_offset, &end->half))
        return MISSING;
    if (!rp_text_is(end->half.topic, end->half.topic_size, RP_HALF_TOPIC)) fault = MISSING;
    const uint8_t *group = NULL;
    uint32_t group_size = fault ? 0 : property(end, "PGROUP", &group);
    int is_ours = rp_is_internal(end->request->origin.connection);
    if (!fault && !is_ours &&
        (group_size != end->request->group_size || memcmp(group, end->request + 1, group_size) != 0))
        fault = "The producer group wrong";
    if (!fault && end->half.queue_offset != (uint64_t)end->request->queue_offset) fault = WRONG_OFFSET;
    if (fault) rp_log_view_release(send->half_records, offset);
    return fault;
}

/* Find the queue of the committed or discarded message. If the topic has fewer queues by now, it goes to another. */
static int find_queue(rp_send *send, struct end *end) {
    if (end->request->action == RP_END_RENEW) {
        end->topic = (const uint8_t *)RP_HALF_TOPIC;
        end->topic_size = sizeof RP_HALF_TOPIC - 1;
        end->queue = send->half_queue;
        return 1;
    }
    end->topic = (const uint8_t *)RP_DISCARD_TOPIC;
    end->topic_size = sizeof RP_DISCARD_TOPIC - 1;
    if (end->request->action == RP_END_COMMIT &&
        !rp_real_queue(end->half.properties, end->half.properties_size, &end->topic, &end->topic_size, &end->queue_id))
        return 0;
    const rp_topic *topic = rp_map_get(&send->topics, end->topic, end->topic_size);
    if (!topic || !topic->queue_count) return 0;
    if (end->request->action == RP_END_COMMIT && topic->flags & RP_TOPIC_NO_SEND) return 0;
    if ((uint32_t)end->queue_id >= topic->queue_count)
        end->queue_id = (int32_t)((uint32_t)end->queue_id % topic->queue_count);
    end->queue = topic->queues[end->queue_id];
    return end->queue != NULL;
}

/* The copy of a half message carries when that was stored first: its age counts from then. Without room for the
 * property it counts anew. */
static void add_first_stored(struct end *end, rp_record *record) {
    const uint8_t *known;
    if (property(end, RP_FIRST_STORED, &known)) return;
    record->properties_tail = (const uint8_t *)end->first_stored;
    record->properties_tail_size =
        (uint32_t)snprintf(end->first_stored, sizeof end->first_stored, RP_FIRST_STORED "\x01%lld",
                           (long long)end->half.store_timestamp_ms);
    if (!rp_record_size(record)) record->properties_tail_size = 0;
}

static void message_of(const rp_send *send, struct end *end, rp_record *record) {
    const rp_record_view *half = &end->half;
    int is_commit = end->request->action == RP_END_COMMIT, is_renewal = end->request->action == RP_END_RENEW;
    *record = (rp_record){.queue_id = end->queue_id,
                          .flag = half->flag,
                          .queue_offset = end->queue->next_offset,
                          .sys_flag = half->sys_flag | (is_commit ? RP_SYS_FLAG_TRANSACTION_COMMIT : 0),
                          .reconsume_times = half->reconsume_times,
                          .born_timestamp_ms = half->born_timestamp_ms,
                          .store_timestamp_ms = send->now_ms,
                          .prepared_transaction_offset = is_commit || is_renewal ? (int64_t)half->phy_offset : 0,
                          .born_host = half->born_host,
                          .store_host = half->store_host,
                          .body = half->body,
                          .topic = end->topic,
                          .properties = half->properties,
                          .body_size = half->body_size,
                          .topic_size = end->topic_size,
                          .properties_size = half->properties_size};
    if (is_renewal) add_first_stored(end, record);
}

static void op_of(const rp_send *send, const uint8_t *body, uint32_t body_size, rp_record *record) {
    *record = (rp_record){.queue_offset = send->op_queue->next_offset,
                          .born_timestamp_ms = send->now_ms,
                          .store_timestamp_ms = send->now_ms,
                          .born_host = send->config.store_host,
                          .store_host = send->config.store_host,
                          .body = body,
                          .topic = (const uint8_t *)RP_OP_TOPIC,
                          .properties = (const uint8_t *)OP_PROPERTIES,
                          .body_size = body_size,
                          .topic_size = sizeof RP_OP_TOPIC - 1,
                          .properties_size = sizeof OP_PROPERTIES - 1};
}

static int32_t state_after(int32_t action) {
    if (action == RP_END_COMMIT) return RP_HALF_COMMITTED;
    return action == RP_END_ROLLBACK ? RP_HALF_ROLLED_BACK : RP_HALF_ENDED;
}

static uint32_t counter_of(int32_t action) {
    if (action == RP_END_COMMIT) return RP_COUNT_TRANSACTIONS_COMMITTED;
    if (action == RP_END_RENEW) return RP_COUNT_TRANSACTIONS_RENEWED;
    return action == RP_END_ROLLBACK ? RP_COUNT_TRANSACTIONS_ROLLED_BACK : RP_COUNT_TRANSACTIONS_DISCARDED;
}

static void count_record(rp_send *send, const rp_record *record) {
    rp_send_count_stored(send, 1, rp_record_size(record), record->queue_id, record->topic, record->topic_size);
}

/* The half message at the new place is about to be published: it is open, and ends there. */
static void renew(rp_send *send, const struct end *end, const rp_record *copy, uint64_t end_phy_offset) {
    rp_half_renewal renewal = {(uint64_t)end->request->queue_offset, end->half.phy_offset, copy->queue_offset,
                               copy->phy_offset, end_phy_offset};
    rp_half_states_add(send->config.half_states, copy->queue_offset);
    rp_half_places_add(&send->half_places, copy->queue_offset, copy->phy_offset);
    rp_half_states_renew(send->config.half_states, &renewal);
}

/* Append the message (if there is a queue for it) and the op message. RP_OK, or the status of rp_commitlog_reserve. */
static rp_status append(rp_send *send, struct end *end, uint64_t *end_phy_offset) {
    rp_record message, op;
    uint8_t body[RP_OP_BODY_MAX + 1], *at;
    uint64_t phy_offset, offset = (uint64_t)end->request->queue_offset;
    int body_size = snprintf((char *)body, sizeof body, "%lld", (long long)offset);
    op_of(send, body, (uint32_t)body_size, &op);
    uint32_t message_size = 0, op_size = rp_record_size(&op);
    if (end->queue) {
        message_of(send, end, &message);
        if (!(message_size = rp_record_size(&message)) || message_size > UINT32_MAX - op_size) return RP_TOO_LARGE;
    }
    rp_status status = rp_commitlog_reserve(send->log, message_size + op_size, &at, &phy_offset);
    if (status != RP_OK) return status;
    if (end->queue) {
        message.phy_offset = phy_offset;
        rp_record_encode(&message, at);
        RP_CRASH_POINT("end.message");
    }
    op.phy_offset = phy_offset + message_size;
    rp_record_encode(&op, at + message_size);
    *end_phy_offset = op.phy_offset + op_size;
    if (!end->has_no_input) rp_send_set_resume_point(send, RESUME_AT_LOG, *end_phy_offset);
    RP_CRASH_POINT("end.records");
    if (end->request->action == RP_END_RENEW) renew(send, end, &message, *end_phy_offset);
    rp_half_states_begin(send->config.half_states, offset, state_after(end->request->action), *end_phy_offset);
    RP_CRASH_POINT("end.mark");
    rp_commitlog_publish(send->log, message_size + op_size, send->now_ms);
    RP_CRASH_POINT("end.published");
    rp_half_states_complete(send->config.half_states);
    RP_CRASH_POINT("end.complete");
    if (end->queue) {
        __atomic_store_n(&end->queue->next_offset, message.queue_offset + 1, __ATOMIC_RELAXED);
        send->is_awaited |= __atomic_load_n(&end->queue->watched, __ATOMIC_RELAXED) != 0;
        count_record(send, &message);
    }
    __atomic_store_n(&send->op_queue->next_offset, op.queue_offset + 1, __ATOMIC_RELAXED);
    count_record(send, &op);
    send->appended++;
    return RP_OK;
}

void rp_send_store_missing_ops(rp_send *send) {
    uint64_t offset, end_phy_offset;
    while (send->op_queue && !send->config.is_slave && rp_half_states_missing_op(send->config.half_states, &offset) &&
           !rp_send_refusal(send)) {
        rp_msg_end_transaction request = {.action = RP_END_COMMIT, .queue_offset = (int64_t)offset};
        struct end end = {.request = &request, .has_no_input = 1}; /* without a queue: the message is stored already */
        if (append(send, &end, &end_phy_offset) != RP_OK) return; /* the next pass tries again */
    }
}

/* Answer an end that stores nothing because the half message is not open. */
static rp_status answer_ended(rp_send *send, const rp_msg_end_transaction *request, int32_t state) {
    rp_wait wait = {.connection = request->origin.connection,
                    .token = request->token,
                    .opaque = request->opaque,
                    .flags = request->flags | RP_REQUEST_END};
    uint64_t phy_offset;
    rp_served line;
    if (request->action == RP_END_RENEW) /* repeated: its result was lost with a send worker */
        rp_half_states_renewed(send->config.half_states, (uint64_t)request->queue_offset, (uint64_t)request->phy_offset,
                               &wait.queue_offset, &phy_offset);
    if (state == state_after(request->action)) {
        wait.served = line_of(send, request, &line);
        return rp_send_answer(send, &wait, RP_RESPONSE_SUCCESS);
    }
    return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR,
                  state == RP_HALF_COMMITTED     ? "the transaction has been committed before"
                  : state == RP_HALF_ROLLED_BACK ? "the transaction has been rolled back before"
                                                 : "the transaction has ended before, or was discarded");
}

static rp_status finish(rp_send *send, struct end *end) {
    const rp_msg_end_transaction *request = end->request;
    rp_wait wait = {.received_ns = request->origin.received_ns,
                    .connection = request->origin.connection,
                    .token = request->token,
                    .opaque = request->opaque,
                    .flags = request->flags | RP_REQUEST_END,
                    .queue_offset = end->queue ? end->queue->next_offset : 0};
    rp_send_plan_wait(send, &wait, !(request->flags & RP_REQUEST_ONEWAY), 0);
    if (!rp_send_has_room(send, &wait)) return RP_FULL;
    rp_status status = append(send, end, &wait.need_phy_offset);
    if (status != RP_OK) {
        int32_t code;
        const char *remark = rp_send_append_fault(send, status, &code);
        return refuse(send, request, code, remark);
    }
    rp_served line;
    wait.served = line_of(send, request, &line);
    count(send, counter_of(request->action), 1);
    if (rp_send_answer_or_wait(send, &wait) != RP_OK)
        count(send, RP_COUNT_STALLS, 1); /* stored: without memory for the reply, the client repeats it */
    return RP_OK;
}

/* The queue offset of an end that needs no look at its record was checked by the manager. */
static rp_status serve(rp_send *send, struct end *end) {
    const rp_msg_end_transaction *request = end->request;
    if (!send->half_queue || !send->op_queue || request->queue_offset < 0 ||
        (uint64_t)request->queue_offset >= send->half_queue->next_offset)
        return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR, WRONG_OFFSET);
    int32_t state = rp_half_states_of(send->config.half_states, (uint64_t)request->queue_offset);
    if (state != RP_HALF_OPEN) return answer_ended(send, request, state);
    const char *fault = rp_send_refusal(send);
    if (fault) return refuse(send, request, RP_RESPONSE_SERVICE_NOT_AVAILABLE, fault);
    if (request->action == RP_END_RENEW &&
        !rp_half_states_has_room(send->config.half_states, send->half_queue->next_offset))
        return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, "");
    if (request->action != RP_END_ROLLBACK && request->action != RP_END_UNREADABLE && !find_queue(send, end))
        return refuse(send, request, RP_RESPONSE_TOPIC_NOT_EXIST,
                      "the topic of the transaction does not exist any more: create it, or it will be discarded");
    return finish(send, end);
}

/* Look the half message up, and end it. */
static rp_status look_up_and_serve(rp_send *send, struct end *end) {
    const char *fault = look_up(send, end);
    if (fault)
        return refuse(send, end->request, fault == HALF_UNKNOWN ? RP_RESPONSE_SYSTEM_BUSY : RP_RESPONSE_SYSTEM_ERROR,
                      fault);
    rp_status status = serve(send, end);
    rp_log_view_release(send->half_records, (uint64_t)end->request->phy_offset);
    return status;
}

/* Bytes of the largest record that a client can store. */
static uint64_t record_max(const rp_send *send) { return (uint64_t)send->config.max_message_size + RECORD_ROOM; }

/* 1 if the end would wait for the disk. The manager has read the half messages that it ends. An end that names another
 * place than its unit does is refused without a look at that place. */
static int is_on_disk(rp_send *send, const rp_msg_end_transaction *request) {
    uint64_t phy_offset = (uint64_t)request->phy_offset, offset = (uint64_t)request->queue_offset;
    uint64_t file_size = send->control->commitlog_file_size, rest = file_size - phy_offset % file_size;
    int is_ours = rp_is_internal(request->origin.connection);
    if (is_ours || phy_offset >= send->control->published_phy_offset || !send->half_queue ||
        rp_half_places_is_latest(&send->half_places, offset))
        return 0;
    if (!rp_half_places_in_memory(&send->half_places, send->half_queue, offset)) return 1;
    if (find_place(send, request)) return 0;
    const uint8_t *image = rp_log_view_acquire(send->half_records, phy_offset, rest);
    if (!image) return 0;
    int in_memory = rest < HEAD || send->config.in_memory(image, HEAD);
    uint64_t size = in_memory && rest >= HEAD ? rp_load32(image) : 0;
    if (in_memory && size > HEAD && size <= rest && size < record_max(send)) /* it may be damaged */
        in_memory = send->config.in_memory(image, size);
    rp_log_view_release(send->half_records, phy_offset);
    return !in_memory;
}

static rp_status read_first(rp_send *send, const rp_msg_end_transaction *request) {
    if (rp_half_reads_add(send->half_reads, send->half_queue, request, record_max(send)) == RP_OK) return RP_OK;
    return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY,
                  "[HALF_READS]system busy, too many half messages are being read from the disk; the broker will check "
                  "this transaction again");
}

uint32_t rp_send_serve_read_ends(rp_send *send) {
    uint32_t served = 0;
    for (const rp_msg_end_transaction *request; (request = rp_half_reads_first(send->half_reads)); served++) {
        struct end end = {.request = request, .has_no_input = 1};
        rp_status status = look_up_and_serve(send, &end);
        if (status == RP_FULL || status == RP_NO_MEMORY) break; /* the next pass tries again */
        rp_half_reads_drop_first(send->half_reads);
    }
    return served;
}

/* The end for the place where the half message was stored again, if it was; else the end as it came. */
static const rp_msg_end_transaction *follow(const rp_send *send, const rp_msg_end_transaction *request,
                                            struct moved_end *moved) {
    uint64_t offset = (uint64_t)request->queue_offset, phy_offset = (uint64_t)request->phy_offset;
    if (rp_is_internal(request->origin.connection) || request->group_size > sizeof moved->group ||
        rp_half_states_of(send->config.half_states, offset) == RP_HALF_OPEN ||
        !rp_half_states_renewed(send->config.half_states, offset, phy_offset, &offset, &phy_offset))
        return request;
    memcpy(moved, request, sizeof *request + request->group_size);
    moved->request.queue_offset = (int64_t)offset;
    moved->request.phy_offset = (int64_t)phy_offset;
    return &moved->request;
}

rp_status rp_send_end_transaction(rp_send *send, const uint8_t *data, uint32_t size) {
    struct end end = {.request = (const rp_msg_end_transaction *)data};
    struct moved_end moved;
    const rp_msg_end_transaction *request = end.request;
    if (size < sizeof *request || size - sizeof *request != request->group_size) return RP_OK;
    if (send->config.is_slave) return refuse(send, request, RP_RESPONSE_SLAVE_NOT_AVAILABLE, "");
    if (request->action == 0) return RP_OK; /* the local transaction is not decided: the check asks again */
    const char *busy = rp_admission_lag_refusal(&send->admission, request->origin.received_ns, 0);
    if (busy) return refuse(send, request, RP_RESPONSE_SYSTEM_BUSY, busy);
    if (!send->half_records) return refuse(send, request, RP_RESPONSE_SYSTEM_ERROR, MISSING);
    if (request->action == RP_END_UNREADABLE) return serve(send, &end);
    end.request = request = follow(send, request, &moved);
    return is_on_disk(send, request) ? read_first(send, request) : look_up_and_serve(send, &end);
}

/* Half messages (docs/adr/0100).
 *
 * A half message keeps its topic and queue in REAL_TOPIC and REAL_QID, and is stored in the half queue. send_end.c ends
 * it. */

enum { LOG_MAPPINGS = 4 };

rp_status rp_send_halves_open(rp_send *send) {
    if (!send->config.half_states) return RP_OK;
    rp_half_states_open(send->config.half_states, send->control->published_phy_offset);
    send->half_tail = malloc(HALF_TAIL_MAX + send->cluster_size);
    send->half_records =
        rp_log_view_open(send->config.commitlog_directory, send->control->commitlog_file_size, LOG_MAPPINGS);
    send->half_reads = rp_half_reads_open(send->config.worker, send->config.block, send->config.commitlog_directory,
                                          send->config.consume_queue_directory, send->config.consume_queue_file_size);
    rp_send_find_half_queues(send);
    if (!send->half_tail || !send->half_records || !send->half_reads) return RP_NO_MEMORY;
    return rp_half_places_open(&send->half_places, send->config.block, send->config.consume_queue_directory,
                               send->config.consume_queue_file_size);
}

void rp_send_halves_close(rp_send *send) {
    rp_half_reads_close(send->half_reads);
    rp_half_places_close(&send->half_places);
    if (send->half_records) rp_log_view_close(send->half_records);
    free(send->half_tail);
}

void rp_send_halves_release(rp_send *send) {
    if (!send->half_records) return;
    rp_log_view_trim(send->half_records, rp_load_acquire(&send->control->min_phy_offset));
    rp_half_places_release(&send->half_places);
}

static rp_queue *live_queue(const rp_send *send, const char *topic) {
    rp_queue *queue = rp_control_find(send->config.block, (const uint8_t *)topic, (uint32_t)strlen(topic), 0);
    return queue && queue->state == RP_QUEUE_LIVE ? queue : NULL;
}

void rp_send_find_half_queues(rp_send *send) {
    send->half_queue = live_queue(send, RP_HALF_TOPIC);
    send->op_queue = live_queue(send, RP_OP_TOPIC);
}

int rp_send_takes_halves(const rp_send *send) {
    return send->half_records && !send->rejects_transactions && send->half_queue && send->op_queue;
}

void rp_send_redirect_half(rp_send *send, rp_put *put) {
    const rp_msg_send *request = put->request;
    const char *wait = !(request->flags & RP_REQUEST_HAS_WAIT) ? ""
                       : request->flags & RP_REQUEST_NO_WAIT   ? "WAIT\x01"
                                                                 "false\x02"
                                                               : "WAIT\x01true\x02";
    int size =
        snprintf((char *)send->half_tail, HALF_TAIL_MAX, RP_REAL_TOPIC "\x01%.*s\x02" RP_REAL_QUEUE_ID "\x01%d\x02%s",
                 (int)put->topic_size, (const char *)put->topic, (int)put->queue_id, wait);
    memcpy(send->half_tail + size, put->properties_tail, put->properties_tail_size);
    put->properties_tail = send->half_tail;
    put->properties_tail_size += (uint32_t)size;
    put->topic = (const uint8_t *)RP_HALF_TOPIC;
    put->topic_size = sizeof RP_HALF_TOPIC - 1;
    put->queue = send->half_queue;
    put->queue_id = 0;
    put->dropped_sys_flag = RP_TRANSACTION_MASK;
}
