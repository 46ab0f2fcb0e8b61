#ifndef ROCKETPY_RING_H
#define ROCKETPY_RING_H
/* Rings: byte queues between two processes.
 *
 * A ring has one producer process and one consumer process. It lives in a memfd that is mapped before the workers
 * are forked, its data twice in a row, so that a message is always contiguous. How a consumer sleeps and is woken is in
 * worker.h; a producer that waits for room (producer_waiting) does likewise.
 *
 * A message larger than a quarter of the ring crosses in parts: the writer keeps its copy until all parts are out,
 * the reader assembles it in private memory; each side holds at most one. A producer that dies mid-write leaves
 * nothing: the tail moves only after the whole part is in place. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/worker.h"

enum { RP_RING_MESSAGE_MAX = 1 << 30 }; /* bytes, of a ring's capacity too */
enum { RP_RING_UNHURRIED = 1 << 15 }; /* in a type: it wakes no consumer that naps, unless the ring is half full */

typedef struct rp_span {
    const void *data;
    uint32_t size;
} rp_span;

typedef struct rp_ring rp_ring; /* shared; opaque */
typedef struct rp_ring_writer rp_ring_writer; /* private to the producer process */
typedef struct rp_ring_reader rp_ring_reader; /* private to the consumer process */

/* Create a ring of `capacity` bytes (a power of two, at least 64 KiB) and map it, for good. Call before forking. */
rp_ring *rp_ring_create(uint32_t capacity, rp_worker *producer, rp_worker *consumer);
/* Bytes written and not yet released; for metrics. */
uint64_t rp_ring_depth(const rp_ring *ring);
/* Any process, for statistics: copy the first `head_size` (<= 64) bytes of the next message in the ring. Returns its
 * size, or 0 if the ring is empty or the consumer has released the message meanwhile. */
uint32_t rp_ring_copy_head(const rp_ring *ring, void *head, uint32_t head_size);
uint64_t rp_ring_tail(const rp_ring *ring);
uint32_t rp_ring_capacity(const rp_ring *ring);
const rp_worker *rp_ring_consumer(const rp_ring *ring);

/* Producer. A restarted producer opens a new writer on the same ring. */
rp_ring_writer *rp_ring_writer_open(rp_ring *ring);
void rp_ring_writer_close(rp_ring_writer *writer);
/* Room for a message of `size` bytes, to be built in place. NULL if the ring is full (it rings the producer's doorbell
 * when there is room again), or if the message is larger than a quarter of the ring (then use rp_ring_write). Commit it
 * before any other call on this writer, which may move the ring's origin. */
uint8_t *rp_ring_reserve(rp_ring_writer *writer, uint32_t size);
/* Publish the message built at the last reserve, cut to `size`; does not wake: see rp_ring_wake. 8 <= size. */
void rp_ring_commit(rp_ring_writer *writer, uint32_t size, uint16_t type);
/* Write a message of any size. A large one is copied and crosses in parts, which rp_ring_pump and later writes send
 * first. RP_OK: accepted; RP_FULL: not accepted; RP_NO_MEMORY. */
rp_status rp_ring_write(rp_ring_writer *writer, uint16_t type, const rp_span *spans, uint32_t span_count);
/* 1 if rp_ring_write will accept the next message, of up to `size` bytes. */
int rp_ring_can_take(rp_ring_writer *writer, uint32_t size);
/* Continue to write a large message; RP_OK when no part is left. */
rp_status rp_ring_pump(rp_ring_writer *writer);
/* Wake the consumer if anything was published since the last call. Once per batch. */
void rp_ring_wake(rp_ring_writer *writer);
/* The position of the tail after the reserved message is committed with `size` bytes; for resume points. */
uint64_t rp_ring_tail_after(const rp_ring_writer *writer, uint32_t size);

/* Consumer. The reader of a restarted consumer continues at the ring's head. */
rp_ring_reader *rp_ring_reader_open(rp_ring *ring);
void rp_ring_reader_close(rp_ring_reader *reader);
/* The next whole message, 8-aligned, valid until released: RP_OK, RP_EMPTY, RP_NO_MEMORY. Parts of a large message are
 * assembled; an incomplete message of a restarted producer is discarded. */
rp_status rp_ring_read(rp_ring_reader *reader, const uint8_t **data, uint32_t *size, uint16_t *type);
/* The bytes of the next message, without removing it; NULL if there is none or if it crosses in parts. */
const uint8_t *rp_ring_peek(const rp_ring_reader *reader, uint32_t *size, uint16_t *type);
/* Release the message that was read last: frees its room and wakes a producer that waits for room. */
void rp_ring_release(rp_ring_reader *reader);
/* The position of the head after rp_ring_release; for resume points. */
uint64_t rp_ring_head_after(const rp_ring_reader *reader);
/* Skip everything before `head`, which the previous process has handled according to its resume point. */
void rp_ring_skip_to(rp_ring_reader *reader, uint64_t head);
int rp_ring_is_empty(const rp_ring_reader *reader);
#endif
