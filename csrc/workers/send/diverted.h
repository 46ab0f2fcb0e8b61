#ifndef ROCKETPY_DIVERTED_H
#define ROCKETPY_DIVERTED_H
/* Diverted sends: those that go to the manager (the slow path), and the connections that have such sends. Later sends
 * of such a connection go to the manager too, until it has COMPLETED the last one: so a connection's sends keep their
 * order. Meanwhile the selector does not read the connection (RP_REPLY_PAUSE): sends that arrive faster than the
 * manager serves them would keep the connection on the slow path. While the manager's ring is full (a slow or
 * restarting manager) the sends wait in a backlog, within its bounds. C only. */
#include "ipc/backlog.h"
#include "ipc/worker_messages.h"

typedef struct rp_diverted {
    rp_ring_writer *writer; /* the caller's */
    rp_backlog waiting;
    rp_map tokens; /* connection -> token of its last diverted send: a position in the manager's ring */
} rp_diverted;

int rp_diverted_init(rp_diverted *diverted, rp_ring_writer *writer); /* 0, or -1 without memory */
void rp_diverted_destroy(rp_diverted *diverted);
int rp_diverted_find(const rp_diverted *diverted, uint64_t connection);
/* Return 1 if the next send of `connection` must go to the manager because earlier ones are still there. */
static inline int rp_diverted_has(const rp_diverted *diverted, uint64_t connection) {
    return (diverted->tokens.live || diverted->waiting.first) && rp_diverted_find(diverted, connection);
}
/* Divert a SEND. RP_OK; RP_FULL: the bytes waiting, of its connection or of all, would exceed a bound;
 * RP_NO_MEMORY. If the ring takes it at once in one piece, `set_resume_point` is called before, with the ring position
 * after it.
 */
rp_status rp_diverted_put(rp_diverted *diverted, const uint8_t *data, uint32_t size,
                          void (*set_resume_point)(void *context, uint64_t position), void *context);
/* Move waiting sends to the ring while it has room. */
void rp_diverted_flush(rp_diverted *diverted);
/* The send that has waited for room the longest, or NULL; then remove it. */
const rp_msg_send *rp_diverted_first(const rp_diverted *diverted);
void rp_diverted_drop_first(rp_diverted *diverted);
/* 1: that was the last diverted send of its connection. */
int rp_diverted_complete(rp_diverted *diverted, const rp_msg_completed *completed);
/* Drop diverted sends below `position` in the ring: they were lost with a manager that died. */
void rp_diverted_forget(rp_diverted *diverted, uint64_t position);
#endif
