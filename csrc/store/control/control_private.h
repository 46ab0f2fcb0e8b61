#ifndef ROCKETPY_CONTROL_PRIVATE_H
#define ROCKETPY_CONTROL_PRIVATE_H
/* The layout of the control block: header, queue entries, topic names, and the two hash indexes that find them. For
 * control_block.c and control_tables.c alone.
 *
 *   0            rp_control, then the adders' lock at LOCK_AT
 *   QUEUES_AT    RP_CONTROL_QUEUES_MAX entries of 64 bytes (RP_CONTROL_QUEUES_AT)
 *   TOPICS_AT    RP_CONTROL_TOPICS_MAX names of 128 bytes: length, then up to 127 bytes
 *   SLOTS_AT     hash slots of queues, 4 bytes: entry number + 1, 0 free; linear probing, half full at the most
 *   NAMES_AT     hash slots of topics, likewise */
#include <pthread.h>
#include "store/control/control_block.h"

#define QUEUE_SLOTS (RP_CONTROL_QUEUES_MAX * 2u)
#define TOPIC_SLOTS (RP_CONTROL_TOPICS_MAX * 2u)
#define LOCK_AT 2048u
#define TOPICS_AT (RP_CONTROL_QUEUES_AT + (uint64_t)RP_CONTROL_QUEUES_MAX * sizeof(rp_queue))
#define SLOTS_AT (TOPICS_AT + (uint64_t)RP_CONTROL_TOPICS_MAX * RP_CONTROL_TOPIC_ENTRY)
#define NAMES_AT (SLOTS_AT + (uint64_t)QUEUE_SLOTS * 4)
#define FILE_SIZE (NAMES_AT + (uint64_t)TOPIC_SLOTS * 4)

_Static_assert(sizeof(rp_queue) == 64, "one cache line per queue");
_Static_assert(sizeof(rp_control) <= LOCK_AT && sizeof(pthread_mutex_t) <= RP_CONTROL_QUEUES_AT - LOCK_AT,
               "header fits its page");

struct rp_control_block {
    uint8_t *base;
    char *path;
};

static inline rp_queue *queue_at(const rp_control_block *block, uint32_t index) {
    return (rp_queue *)(block->base + RP_CONTROL_QUEUES_AT) + index;
}
static inline uint8_t *topic_at(const rp_control_block *block, uint32_t index) {
    return block->base + TOPICS_AT + (uint64_t)index * RP_CONTROL_TOPIC_ENTRY;
}
static inline uint32_t *queue_slots(const rp_control_block *block) { return (uint32_t *)(block->base + SLOTS_AT); }
static inline uint32_t *topic_slots(const rp_control_block *block) { return (uint32_t *)(block->base + NAMES_AT); }
static inline pthread_mutex_t *adders(const rp_control_block *block) {
    return (pthread_mutex_t *)(block->base + LOCK_AT);
}

/* Reserve blocks for [offset, offset + size) of the file. 0, or -1 with errno; file systems without fallocate stay
 * sparse. */
int rp_control_reserve(int fd, uint64_t offset, uint64_t size);
/* The slot of (name, queue id), or the free slot for it; and likewise of a topic. */
uint32_t *rp_control_queue_slot(const rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t queue_id);
uint32_t *rp_control_topic_slot(const rp_control_block *block, const uint8_t *name, uint32_t size);
/* Store the slots of the newest topic and queue if a process died while it added them. */
void rp_control_show_newest(rp_control_block *block);
#endif
