#ifndef ROCKETPY_REPLIES_H
#define ROCKETPY_REPLIES_H
/* Replies of a worker to its clients, through the ring of their selector. C only. */
#include <stddef.h>
#include "wire/header.h"
#include "wire/reply.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

/* 1 if the manager or this worker made the request: the answer is a PUT_RESULT. */
static inline int rp_is_internal(uint64_t connection) { return connection >= RP_CONNECTION_INTERNAL; }

/* The selector that owns a connection: its number is in the top byte (worker_messages.h). NULL: there is none, as for
 * internal requests. */
static inline rp_ring_writer *rp_selector_of(rp_ring_writer *const *selectors, uint32_t count, uint64_t connection) {
    uint64_t index = connection >> 56;
    return index < count ? selectors[index] : NULL;
}

/* The serialisation that a request asks for: RP_SERIALIZE_*. `flags`: RP_REQUEST_*. */
static inline uint8_t rp_serialize_type(uint32_t flags) {
    return flags & RP_REQUEST_ROCKETMQ ? RP_SERIALIZE_ROCKETMQ : RP_SERIALIZE_JSON;
}

/* Write a reply that carries a code and a remark to the ring of its connection's selector. RP_OK or RP_FULL. */
rp_status rp_error_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_error_reply *reply);
/* Have a selector do without an answer what `flags` (RP_REPLY_*) say. RP_OK, RP_FULL or RP_NO_MEMORY. */
rp_status rp_flags_send(rp_ring_writer *selector, uint64_t connection, uint32_t flags);
#endif
