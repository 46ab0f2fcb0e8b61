#ifndef ROCKETPY_DIVERTED_H
#define ROCKETPY_DIVERTED_H
/* Sends that are left to the manager, and which connections have some there: their later sends follow until the manager
 * has SETTLED the last, so that a connection's sends keep their order. What the manager's ring has no room for waits in a
 * backlog, within the bounds of that: the ring's other end may be slow, or gone for a while. C only. */
#include "backlog.h"
#include "stage.h"

typedef struct rp_diverted {
    rp_ring_writer *writer; /* the caller's */
    rp_backlog waiting;
    rp_map tokens; /* connection -> ring position behind the start of the last send that it has at the manager */
} rp_diverted;

int rp_diverted_init(rp_diverted *diverted, rp_ring_writer *writer); /* 0, or -1 without memory */
void rp_diverted_destroy(rp_diverted *diverted);
int rp_diverted_find(const rp_diverted *diverted, uint64_t connection);
/* Whether the next send of `connection` must follow others to the manager. */
static inline int rp_diverted_has(const rp_diverted *diverted, uint64_t connection) {
    return (diverted->tokens.live || diverted->waiting.first) && rp_diverted_find(diverted, connection);
}
/* Leave a SEND record to the manager. RP_OK; RP_FULL: its connection has too much waiting, or all together have;
 * RP_NO_MEMORY. Where it goes into the ring at once and whole, `note` is called with the position that proves it. */
rp_status rp_diverted_leave(rp_diverted *diverted, const uint8_t *data, uint32_t size,
                            void (*note)(void *context, uint64_t position), void *context);
/* Move to the ring what it has room for. */
void rp_diverted_flush(rp_diverted *diverted);
/* The send that waits for room the longest, or NULL; and away with it. */
const rp_send_request *rp_diverted_first(const rp_diverted *diverted);
void rp_diverted_drop_first(rp_diverted *diverted);
void rp_diverted_settle(rp_diverted *diverted, const rp_settled *settled);
/* What was in the ring below `position` will not be settled: a manager had taken it, and is gone. */
void rp_diverted_forget(rp_diverted *diverted, uint64_t position);
#endif
