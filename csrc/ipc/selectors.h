#ifndef ROCKETPY_SELECTORS_H
#define ROCKETPY_SELECTORS_H
/* The way back to the selector that owns a connection (its number is in the top byte, worker_messages.h). C only. */
#include <stddef.h>
#include <stdint.h>
#include "wire/reply.h"
#include "ipc/ring.h"

/* NULL: there is no such selector, as for internal requests. */
static inline rp_ring_writer *rp_selector_of(rp_ring_writer *const *selectors, uint32_t count, uint64_t connection) {
    uint64_t index = connection >> 56;
    return index < count ? selectors[index] : NULL;
}

/* Write a reply that carries a code and a remark to the ring of its connection's selector. RP_OK or RP_FULL. */
rp_status rp_error_reply_send(rp_ring_writer *selector, uint64_t connection, const rp_error_reply *reply);
#endif
