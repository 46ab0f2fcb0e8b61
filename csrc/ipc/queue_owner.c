/* See queue_owner.h. */
#include "ipc/queue_owner.h"

uint32_t rp_queue_owner(const uint8_t *topic, uint32_t topic_size, int32_t queue_id, uint32_t owners) {
    uint32_t hash = 2166136261u; /* FNV-1a: no seed, so it is the same in every process */
    if (owners <= 1) return 0;
    for (uint32_t i = 0; i < topic_size; i++) hash = (hash ^ topic[i]) * 16777619u;
    return (uint32_t)(((uint64_t)hash + (uint32_t)queue_id) % owners);
}
