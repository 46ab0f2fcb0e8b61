/* The ring itself: its mapping, and what any process may read of it; then its two ends. */
#define _GNU_SOURCE
#include "ipc/ring.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/atomic.h"

/* A ring is one memfd: a page of positions, then the data. The data is mapped twice in a row, so a message that wraps
 * around is contiguous all the same. All of it is mapped before the fork and therefore at the same address in every
 * process. Positions are counts of bytes since the ring was created; they never wrap (2^64 bytes). A batch that finds
 * the ring empty may begin at the start of the data again (`origin` is that position): little traffic uses few pages.
 *
 *   message:  size(4)  type(2)  part(2)  payload, padded to 8       part: 0 whole, 1 first, 2 next
 *   first part of a large message: payload = total size(8), then its first bytes
 *
 * The producer stores tail and producer_waiting = 1, the consumer head and producer_waiting = 0. Each side caches the
 * other's position, and reads the shared one only when the ring seems full or empty: in a busy ring the two cache lines
 * move between the cores once per batch. */
enum {
    MESSAGE_HEADER = 8,
    TOTAL_SIZE = 8,
    CAPACITY_MIN = 65536,
    CAPACITY_MAX = RP_RING_MESSAGE_MAX,
    KEPT_SIZE = CAPACITY_MIN / 2, /* bytes of data that an idle ring keeps in use */
    HEADER_PAGE = 4096
};
enum { PART_WHOLE = 0, PART_FIRST = 1, PART_NEXT = 2 };

struct rp_ring {
    uint8_t *data;
    uint64_t mask;
    uint64_t origin; /* position of data[0]; the producer moves it while the ring is empty */
    uint32_t capacity;
    uint32_t small_max; /* largest message that crosses in one piece */
    rp_worker *producer;
    rp_worker *consumer;
    _Alignas(64) uint64_t tail;
    _Alignas(64) uint64_t head;
    _Alignas(64) uint32_t producer_waiting;
};
_Static_assert(sizeof(rp_ring) <= HEADER_PAGE, "the positions share one page");

typedef struct message_header {
    uint32_t size;
    uint16_t type;
    uint16_t part;
} message_header;
_Static_assert(sizeof(message_header) == MESSAGE_HEADER, "messages stay 8-aligned");

static inline uint64_t message_span(uint32_t size) { return (MESSAGE_HEADER + (uint64_t)size + 7) & ~(uint64_t)7; }
static inline uint8_t *message_at(const rp_ring *ring, uint64_t position) {
    return ring->data + ((position - rp_load_acquire(&ring->origin)) & ring->mask);
}

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

/* The producer overwrites a message only after the head has passed it: if the head has not moved, the copy is valid. */
uint32_t rp_ring_copy_head(const rp_ring *ring, void *head, uint32_t head_size) {
    uint64_t at = rp_load_acquire(&ring->head);
    message_header header;
    if (at == rp_load_acquire(&ring->tail)) return 0;
    const uint8_t *message = message_at(ring, at);
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

/* The producer's end of a ring: reserve, commit, wake; a large message leaves in parts. */

struct rp_ring_writer {
    rp_ring *ring;
    uint64_t tail;       /* ours; equals ring->tail between calls */
    uint64_t head_seen;  /* the consumer had come at least this far */
    uint64_t tail_woken; /* the consumer knows of everything below */
    uint8_t *large;      /* our copy of a message that is leaving in parts, or NULL */
    uint32_t large_size;
    uint32_t large_sent;
    uint16_t large_type;
    uint8_t is_hurried; /* a message after tail_woken is hurried, or found the ring more than half full */
};

rp_ring_writer *rp_ring_writer_open(rp_ring *ring) {
    rp_ring_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    writer->ring = ring;
    writer->tail = rp_load_acquire(&ring->tail);
    /* The previous process may have died between publish and wake-up. */
    writer->head_seen = writer->tail_woken = rp_load_acquire(&ring->head);
    return writer;
}

void rp_ring_writer_close(rp_ring_writer *writer) {
    if (writer == NULL) return;
    free(writer->large);
    free(writer);
}

/* 1 if `span` bytes fit. If not, the consumer wakes the producer when half of the ring is free again, which is room for
 * any piece. The second check is after the fence: either it sees the consumer's new head, or the consumer sees that the
 * producer waits. Before a batch the tail of an empty ring becomes data[0]: readers load the tail before the origin. */
static int has_room(rp_ring_writer *writer, uint64_t span) {
    rp_ring *ring = writer->ring;
    uint64_t used_max = ring->capacity - span;
    if (writer->tail == writer->tail_woken && ((writer->tail - ring->origin) & ring->mask) >= KEPT_SIZE &&
        (writer->head_seen = rp_load_acquire(&ring->head)) == writer->tail)
        rp_store_release(&ring->origin, writer->tail);
    if (writer->tail - writer->head_seen <= used_max) return 1;
    writer->head_seen = rp_load_acquire(&ring->head);
    if (writer->tail - writer->head_seen <= used_max) return 1;
    rp_store_release32(&ring->producer_waiting, 1);
    rp_full_fence(); /* orders the store of producer_waiting before the load of head */
    writer->head_seen = rp_load_acquire(&ring->head);
    if (writer->tail - writer->head_seen > used_max) return 0;
    rp_store_release32(&ring->producer_waiting, 0);
    return 1;
}

static void publish(rp_ring_writer *writer, uint32_t size, uint16_t type, uint16_t part) {
    message_header header = {.size = size, .type = type, .part = part};
    rp_ring *ring = writer->ring;
    memcpy(message_at(ring, writer->tail), &header, sizeof header);
    writer->tail += message_span(size);
    if (!(type & RP_RING_UNHURRIED) || writer->tail - rp_load_acquire(&ring->head) > ring->capacity / 2)
        writer->is_hurried = 1;
    rp_store_release(&ring->tail, writer->tail); /* publishes header and payload */
}

rp_status rp_ring_pump(rp_ring_writer *writer) {
    uint32_t piece_max = writer->ring->capacity / 8; /* several fit, so that both sides work at once */
    while (writer->large != NULL) {
        int first = writer->large_sent == 0;
        uint32_t prefix = first ? TOTAL_SIZE : 0;
        uint32_t rest = writer->large_size - writer->large_sent, piece = rest < piece_max ? rest : piece_max;
        if (!has_room(writer, message_span(prefix + piece))) return RP_FULL;
        uint8_t *payload = message_at(writer->ring, writer->tail) + MESSAGE_HEADER;
        uint64_t total = writer->large_size;
        if (first) memcpy(payload, &total, TOTAL_SIZE);
        memcpy(payload + prefix, writer->large + writer->large_sent, piece);
        publish(writer, prefix + piece, writer->large_type, first ? PART_FIRST : PART_NEXT);
        writer->large_sent += piece;
        if (writer->large_sent == writer->large_size) {
            free(writer->large);
            writer->large = NULL;
        }
    }
    return RP_OK;
}

uint8_t *rp_ring_reserve(rp_ring_writer *writer, uint32_t size) {
    if (size > writer->ring->small_max) return NULL;
    if (writer->large != NULL && rp_ring_pump(writer) != RP_OK) return NULL;
    if (!has_room(writer, message_span(size))) return NULL;
    return message_at(writer->ring, writer->tail) + MESSAGE_HEADER;
}

int rp_ring_can_take(rp_ring_writer *writer, uint32_t size) {
    /* Also for a large message: it may become small, and then needs its room at once. */
    return rp_ring_reserve(writer, size < writer->ring->small_max ? size : writer->ring->small_max) != NULL;
}

void rp_ring_commit(rp_ring_writer *writer, uint32_t size, uint16_t type) { publish(writer, size, type, PART_WHOLE); }

static void gather(uint8_t *to, const rp_span *spans, uint32_t span_count) {
    for (uint32_t i = 0; i < span_count; i++) {
        if (spans[i].size == 0) continue; /* its data may be NULL */
        memcpy(to, spans[i].data, spans[i].size);
        to += spans[i].size;
    }
}

rp_status rp_ring_write(rp_ring_writer *writer, uint16_t type, const rp_span *spans, uint32_t span_count) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < span_count; i++) size += spans[i].size;
    if (size <= writer->ring->small_max) {
        uint8_t *at = rp_ring_reserve(writer, (uint32_t)size);
        if (at == NULL) return RP_FULL;
        gather(at, spans, span_count);
        rp_ring_commit(writer, (uint32_t)size, type);
        return RP_OK;
    }
    if (size > CAPACITY_MAX) return RP_TOO_LARGE;
    if (writer->large != NULL && rp_ring_pump(writer) != RP_OK) return RP_FULL;
    writer->large = malloc(size);
    if (writer->large == NULL) return RP_NO_MEMORY;
    gather(writer->large, spans, span_count);
    writer->large_size = (uint32_t)size;
    writer->large_sent = 0;
    writer->large_type = type;
    (void)rp_ring_pump(writer); /* what does not fit now leaves later; the message is taken either way */
    return RP_OK;
}

void rp_ring_wake(rp_ring_writer *writer) {
    if (writer->tail == writer->tail_woken) return;
    writer->tail_woken = writer->tail;
    rp_full_fence(); /* orders the store of tail before the load of the consumer's `asleep` */
    if (writer->is_hurried || rp_load_acquire32(&writer->ring->consumer->asleep) != RP_NAPPING)
        rp_worker_wake(writer->ring->consumer, 0);
    writer->is_hurried = 0;
}

uint64_t rp_ring_tail_after(const rp_ring_writer *writer, uint32_t size) { return writer->tail + message_span(size); }

/* The consumer's end of a ring: read, release; a large message is assembled from its parts. */

struct rp_ring_reader {
    rp_ring *ring;
    uint64_t head;       /* ours; equals ring->head between calls */
    uint64_t next;       /* after the message read last */
    uint64_t tail_seen;
    uint64_t head_fenced; /* a waiting producer has been looked for, with a fence, at this head */
    uint8_t *large;      /* a message that is being put together from parts, or NULL */
    uint32_t large_size;
    uint32_t large_have;
    uint16_t large_type;
    uint8_t large_held; /* complete, given out and not yet released */
};

rp_ring_reader *rp_ring_reader_open(rp_ring *ring) {
    rp_ring_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) return NULL;
    reader->ring = ring;
    reader->head = reader->next = reader->head_fenced = rp_load_acquire(&ring->head);
    reader->tail_seen = rp_load_acquire(&ring->tail);
    return reader;
}

static void drop_large(rp_ring_reader *reader) {
    free(reader->large);
    reader->large = NULL;
    reader->large_held = 0;
}

void rp_ring_reader_close(rp_ring_reader *reader) {
    if (reader == NULL) return;
    drop_large(reader);
    free(reader);
}

/* Wake it even if it seems awake: a producer that found the ring full may be about to sleep without another check. */
static void ring_waiting_producer(rp_ring_reader *reader) {
    rp_ring *ring = reader->ring;
    if (rp_load_acquire32(&ring->producer_waiting) == 0) return;
    if (rp_load_acquire(&ring->tail) - reader->head > ring->capacity / 2) return;
    if (rp_exchange32(&ring->producer_waiting, 0) == 1) rp_worker_wake(ring->producer, 1);
}

static void move_head(rp_ring_reader *reader, uint64_t head) {
    reader->head = reader->next = head;
    rp_store_release(&reader->ring->head, head); /* our reads of what lies before it are done */
    ring_waiting_producer(reader); /* without a fence: may be missed here, but not when the ring is found empty */
}

static rp_status found_empty(rp_ring_reader *reader) {
    if (reader->head_fenced != reader->head) {
        reader->head_fenced = reader->head;
        rp_full_fence(); /* orders the store of head before the load of producer_waiting */
        ring_waiting_producer(reader);
    }
    return RP_EMPTY;
}

/* Add one part to the message under assembly. RP_OK: it is complete; RP_INCOMPLETE: continue with the next part. */
static rp_status take_part(rp_ring_reader *reader, const message_header *header, const uint8_t *payload) {
    uint32_t size = header->size;
    if (header->part == PART_FIRST) {
        uint64_t total;
        drop_large(reader); /* of a producer that did not live to finish it */
        memcpy(&total, payload, sizeof total);
        reader->large = malloc(total);
        if (reader->large == NULL) return RP_NO_MEMORY;
        reader->large_size = (uint32_t)total;
        reader->large_type = header->type;
        reader->large_have = 0;
        payload += TOTAL_SIZE;
        size -= TOTAL_SIZE;
    }
    /* A part without a beginning: the previous process read the beginning and died. The client repeats the request. */
    if (reader->large == NULL || size > reader->large_size - reader->large_have) return RP_INCOMPLETE;
    memcpy(reader->large + reader->large_have, payload, size);
    reader->large_have += size;
    return reader->large_have == reader->large_size ? RP_OK : RP_INCOMPLETE;
}

rp_status rp_ring_read(rp_ring_reader *reader, const uint8_t **data, uint32_t *size, uint16_t *type) {
    while (!reader->large_held) {
        message_header header;
        if (reader->head == reader->tail_seen) {
            reader->tail_seen = rp_load_acquire(&reader->ring->tail);
            if (reader->head == reader->tail_seen) return found_empty(reader);
        }
        const uint8_t *at = message_at(reader->ring, reader->head);
        memcpy(&header, at, sizeof header);
        reader->next = reader->head + message_span(header.size);
        if (header.part == PART_WHOLE) {
            if (reader->large != NULL) drop_large(reader);
            *data = at + MESSAGE_HEADER;
            *size = header.size;
            *type = header.type;
            return RP_OK;
        }
        rp_status status = take_part(reader, &header, at + MESSAGE_HEADER);
        if (status == RP_NO_MEMORY) return status;
        reader->large_held = status == RP_OK;
        if (!reader->large_held) move_head(reader, reader->next);
    }
    *data = reader->large;
    *size = reader->large_size;
    *type = reader->large_type;
    return RP_OK;
}

const uint8_t *rp_ring_peek(const rp_ring_reader *reader, uint32_t *size, uint16_t *type) {
    message_header header;
    if (rp_ring_is_empty(reader) || reader->large_held) return NULL;
    const uint8_t *at = message_at(reader->ring, reader->head);
    memcpy(&header, at, sizeof header);
    *size = header.size;
    *type = header.type;
    return header.part == PART_WHOLE ? at + MESSAGE_HEADER : NULL;
}

void rp_ring_release(rp_ring_reader *reader) {
    if (reader->large_held) drop_large(reader);
    move_head(reader, reader->next);
}

uint64_t rp_ring_head_after(const rp_ring_reader *reader) { return reader->next; }

void rp_ring_skip_to(rp_ring_reader *reader, uint64_t head) {
    if (head <= reader->head || head > rp_load_acquire(&reader->ring->tail)) return;
    drop_large(reader);
    move_head(reader, head);
}

int rp_ring_is_empty(const rp_ring_reader *reader) {
    return !reader->large_held && reader->head == rp_load_acquire(&reader->ring->tail);
}
