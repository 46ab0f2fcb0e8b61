#ifndef ROCKETPY_QUEUE_OWNER_H
#define ROCKETPY_QUEUE_OWNER_H
/* Which pull worker a queue belongs to. Everybody computes it alike: the codec for a pull, the store worker for an
 * ARRIVAL, the manager for a pull that it hands back. So the suspended pulls of a queue are in one process, and the
 * pulls of a queue are served in the order in which they came. */
#include <stdint.h>
#include "ipc/ring.h"

enum { RP_PULL_WORKERS_MAX = 64 };

/* 0 .. owners - 1; the queues of a topic are spread evenly. 0 < owners. */
uint32_t rp_queue_owner(const uint8_t *topic, uint32_t topic_size, int32_t queue_id, uint32_t owners);

/* Which query worker serves the next query. */

/* The query worker for the next query. Queries belong to nobody: the first worker, counted from `turn` on, that has
 * none waiting in its ring of `rings` or for its tasks; if all have, that of `turn`. So a worker that stands still
 * delays few queries while another is free. 0 < count. */
uint32_t rp_query_workers_next(rp_ring *const *rings, uint32_t count, uint32_t turn);
#endif
