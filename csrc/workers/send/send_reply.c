/* The response is built in the ring if it is small and there is room, else in a copy. */
#include "workers/send/send_reply.h"

#include <stdlib.h>

#include "ipc/worker_messages.h"

enum { REPLY_BOUND = 512 /* a send reply without ids and region */ };

uint32_t rp_send_reply_bound(uint32_t region_size, uint32_t message_ids_size) {
    return (uint32_t)sizeof(rp_msg_reply) + REPLY_BOUND + region_size + message_ids_size;
}

rp_status rp_send_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_send_reply *reply) {
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
