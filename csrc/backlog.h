#ifndef ROCKETPY_BACKLOG_H
#define ROCKETPY_BACKLOG_H
/* Records on their way to a ring that has no room for a while, kept in order and in private memory, so that whatever comes
 * behind them on its way to somewhere else does not wait with them.
 *
 * Bounded by bytes, overhead included: in total, and for each connection, which may have as much as is still free, or one
 * record of any size: one alone gets half of the room, and a flood leaves room for others. What is not a client's
 * (connection RP_CONNECTION_INTERNAL) has room of its own. Single-threaded. C only. */
#include <stddef.h>
#include <stdint.h>
#include "map.h"
#include "ring.h"
#include "stage.h"

enum { RP_BACKLOG_BYTES = 32 << 20, RP_BACKLOG_OWN_BYTES = 8 << 20 };

typedef struct rp_backlog_entry {
    struct rp_backlog_entry *next;
    uint64_t connection;
    uint32_t size;
    uint16_t type;
    uint16_t reserved;
    uint8_t data[];
} rp_backlog_entry;

typedef struct rp_backlog {
    rp_ring_writer *writer; /* the caller's */
    uint64_t bytes_max; /* of clients: RP_BACKLOG_BYTES, or what the owner sets after init */
    rp_backlog_entry *first, *last;
    uint64_t bytes;     /* of clients */
    uint64_t own_bytes; /* of others */
    rp_map shares;      /* connection -> bytes that it has here */
} rp_backlog;

int rp_backlog_init(rp_backlog *backlog, rp_ring_writer *writer); /* 0, or -1 without memory */
void rp_backlog_destroy(rp_backlog *backlog);
static inline int rp_backlog_is_empty(const rp_backlog *backlog) { return backlog->first == NULL; }
/* Whether a record of `connection` waits here: what it sends next must not overtake it. */
int rp_backlog_has(const rp_backlog *backlog, uint64_t connection);
/* Whether a record of ours, of `size` bytes, is sure to be taken. */
int rp_backlog_has_room(const rp_backlog *backlog, uint32_t size);
/* Behind what waits: RP_OK; RP_FULL, a bound would be passed; RP_NO_MEMORY. */
rp_status rp_backlog_keep(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans, uint32_t span_count);
/* Into the ring if nothing waits and there is room, else as rp_backlog_keep. */
rp_status rp_backlog_put(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans, uint32_t span_count);
/* The first is done with. */
void rp_backlog_pop(rp_backlog *backlog);
/* Move to the ring what it has room for. */
void rp_backlog_flush(rp_backlog *backlog);
#endif
