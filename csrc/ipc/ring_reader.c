/* The consumer's end of a ring: read, release; a large message is assembled from its parts. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "ipc/ring.h"
#include "ipc/ring_private.h"

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
        if (status == RP_OK)
            reader->large_held = 1;
        else
            move_head(reader, reader->next);
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
