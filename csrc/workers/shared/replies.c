/* Replies that every worker sends.
 *
 * Short: other replies are encoded where their worker serves the request. */
#include "workers/shared/replies.h"

rp_status rp_error_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_error_reply *reply) {
    rp_msg_reply *record = (rp_msg_reply *)rp_ring_reserve(selector, sizeof(rp_msg_reply) + RP_ERROR_REPLY_MAX);
    if (!record) return RP_FULL;
    *record = (rp_msg_reply){.connection = connection, .size = rp_error_reply_encode(reply, (uint8_t *)(record + 1))};
    rp_ring_commit(selector, (uint32_t)sizeof *record + record->size, RP_MSG_REPLY);
    return RP_OK;
}

rp_status rp_flags_send(rp_ring_writer *selector, uint64_t connection, uint32_t flags) {
    rp_msg_reply order = {.connection = connection, .flags = flags};
    rp_span span = {&order, sizeof order};
    return rp_ring_write(selector, RP_MSG_REPLY, &span, 1);
}
