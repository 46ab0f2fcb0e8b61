#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H
/* What the three parts of the driver share. Calls go one way: load.c (the loop) -> replies.c (finishes requests) ->
 * requests.c (starts them) -> wire.c, clock.c. */
#include <netinet/in.h>
#include <stdint.h>
#include "channel.h"
#include "histogram.h"
#include "load.h"

enum { IN_SIZE_FIRST = 262144 }; /* a connection's input; grows up to one frame of the largest size */

typedef struct buffer {
    uint8_t *bytes;
    uint64_t start, end, capacity;
} buffer;

typedef struct slot {
    int64_t started_ns; /* open loop: when it was due */
    uint64_t key;
    uint64_t offset;
    uint32_t queue;
    uint32_t opaque;
    uint32_t messages;
    uint32_t busy;
} slot;

typedef struct connection {
    int fd; /* -1: lost */
    channel channel;
    uint32_t index;
    uint32_t is_consumer, connecting, waits_to_write, is_dirty;
    uint32_t slot_count, free_count, generation;
    slot *slots;
    uint32_t *free_slots; /* indices, a stack */
    buffer in, out;
    int64_t lost_ns, last_ok_ns;
    load_connection_stats stats;
} connection;

struct load {
    load_config config;
    struct sockaddr_in address;
    tls_client *tls; /* NULL: plain connections */
    int epoll;
    uint32_t stop;
    uint32_t connection_count, alive, in_flight;
    uint32_t template_size_max;
    connection *connections;
    uint32_t *dirty; /* connections with bytes to flush, indices */
    uint32_t dirty_count;
    uint32_t next_queue, next_connection;
    uint64_t next_key, started, due; /* requests started ever; open loop: requests due so far */
    int64_t open_loop_ns, tick_ns, last_ok_ns;
    uint64_t *cursors; /* per queue: LOAD_PULL walks, or the state of its random order; the others follow */
    uint8_t *asked;    /* per queue, LOAD_FILTERED: a pull is in flight */
    load_stats stats;
    load_ack *acks;
    uint64_t ack_count, ack_capacity;
    histogram latency, end_to_end;
};

/* Counters have one writer; other threads may look at them. */
static inline void count(uint64_t *counter, uint64_t n) { __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED); }

/* requests.c */
/* Blocking for the first time, so that a run starts whole; without waiting when a connection is opened again. */
int connection_open(load *l, connection *c, int again);
/* Close; what was in flight on it is lost. */
void connection_lose(load *l, connection *c);
int connection_watch(load *l, connection *c, int operation, uint32_t events);
void slot_free(load *l, connection *c, slot *s);
int may_start(const load *l);
/* Send the end of a half message behind what is already waiting. -1: the peer reads too slowly. */
int send_end(load *l, connection *c, uint64_t queue_offset, uint64_t phy_offset);
/* -1: no free slot, or the peer reads too slowly. */
int start_pull(load *l, connection *c, uint32_t queue, uint64_t offset, int64_t now);
/* An end-to-end consumer holds one pull per queue; the queues are shared out among the consumers. */
void hold_pulls(load *l, connection *c, int64_t now);
/* Closed loop: fill up what is free. */
void fill(load *l, connection *c, int64_t now, int drain);
/* Open loop: start all that is due, on the connections in turn; what finds no free slot stays due. */
void fill_due(load *l, int64_t now);
int64_t due_ns(const load *l);
void flush(load *l, connection *c);
void flush_dirty(load *l);

/* replies.c */
void receive(load *l, connection *c, int drain);
#endif
