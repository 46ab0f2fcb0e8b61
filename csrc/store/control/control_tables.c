/* The tables of the control block: find and add topics and queues; fields that several processes change.
 *
 * Lookups take no lock: a slot is stored with release after its entry is complete, and never changes again. A process
 * that dies while it adds leaves at most one counted entry without a slot; the next addition repairs that (lock: robust
 * mutex). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/control/control_block.h"
#include "store/control/control_private.h"

#define RESERVE_STEP 4096u /* entries whose blocks are reserved at once */

rp_control *rp_control_header(rp_control_block *block) { return (rp_control *)block->base; }
rp_queue *rp_control_queue(rp_control_block *block, uint32_t index) { return queue_at(block, index); }
uint32_t rp_control_queue_index(const rp_control_block *block, const rp_queue *queue) {
    return (uint32_t)(queue - queue_at(block, 0));
}

uint32_t rp_control_topic(const rp_control_block *block, uint32_t topic, const uint8_t **name) {
    const uint8_t *entry = topic_at(block, topic);
    *name = entry + 1;
    return entry[0];
}

/* Mixes eight bytes at a time; good enough for names, and the same in every process of one build. The seed is secret,
 * so clients cannot choose names that collide. */
static uint64_t hash_name(const uint8_t *name, uint32_t size, uint64_t seed) {
    uint64_t hash = (seed + size) * 0x9E3779B97F4A7C15ull, word;
    while (size) {
        uint32_t n = size < 8 ? size : 8;
        word = 0;
        memcpy(&word, name, n);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
        name += n;
        size -= n;
    }
    return hash;
}

static uint64_t seed_of(const rp_control_block *block) { return ((const rp_control *)block->base)->hash_seed; }

static int name_is(const rp_control_block *block, uint32_t topic, const uint8_t *name, uint32_t size) {
    const uint8_t *entry = topic_at(block, topic);
    return entry[0] == size && memcmp(entry + 1, name, size) == 0;
}

uint32_t *rp_control_queue_slot(const rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t queue_id) {
    uint32_t *slots = queue_slots(block);
    for (uint64_t at = hash_name(name, size, seed_of(block) + queue_id);; at++) {
        uint32_t *slot = &slots[at & (QUEUE_SLOTS - 1)], value = rp_load_acquire32(slot);
        if (!value) return slot;
        const rp_queue *queue = queue_at(block, value - 1);
        if (queue->queue_id == queue_id && name_is(block, queue->topic, name, size)) return slot;
    }
}

uint32_t *rp_control_topic_slot(const rp_control_block *block, const uint8_t *name, uint32_t size) {
    uint32_t *slots = topic_slots(block);
    for (uint64_t at = hash_name(name, size, seed_of(block));; at++) {
        uint32_t *slot = &slots[at & (TOPIC_SLOTS - 1)], value = rp_load_acquire32(slot);
        if (!value || name_is(block, value - 1, name, size)) return slot;
    }
}

rp_queue *rp_control_find(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id) {
    if (!topic_size || topic_size > RP_CONTROL_TOPIC_ENTRY - 1) return NULL;
    uint32_t value = rp_load_acquire32(rp_control_queue_slot(block, topic, topic_size, queue_id));
    return value ? queue_at(block, value - 1) : NULL;
}

uint32_t rp_control_next_of_topic(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t from) {
    uint32_t count = rp_load_acquire32(&rp_control_header(block)->queue_count);
    uint32_t value = topic_size && topic_size < RP_CONTROL_TOPIC_ENTRY
                         ? rp_load_acquire32(rp_control_topic_slot(block, topic, topic_size))
                         : 0;
    if (!value) return count;
    while (from < count && queue_at(block, from)->topic != value - 1) from++;
    return from;
}

void rp_control_sum_topics(rp_control_block *block, uint32_t *used, uint8_t *deleted) {
    uint32_t count = rp_load_acquire32(&rp_control_header(block)->queue_count);
    for (uint32_t i = 0; i < count; i++) {
        const rp_queue *queue = queue_at(block, i);
        uint64_t next = rp_load_acquire(&queue->next_offset);
        uint32_t topic = queue->topic, queues = queue->queue_id + 1;
        if (topic >= RP_CONTROL_TOPICS_MAX) continue; /* damaged */
        if (queue->state == RP_QUEUE_LIVE && next && used[topic] < queues) used[topic] = queues;
        if (queue->state == RP_QUEUE_DELETED) deleted[topic] |= next > rp_load_acquire(&queue->min_offset) ? 3 : 1;
    }
}

int rp_control_reserve(int fd, uint64_t offset, uint64_t size) {
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) == 0) return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

/* rp_control_reserve for the `index`-th entry of a table, once per RESERVE_STEP. Opens by path: workers keep no
 * descriptor. */
static int reserve_entry(rp_control_block *block, uint64_t table, uint32_t index, uint64_t entry_size) {
    if (index % RESERVE_STEP) return 0;
    int fd = open(block->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = rp_control_reserve(fd, table + index * entry_size, RESERVE_STEP * entry_size), error = errno;
    close(fd);
    errno = error;
    return result;
}

void rp_control_show_newest(rp_control_block *block) {
    rp_control *control = rp_control_header(block);
    if (control->topic_count) {
        const uint8_t *entry = topic_at(block, control->topic_count - 1);
        uint32_t *slot = rp_control_topic_slot(block, entry + 1, entry[0]);
        if (!*slot) rp_store_release32(slot, control->topic_count);
    }
    if (control->queue_count) {
        const rp_queue *queue = queue_at(block, control->queue_count - 1);
        const uint8_t *entry = topic_at(block, queue->topic);
        uint32_t *slot = rp_control_queue_slot(block, entry + 1, entry[0], queue->queue_id);
        if (!*slot) rp_store_release32(slot, control->queue_count);
    }
}

static int add_topic(rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t *topic) {
    rp_control *control = rp_control_header(block);
    uint32_t *slot = rp_control_topic_slot(block, name, size), index = control->topic_count;
    if (*slot) {
        *topic = *slot - 1;
        return 0;
    }
    if (index == RP_CONTROL_TOPICS_MAX) {
        errno = EOVERFLOW;
        return -1;
    }
    if (reserve_entry(block, TOPICS_AT, index, RP_CONTROL_TOPIC_ENTRY) < 0) return -1;
    uint8_t *entry = topic_at(block, index);
    entry[0] = (uint8_t)size;
    memcpy(entry + 1, name, size);
    RP_CRASH_POINT("control.topic");
    rp_store_release32(&control->topic_count, index + 1);
    RP_CRASH_POINT("control.topic_slot");
    rp_store_release32(slot, index + 1);
    *topic = index;
    return 0;
}

static rp_queue *add_queue(rp_control_block *block, const uint8_t *name, uint32_t size, uint32_t queue_id) {
    rp_control *control = rp_control_header(block);
    uint32_t *slot = rp_control_queue_slot(block, name, size, queue_id), index = control->queue_count, topic;
    if (*slot) {
        rp_queue *queue = queue_at(block, *slot - 1);
        rp_store_release32(&queue->state, RP_QUEUE_LIVE);
        return queue;
    }
    if (index == RP_CONTROL_QUEUES_MAX) {
        errno = EOVERFLOW;
        return NULL;
    }
    if (add_topic(block, name, size, &topic) < 0 ||
        reserve_entry(block, RP_CONTROL_QUEUES_AT, index, sizeof(rp_queue)) < 0)
        return NULL;
    rp_queue *queue = queue_at(block, index);
    memset(queue, 0, sizeof *queue);
    RP_CRASH_POINT("control.entry");
    queue->topic = topic;
    queue->queue_id = queue_id;
    queue->state = RP_QUEUE_LIVE;
    RP_CRASH_POINT("control.queue");
    rp_store_release32(&control->queue_count, index + 1);
    RP_CRASH_POINT("control.queue_slot");
    rp_store_release32(slot, index + 1);
    return queue;
}

/* A topic becomes a directory below consumequeue/: names that would leave it or cannot be one are refused. */
int rp_control_is_name(const uint8_t *name, uint32_t size) {
    if (!size || size > RP_CONTROL_TOPIC_ENTRY - 1 || memchr(name, '/', size) || memchr(name, 0, size)) return 0;
    return !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

rp_queue *rp_control_add(rp_control_block *block, const uint8_t *topic, uint32_t topic_size, uint32_t queue_id) {
    if (!rp_control_is_name(topic, topic_size) || queue_id > INT32_MAX) {
        errno = EINVAL;
        return NULL;
    }
    int locked = pthread_mutex_lock(adders(block));
    if (locked == EOWNERDEAD) {
        pthread_mutex_consistent(adders(block));
        rp_control_show_newest(block);
    } else if (locked) {
        errno = locked;
        return NULL;
    }
    rp_queue *queue = add_queue(block, topic, topic_size, queue_id);
    int error = errno;
    pthread_mutex_unlock(adders(block));
    errno = error;
    return queue;
}

int rp_control_refuses(int error) { return error == EINVAL || error == EOVERFLOW; }

int rp_control_put_flag(rp_control *control, uint32_t flag, int on) {
    uint32_t before = on ? __atomic_fetch_or(&control->running_flags, flag, __ATOMIC_ACQ_REL)
                         : __atomic_fetch_and(&control->running_flags, ~flag, __ATOMIC_ACQ_REL);
    return !(before & flag) == !!on;
}

int rp_control_is_deleted(const rp_queue *queue) {
    uint64_t below = rp_load_acquire(&queue->deleted_below);
    return below && queue->max_offset && queue->max_phy_offset <= below;
}

int rp_control_move_min(rp_queue *queue, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(&queue->min_offset, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
