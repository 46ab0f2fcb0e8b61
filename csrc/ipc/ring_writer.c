/* The producer's end of a ring: reserve, commit, wake; a large message leaves in parts. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "ipc/ring.h"
#include "ipc/ring_private.h"

struct rp_ring_writer {
    rp_ring *ring;
    uint64_t tail;       /* ours; equals ring->tail between calls */
    uint64_t head_seen;  /* the consumer had come at least this far */
    uint64_t tail_woken; /* the consumer knows of everything below */
    uint8_t *large;      /* our copy of a message that is leaving in parts, or NULL */
    uint32_t large_size;
    uint32_t large_sent;
    uint16_t large_type;
};

rp_ring_writer *rp_ring_writer_open(rp_ring *ring) {
    rp_ring_writer *writer = calloc(1, sizeof *writer);

    if (writer == NULL) return NULL;
    writer->ring = ring;
    writer->tail = rp_load_acquire(&ring->tail);
    writer->head_seen = rp_load_acquire(&ring->head);
    writer->tail_woken = writer->head_seen; /* the previous process may have died between publish and wake-up */
    return writer;
}

void rp_ring_writer_close(rp_ring_writer *writer) {
    if (writer == NULL) return;
    free(writer->large);
    free(writer);
}

/* 1 if `span` bytes fit. If not, the consumer wakes the producer when half of the ring is free again, which is room for
 * any piece. The second check is after the fence: either it sees the consumer's new head, or the consumer sees that the
 * producer waits. */
static int has_room(rp_ring_writer *writer, uint64_t span) {
    rp_ring *ring = writer->ring;
    uint64_t used_max = ring->capacity - span;

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

    memcpy(message_at(writer->ring, writer->tail), &header, sizeof header);
    writer->tail += message_span(size);
    rp_store_release(&writer->ring->tail, writer->tail); /* publishes header and payload */
}

rp_status rp_ring_pump(rp_ring_writer *writer) {
    uint32_t piece_max = writer->ring->capacity / 8; /* several fit, so that both sides work at once */

    while (writer->large != NULL) {
        int first = writer->large_sent == 0;
        uint32_t prefix = first ? TOTAL_SIZE : 0;
        uint32_t rest = writer->large_size - writer->large_sent;
        uint32_t piece = rest < piece_max ? rest : piece_max;

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
    uint32_t small_max = writer->ring->small_max;

    /* Also for a large message: it may become small, and then needs its room at once. */
    return rp_ring_reserve(writer, size < small_max ? size : small_max) != NULL;
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
    rp_worker_wake(writer->ring->consumer, 0);
}

uint64_t rp_ring_tail_after(const rp_ring_writer *writer, uint32_t size) { return writer->tail + message_span(size); }
