/* The ring itself: its mapping, and what any process may read of it. ring_writer.c and ring_reader.c are its two ends.
 */
#define _GNU_SOURCE
#include "ipc/ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "ipc/ring_private.h"

static uint8_t *map_twice(int fd, uint32_t capacity) {
    size_t once = HEADER_PAGE + (size_t)capacity;
    uint8_t *base = mmap(NULL, once + capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED) return NULL;
    if (mmap(base, once, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        mmap(base + once, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, HEADER_PAGE) == MAP_FAILED) {
        int reason = errno;
        munmap(base, once + capacity);
        errno = reason;
        return NULL;
    }
    return base;
}

rp_ring *rp_ring_create(uint32_t capacity, rp_worker *producer, rp_worker *consumer) {
    if (capacity < CAPACITY_MIN || capacity > CAPACITY_MAX || (capacity & (capacity - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    int fd = memfd_create("rocketpy-ring", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    uint8_t *base = ftruncate(fd, HEADER_PAGE + (off_t)capacity) == 0 ? map_twice(fd, capacity) : NULL;
    int reason = errno;
    close(fd); /* the mappings keep the memory */
    if (base == NULL) {
        errno = reason;
        return NULL;
    }
    rp_ring *ring = (rp_ring *)(void *)base;
    ring->data = base + HEADER_PAGE;
    ring->capacity = capacity;
    ring->mask = capacity - 1;
    ring->small_max = capacity / 4;
    ring->producer = producer;
    ring->consumer = consumer;
    return ring;
}

void rp_ring_destroy(rp_ring *ring) {
    if (ring != NULL) munmap(ring, HEADER_PAGE + 2 * (size_t)ring->capacity);
}

/* The producer overwrites a message only after the head has passed it: if the head has not moved, the copy is valid. */
uint32_t rp_ring_copy_head(const rp_ring *ring, void *head, uint32_t head_size) {
    uint64_t at = rp_load_acquire(&ring->head);
    message_header header;
    if (at == rp_load_acquire(&ring->tail)) return 0;
    const uint8_t *message = ring->data + (at & ring->mask);
    memcpy(&header, message, sizeof header);
    message += MESSAGE_HEADER;
    if (header.part == PART_FIRST) { /* payload = total size, then the bytes */
        uint64_t total;
        memcpy(&total, message, sizeof total);
        header.size = (uint32_t)total;
        message += TOTAL_SIZE;
    }
    memcpy(head, message, head_size);
    rp_full_fence(); /* orders the loads of the copy before the second load of head */
    return rp_load_acquire(&ring->head) == at ? header.size : 0;
}

uint64_t rp_ring_tail(const rp_ring *ring) { return rp_load_acquire(&ring->tail); }
uint32_t rp_ring_capacity(const rp_ring *ring) { return ring->capacity; }

const rp_worker *rp_ring_consumer(const rp_ring *ring) { return ring->consumer; }

uint64_t rp_ring_depth(const rp_ring *ring) {
    uint64_t head = rp_load_acquire(&ring->head); /* head first: it never passes a tail read later */
    return rp_load_acquire(&ring->tail) - head;
}
