/* Answers of the send worker: to connections through the ring of their selector, to the manager as PUT_RESULT. */
#include <stdlib.h>
#include "wire/codes.h"
#include "ipc/resume.h"
#include "ipc/worker_messages.h"
#include "workers/send/send_private.h"
#include "workers/shared/replies.h"

enum { REPLY_BOUND = 512 /* a send reply without ids and region */ };

uint32_t rp_send_reply_bound(uint32_t region_size, uint32_t message_ids_size) {
    return (uint32_t)sizeof(rp_msg_reply) + REPLY_BOUND + region_size + message_ids_size;
}

/* Write the response for `connection`: built in the ring if it is small and there is room, else in a copy. RP_OK,
 * RP_FULL, RP_NO_MEMORY. */
static rp_status write_reply(rp_ring_writer *selector, uint64_t connection, const rp_send_reply *reply) {
    uint32_t bound = rp_send_reply_bound(reply->region_size, reply->message_ids_size);
    uint8_t *room = rp_ring_reserve(selector, bound);
    uint8_t *copy = room ? NULL : malloc(bound);
    rp_msg_reply *record = (rp_msg_reply *)(room ? room : copy);
    if (!record) return RP_NO_MEMORY;
    *record = (rp_msg_reply){.connection = connection};
    record->size = rp_send_reply_encode(reply, (uint8_t *)(record + 1), bound - (uint32_t)sizeof *record);
    uint32_t size = (uint32_t)sizeof *record + record->size;
    if (room) {
        rp_ring_commit(selector, size, RP_MSG_REPLY);
        return RP_OK;
    }
    rp_span span = {record, size};
    rp_status status = rp_ring_write(selector, RP_MSG_REPLY, &span, 1);
    free(copy);
    return status;
}

rp_ring_writer *rp_send_ring_to(const rp_send *send, uint64_t connection) {
    return rp_selector_of(send->selectors, send->selector_count, connection);
}

void rp_send_steer(const rp_send *send, uint64_t connection, uint32_t flag) {
    rp_ring_writer *selector = rp_send_ring_to(send, connection);
    rp_msg_reply order = {.connection = connection, .flags = flag};
    rp_span span = {&order, sizeof order};
    if (selector) (void)rp_ring_write(selector, RP_MSG_REPLY, &span, 1);
}

rp_status rp_send_put_result(rp_send *send, const rp_wait *wait, int32_t code) {
    rp_msg_put_result result = {.token = wait->token,
                                .phy_offset = wait->phy_offset,
                                .queue_offset = wait->queue_offset,
                                .store_timestamp_ms = wait->store_timestamp_ms,
                                .code = code,
                                .queue_id = wait->queue_id,
                                .size = wait->size,
                                .timer_state = wait->timer_state};
    rp_span span = {&result, sizeof result};
    return rp_backlog_put(&send->results, RP_CONNECTION_INTERNAL, RP_MSG_PUT_RESULT, &span, 1);
}

rp_status rp_send_refuse(rp_send *send, const rp_refused *request, int32_t code, const char *remark) {
    if (rp_is_internal(request->origin->connection)) {
        rp_wait wait = {.token = request->token, .queue_id = request->queue_id};
        return rp_send_put_result(send, &wait, code);
    }
    rp_ring_writer *selector = rp_send_ring_to(send, request->origin->connection);
    if (!selector || request->flags & RP_REQUEST_ONEWAY) return RP_OK;
    rp_error_reply reply = {.opaque = request->opaque,
                            .code = code,
                            .version = send->config.version,
                            .serialize_type = rp_serialize_type(request->flags),
                            .remark = remark,
                            .region = send->config.region,
                            .trace_on = (uint8_t)send->config.trace_on};
    return rp_error_reply_send(selector, request->origin->connection, &reply);
}

void rp_send_tell_fault(rp_send *send, rp_status status) {
    rp_member *member = send->config.member;
    if (member && status != RP_TOO_LARGE)
        rp_member_append_failed(member, (int32_t)status, send->control->published_phy_offset);
}

const char *rp_send_append_fault(rp_send *send, rp_status status, int32_t *code) {
    rp_send_tell_fault(send, status);
    switch (status) {
        case RP_TOO_LARGE:
            *code = RP_RESPONSE_MESSAGE_ILLEGAL;
            return "the message is illegal: larger than a CommitLog file";
        case RP_NO_SPACE:
            *code = RP_RESPONSE_SERVICE_NOT_AVAILABLE;
            return "service not available now: no space on the disk for the next CommitLog file";
        default: *code = RP_RESPONSE_SYSTEM_ERROR; return "create mapped file failed: see the log of the broker";
    }
}

/* The message is in this log, and slaves may have it: a member that has passed it on must not send it again. */
static const char PERHAPS_STORED[] = "service not available now: this broker is not certainly the master any more; the "
                                     "message may be stored";

rp_status rp_send_answer_fenced(rp_send *send, const rp_wait *wait) {
    if (rp_is_internal(wait->connection)) { /* its size tells it from a put that was not stored */
        count(send, RP_COUNT_PUT_FAILED, 1);
        return rp_send_put_result(send, wait, RP_RESPONSE_SERVICE_NOT_AVAILABLE);
    }
    rp_origin origin = {.connection = wait->connection};
    rp_refused refused = {.origin = &origin,
                          .token = wait->token,
                          .opaque = wait->opaque,
                          .queue_id = wait->queue_id,
                          .flags = wait->flags};
    count(send, RP_COUNT_PUT_FAILED, 1);
    rp_status status = rp_send_refuse(send, &refused, RP_RESPONSE_SERVICE_NOT_AVAILABLE, PERHAPS_STORED);
    if (status == RP_OK) rp_request_log_write(&send->request_log, wait->served, RP_RESPONSE_SERVICE_NOT_AVAILABLE);
    return status;
}

rp_status rp_send_answer(rp_send *send, const rp_wait *wait, int32_t code) {
    if (!rp_send_may_answer(send)) return rp_send_answer_fenced(send, wait);
    if (rp_is_internal(wait->connection)) return rp_send_put_result(send, wait, code);
    rp_ring_writer *selector = rp_send_ring_to(send, wait->connection);
    if (!selector || wait->flags & RP_REQUEST_ONEWAY) {
        rp_request_log_write(&send->request_log, wait->served, code);
        return RP_OK;
    }
    if (wait->flags & RP_REQUEST_END) { /* whether it is on the disk or not: the check would end it again */
        rp_error_reply ended = {.opaque = wait->opaque,
                                .code = RP_RESPONSE_SUCCESS,
                                .version = send->config.version,
                                .serialize_type = rp_serialize_type(wait->flags),
                                .remark = ""};
        rp_status sent = rp_error_reply_send(selector, wait->connection, &ended);
        if (sent == RP_OK) rp_request_log_write(&send->request_log, wait->served, RP_RESPONSE_SUCCESS);
        return sent;
    }
    rp_send_reply reply = {.serialize_type = rp_serialize_type(wait->flags),
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
    rp_status status = write_reply(selector, wait->connection, &reply);
    if (status != RP_OK) return status;
    rp_admission_count_latency(&send->admission, wait->received_ns);
    rp_request_log_write(&send->request_log, wait->served, code);
    return RP_OK;
}

/* The published output shows that the input was processed. */
void rp_send_set_resume_point(rp_send *send, uint32_t output, uint64_t position) {
    rp_resume_set(send->config.worker, send->inputs, send->current_input, output, position);
}
