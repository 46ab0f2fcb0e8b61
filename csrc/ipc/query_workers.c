/* See query_workers.h. */
#include "ipc/query_workers.h"
#include "base/atomic.h"
#include "ipc/worker_counters.h"

static int has_waiting(const rp_ring *ring) {
    return rp_ring_depth(ring) || rp_load_acquire(&rp_ring_consumer(ring)->counters[RP_COUNT_WAITING]);
}

uint32_t rp_query_workers_next(rp_ring *const *rings, uint32_t count, uint32_t turn) {
    for (uint32_t i = 0; i < count; i++)
        if (!has_waiting(rings[(turn + i) % count])) return (turn + i) % count;
    return turn % count;
}
