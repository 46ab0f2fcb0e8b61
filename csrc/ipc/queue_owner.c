/* See queue_owner.h. */
#include "ipc/queue_owner.h"
#include "base/atomic.h"
#include "ipc/worker_counters.h"

uint32_t rp_queue_owner(const uint8_t *topic, uint32_t topic_size, int32_t queue_id, uint32_t owners) {
    uint32_t hash = 2166136261u; /* FNV-1a: no seed, so it is the same in every process */
    if (owners <= 1) return 0;
    for (uint32_t i = 0; i < topic_size; i++) hash = (hash ^ topic[i]) * 16777619u;
    return (uint32_t)(((uint64_t)hash + (uint32_t)queue_id) % owners);
}

static int has_waiting(const rp_ring *ring) {
    return rp_ring_depth(ring) || rp_load_acquire(&rp_ring_consumer(ring)->counters[RP_COUNT_WAITING]);
}

uint32_t rp_query_workers_next(rp_ring *const *rings, uint32_t count, uint32_t turn) {
    for (uint32_t i = 0; i < count; i++)
        if (!has_waiting(rings[(turn + i) % count])) return (turn + i) % count;
    return turn % count;
}
