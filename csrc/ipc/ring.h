#ifndef ROCKETPY_RING_H
#define ROCKETPY_RING_H
/* Rings: byte queues between two processes, and the doorbells that wake their consumers.
 *
 * A ring has one producer process and one consumer process. It lives in a memfd that is mapped before the workers
 * are forked, its data twice in a row, so that a record is always contiguous. A worker has one doorbell (an eventfd)
 * for everything it waits for; it is rung only when the worker has declared itself asleep. Waiting is race-free:
 *   consumer: asleep = 1; full fence; look at every ring once more; block on the doorbell only if all are empty
 *   producer: publish the tail; full fence; if the consumer's asleep was 1, swap it to 0 and write the doorbell
 * and likewise for a producer that waits for room (producer_waiting). tests/unit/reactor/test_ring_wake_model.py
 * checks every order of these steps.
 *
 * A record larger than a quarter of the ring crosses in parts: the writer keeps its copy until all parts are out,
 * the reader assembles it in private memory; each side holds at most one. A producer that dies mid-write leaves
 * nothing: the tail moves only after the whole part is in place. */
#include <stdint.h>
#include "base/status.h"

enum {
    RP_COUNTERS_MAX = 128,
    RP_RESUME_POINTS_MAX = 16,
    RP_RING_RECORD_MAX = 1 << 30 /* bytes, of a ring's capacity too */
};

/* The worker block: the state of a worker that all processes can read. 64-byte aligned pieces. It is zeroed when the
 * worker is (re)started, except for resume points and counters, which only grow. */
typedef struct rp_worker {
    uint32_t asleep;       /* 1: ring the doorbell after publishing */
    uint32_t stop;         /* 1: finish what is in the rings and leave */
    uint32_t ready;        /* 1: serving */
    int32_t doorbell;      /* eventfd, the same number in every process */
    uint32_t index;        /* in the supervisor's list of workers */
    uint32_t epoch;        /* number of starts of this worker */
    uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the last turn of its loop */
    uint64_t busy_since_ns; /* start of the current pass, 0 between passes; send only: shows a stalled append */
    uint64_t serving; /* connection whose request is being served; 0: none */
    uint64_t suspect; /* set by the supervisor: connection whose request the last worker crashed on; 0: none */
    uint64_t reserved;
    uint64_t counters[RP_COUNTERS_MAX]; /* RP_COUNT_* of worker_messages.h; plain stores by the worker alone */
    /* Per input ring: the position up to which its messages are processed, so that a restarted worker neither repeats
     * nor drops one. The input up to `source_head` is processed once the ring `output` has reached `output_position`.
     * */
    struct {
        uint64_t source_head;
        uint64_t output_position;
        uint32_t output;
        uint32_t reserved;
    } resume_points[RP_RESUME_POINTS_MAX];
} rp_worker;

typedef struct rp_span {
    const void *data;
    uint32_t size;
} rp_span;

typedef struct rp_ring rp_ring; /* shared; opaque */
typedef struct rp_ring_writer rp_ring_writer; /* private to the producer process */
typedef struct rp_ring_reader rp_ring_reader; /* private to the consumer process */

/* A zeroed, shared rp_worker with its eventfd; NULL with errno. Call before forking. */
rp_worker *rp_worker_create(uint32_t index);
/* Ring the doorbell if the worker is asleep (or `force`). */
void rp_worker_wake(rp_worker *worker, int force);
/* Prepare to sleep: asleep = 1 and a full fence. Check all inputs again before you block. */
void rp_worker_prepare_sleep(rp_worker *worker);
/* Block on the doorbell until rung or `timeout_ns` passed (for loops that wait for nothing else), then awake. */
void rp_worker_sleep(rp_worker *worker, int64_t timeout_ns);
/* asleep = 0 and drain the doorbell; after any other way of waiting on it. */
void rp_worker_end_sleep(rp_worker *worker);

/* Create a ring of `capacity` bytes (a power of two, at least 64 KiB) and map it. Call before forking. */
rp_ring *rp_ring_create(uint32_t capacity, rp_worker *producer, rp_worker *consumer);
void rp_ring_destroy(rp_ring *ring);
/* Bytes written and not yet released; for metrics. */
uint64_t rp_ring_depth(const rp_ring *ring);
/* Any process, for statistics: copy the first `head_size` (<= 64) bytes of the next record in the ring. Returns its
 * size, or 0 if the ring is empty or the consumer has released the record meanwhile. */
uint32_t rp_ring_copy_head(const rp_ring *ring, void *head, uint32_t head_size);
uint64_t rp_ring_tail(const rp_ring *ring);
uint32_t rp_ring_capacity(const rp_ring *ring);
const rp_worker *rp_ring_consumer(const rp_ring *ring);

/* Producer. A restarted producer opens a new writer on the same ring. */
rp_ring_writer *rp_ring_writer_open(rp_ring *ring);
void rp_ring_writer_close(rp_ring_writer *writer);
/* Room for a record of `size` bytes, to be built in place. NULL if the ring is full (it rings the producer's doorbell
 * when there is room again), or if the record is larger than a quarter of the ring (then use rp_ring_write). */
uint8_t *rp_ring_reserve(rp_ring_writer *writer, uint32_t size);
/* Publish the record built at the last reserve, cut to `size`; does not wake: see rp_ring_wake. 8 <= size. */
void rp_ring_commit(rp_ring_writer *writer, uint32_t size, uint16_t type);
/* Write a record of any size. A large one is copied and crosses in parts, which rp_ring_pump and later writes send
 * first. RP_OK: accepted; RP_FULL: not accepted; RP_NO_MEMORY. */
rp_status rp_ring_write(rp_ring_writer *writer, uint16_t type, const rp_span *spans, uint32_t span_count);
/* 1 if rp_ring_write will accept the next record, of up to `size` bytes. */
int rp_ring_can_take(rp_ring_writer *writer, uint32_t size);
/* Continue to write a large record; RP_OK when no part is left. */
rp_status rp_ring_pump(rp_ring_writer *writer);
/* Wake the consumer if anything was published since the last call. Once per batch. */
void rp_ring_wake(rp_ring_writer *writer);
/* The position of the tail after the reserved record is committed with `size` bytes; for resume points. */
uint64_t rp_ring_tail_after(const rp_ring_writer *writer, uint32_t size);

/* Consumer. The reader of a restarted consumer continues at the ring's head. */
rp_ring_reader *rp_ring_reader_open(rp_ring *ring);
void rp_ring_reader_close(rp_ring_reader *reader);
/* The next whole record, 8-aligned, valid until released: RP_OK, RP_EMPTY, RP_NO_MEMORY. Parts of a large record are
 * assembled; an incomplete record of a restarted producer is discarded. */
rp_status rp_ring_read(rp_ring_reader *reader, const uint8_t **data, uint32_t *size, uint16_t *type);
/* The bytes of the next record, without removing it; NULL if there is none or if it crosses in parts. */
const uint8_t *rp_ring_peek(const rp_ring_reader *reader, uint32_t *size, uint16_t *type);
/* Release the record that was read last: frees its room and wakes a producer that waits for room. */
void rp_ring_release(rp_ring_reader *reader);
/* The position of the head after rp_ring_release; for resume points. */
uint64_t rp_ring_head_after(const rp_ring_reader *reader);
/* Skip everything before `head`, which the previous process has handled according to its resume point. */
void rp_ring_skip_to(rp_ring_reader *reader, uint64_t head);
int rp_ring_is_empty(const rp_ring_reader *reader);
#endif
