#ifndef ROCKETPY_CONNECTION_H
#define ROCKETPY_CONNECTION_H
/* The connections of one selector: slots, the list of idle ones, and queued output. Private to the selector; nothing
 * here blocks or uses rings. */
#include <stdint.h>
#include <sys/uio.h>
#include "base/host.h"
#include "ipc/worker_messages.h"
#include "store/log/log_view.h"
#include "store/log/record.h"

enum { NO_SLOT = UINT32_MAX };
enum { IDLE, REST, LISTS }; /* of connections: by their last traffic, and those with a rest by its beginning */

enum { /* rp_connection.flags */
       CONNECTION_OPEN = 1,        /* has a socket */
       CONNECTION_GREETED = 2,     /* the codec has received a frame of it, so a CLOSED must follow */
       CONNECTION_STALLED = 4,     /* waits for room in the ring to its codec */
       CONNECTION_CHOKED = 8,      /* its output passed the high-water mark */
       CONNECTION_BLOCKED = 16,    /* the socket is not writable now */
       CONNECTION_CLOSE_AFTER = 32,/* close once the output is written */
       CONNECTION_DIRTY = 64,      /* in the list of connections with output */
       CONNECTION_PROXIED = 128,   /* its PROXY header is not complete yet */
       CONNECTION_NO_OUTPUT = 256, /* its peer takes no more output; what it sent before is still to be read */
       CONNECTION_NEW = 512,       /* its first byte, which tells TLS from plain frames, has not come */
       CONNECTION_TLS = 1024,      /* its socket leads to a TLS worker, which has the client's */
       CONNECTION_THROTTLED = 2048 /* is not read for a while (throttle.c) */
};

/* A piece of output: bytes in memory, or a slice of the mapped log. */
typedef struct rp_segment {
    struct rp_segment *next;
    const uint8_t *data;  /* the bytes still to be written ... */
    uint32_t size;
    uint32_t room;        /* free bytes after it, in a block of our own */
    uint64_t phy_offset;  /* to release the mapping with */
    uint32_t capacity;    /* of `bytes` */
    uint8_t is_mapped;
    uint8_t is_block;     /* of the usual size, goes back to the pool */
    uint8_t bytes[];
} rp_segment;

/* 128 bytes: the cost of an idle connection beside its socket. */
typedef struct rp_connection {
    int32_t fd;
    uint32_t generation;
    uint32_t interest;     /* events requested from epoll */
    uint16_t flags;
    uint8_t listener;
    uint8_t due;           /* of a throttled one, the slot of the wheel */
    rp_host peer;
    uint32_t active_s;     /* CLOCK_MONOTONIC of the last traffic */
    uint32_t next_free; /* of a throttled one, which is neither free nor stalled: the next in its slot of the wheel */
    uint32_t next_stalled; /* of a throttled one: the one before in its slot */
    uint32_t next_dirty;
    uint32_t older[LISTS]; /* neighbours in each list */
    uint32_t newer[LISTS];
    uint32_t rest_size; /* bytes read but not passed on: an incomplete frame, or frames of a stalled connection */
    uint32_t rest_capacity;
    uint32_t limits_row; /* its row in the limits of addresses; 0: none */
    uint8_t *rest;
    uint64_t received_ns; /* when the last bytes of `rest` arrived */
    rp_segment *first; /* output, in order */
    rp_segment *last;
    uint64_t queued_bytes; /* of all segments */
    uint64_t output_memory; /* bytes that the segments take: less than queued_bytes where they are slices, or more */
} rp_connection;

typedef struct rp_connections {
    rp_connection *slots;
    uint32_t count_max;
    uint32_t slots_used; /* slots below it have been used at least once */
    uint32_t first_free;
    uint32_t first_retired; /* slots that have used all their generations, in that order */
    uint32_t last_retired;
    uint32_t oldest[LISTS];
    uint32_t newest[LISTS];
    uint32_t open_count;
    uint32_t generation_base;
    uint64_t rest_bytes; /* room taken by all rests */
    uint64_t output_memory; /* of all connections */
    rp_log_view *log;
    rp_segment *pool; /* blocks for reuse */
    uint32_t pool_count;
} rp_connections;

/* RP_NO_MEMORY or RP_OK. Slots are mapped at once and cost memory when first used. */
rp_status rp_connections_open(rp_connections *all, uint32_t count_max, uint32_t epoch, rp_log_view *log);
void rp_connections_close(rp_connections *all);

/* A free slot, zeroed except for its new generation; NO_SLOT if there is none. */
uint32_t rp_connections_take(rp_connections *all);
void rp_connections_give_back(rp_connections *all, uint32_t slot);

/* There was traffic: move the connection to the young end of the idle list. Cheap if called more than once a second. */
void rp_connection_touch(rp_connections *all, uint32_t slot, uint32_t now_s);
void rp_connection_untrack(rp_connections *all, uint32_t slot);

/* Keep `size` bytes at `data` (which may lie in the old rest) as the rest, in a buffer of at least `capacity`. */
rp_status rp_connection_keep(rp_connections *all, rp_connection *connection, const uint8_t *data, uint32_t size,
                             uint32_t capacity);
/* A larger buffer for the same rest. */
rp_status rp_connection_grow_rest(rp_connections *all, rp_connection *connection, uint32_t capacity);
/* The rest now holds the beginning of a new frame. */
void rp_connection_renew_rest(rp_connections *all, rp_connection *connection);
void rp_connection_drop_rest(rp_connections *all, rp_connection *connection);

/* Queue output. RP_OK; RP_NO_MEMORY; RP_NOT_FOUND: that part of the log has been deleted. */
rp_status rp_connection_queue(rp_connections *all, rp_connection *connection, const uint8_t *data, uint32_t size);
rp_status rp_connection_queue_slice(rp_connections *all, rp_connection *connection, const rp_slice *slice);
/* The first pieces of output as vectors; returns how many. */
uint32_t rp_connection_gather(const rp_connection *connection, struct iovec *vectors, uint32_t vectors_max);
/* `size` bytes of output were written. */
void rp_connection_written(rp_connections *all, rp_connection *connection, uint64_t size);
void rp_connection_drop_output(rp_connections *all, rp_connection *connection);
#endif
