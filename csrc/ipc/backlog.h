#ifndef ROCKETPY_BACKLOG_H
#define ROCKETPY_BACKLOG_H
/* A queue in private memory for messages to a ring that is full, so that messages to other rings need not wait for it
 * (docs/adr/0070).
 *
 * Bounded by bytes, overhead included: RP_BACKLOG_BYTES in total. A connection may use as many bytes as are still free,
 * or hold one message of any size, so a single connection gets at most half of the room. Messages that belong to no
 * client (connection RP_CONNECTION_INTERNAL) have RP_BACKLOG_INTERNAL_BYTES of their own. Single-threaded. C only. */
#include <stddef.h>
#include <stdint.h>
#include "base/map.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

enum { RP_BACKLOG_BYTES = 32 << 20, RP_BACKLOG_INTERNAL_BYTES = 8 << 20 };

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
    uint64_t bytes;     /* held for clients */
    uint64_t internal_bytes; /* held for RP_CONNECTION_INTERNAL */
    rp_map shares;      /* connection -> bytes held for it */
} rp_backlog;

int rp_backlog_init(rp_backlog *backlog, rp_ring_writer *writer); /* 0, or -1 without memory */
void rp_backlog_destroy(rp_backlog *backlog);
static inline int rp_backlog_is_empty(const rp_backlog *backlog) { return backlog->first == NULL; }
/* 1 if a message of `connection` waits here: its next message must then wait here too. */
int rp_backlog_has(const rp_backlog *backlog, uint64_t connection);
/* 1 if an internal message of `size` bytes is sure to be taken. */
int rp_backlog_has_room(const rp_backlog *backlog, uint32_t size);
/* Append a copy of the message. RP_OK; RP_FULL: it would exceed a bound; RP_NO_MEMORY. */
rp_status rp_backlog_keep(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans,
                          uint32_t span_count);
/* Write the message to the ring if nothing waits and the ring has room, else rp_backlog_keep. */
rp_status rp_backlog_put(rp_backlog *backlog, uint64_t connection, uint16_t type, const rp_span *spans,
                         uint32_t span_count);
/* Remove the first message. */
void rp_backlog_pop(rp_backlog *backlog);
/* Move messages to the ring while it has room. */
void rp_backlog_flush(rp_backlog *backlog);
#endif
