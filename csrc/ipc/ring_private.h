#ifndef ROCKETPY_RING_PRIVATE_H
#define ROCKETPY_RING_PRIVATE_H
/* What the files of a ring share: its memory. For ring.c, ring_writer.c and ring_reader.c alone.
 *
 * A ring is one memfd: a page of positions, then the data. The data is mapped twice in a row, so a message that wraps
 * around is contiguous all the same. All of it is mapped before the fork and therefore at the same address in every
 * process. Positions are counts of bytes since the ring was created; they never wrap (2^64 bytes).
 *
 *   message:  size(4)  type(2)  part(2)  payload, padded to 8       part: 0 whole, 1 first, 2 next
 *   first part of a large message: payload = total size(8), then its first bytes
 *
 * The producer stores tail and producer_waiting = 1, the consumer head and producer_waiting = 0. Each side caches the
 * other's position, and reads the shared one only when the ring seems full or empty: in a busy ring the two cache lines
 * move between the cores once per batch. */
#include <stdint.h>
#include "ipc/ring.h"

enum {
    MESSAGE_HEADER = 8,
    TOTAL_SIZE = 8,
    CAPACITY_MIN = 65536,
    CAPACITY_MAX = RP_RING_MESSAGE_MAX,
    HEADER_PAGE = 4096
};
enum { PART_WHOLE = 0, PART_FIRST = 1, PART_NEXT = 2 };

struct rp_ring {
    uint8_t *data;
    uint64_t mask;
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
static inline uint8_t *message_at(rp_ring *ring, uint64_t position) { return ring->data + (position & ring->mask); }
#endif
