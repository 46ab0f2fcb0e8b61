#ifndef ROCKETPY_ARRIVALS_H
#define ROCKETPY_ARRIVALS_H
/* Queues with new units, for which ARRIVAL messages are sent to the pull workers that own them. C only. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/queue_owner.h"
#include "ipc/ring.h"
#include "store/control/control_block.h"

typedef struct rp_arrivals {
    rp_control_block *block;
    rp_ring_writer *pulls[RP_PULL_WORKERS_MAX]; /* the caller's */
    uint32_t pull_count;                        /* 0: nobody waits */
    uint32_t *queues;                           /* indexes in the control block; room is the owner's concern */
    uint32_t count;
} rp_arrivals;

/* Write the queues to the rings of their owners and wake these. RP_FULL: the ring of the only pull worker had no room;
 * the rest of the queues stay.
 *
 * The queues of several pull workers do not wait for each other: if the ring of one is full, its queue stays watched.
 * Its next unit tries again, or the sweep of its owner finds what has come (pull_private.h). */
rp_status rp_arrivals_send(rp_arrivals *arrivals);
#endif
