#ifndef ROCKETPY_TIMER_HEAP_H
#define ROCKETPY_TIMER_HEAP_H
/* Pending timers in memory: a heap by time, then number. C only; one thread. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/worker_messages.h"

typedef rp_msg_timer rp_timer; /* one pending timer */
_Static_assert(sizeof(rp_timer) == 32, "as in run files");

/* Below 0, 0, above 0: `a` comes before, is, comes after `b`; for qsort, too. */
int rp_timer_compare(const void *a, const void *b);

typedef struct rp_timer_heap {
    rp_timer *timers; /* owned; the first is the least */
    uint32_t count;
    uint32_t capacity;
} rp_timer_heap;

/* RP_OK, RP_NO_MEMORY. Grows by doubling. */
rp_status rp_timer_heap_push(rp_timer_heap *heap, const rp_timer *timer);
/* Remove the first; the heap is not empty. */
void rp_timer_heap_pop(rp_timer_heap *heap);
void rp_timer_heap_destroy(rp_timer_heap *heap);

/* Timers that the send worker has refused for now, mostly because the disk is full: all are tried again once in
 * RP_TIMER_RETRY_MS. C only; one thread. */

enum { RP_TIMER_REFUSED_MAX = 4096, RP_TIMER_RETRY_MS = 1000 };

typedef struct rp_timer_refused {
    rp_timer *timers; /* owned; RP_TIMER_REFUSED_MAX of them, a circle */
    uint64_t begin;   /* those from here on are tried now ... */
    uint64_t later;   /* ... and those from here on at retry_ms */
    uint64_t end;
    int64_t retry_ms; /* of the broker's clock */
} rp_timer_refused;

rp_status rp_timer_refused_init(rp_timer_refused *refused); /* RP_OK, RP_NO_MEMORY */
void rp_timer_refused_destroy(rp_timer_refused *refused);
static inline uint64_t rp_timer_refused_count(const rp_timer_refused *refused) { return refused->end - refused->begin; }
/* Called only with fewer than RP_TIMER_REFUSED_MAX. */
void rp_timer_refused_add(rp_timer_refused *refused, const rp_timer *timer, int64_t now_ms);
/* The first that is to be tried now, or NULL; it stays until it is taken. */
const rp_timer *rp_timer_refused_first(rp_timer_refused *refused, int64_t now_ms);
void rp_timer_refused_take(rp_timer_refused *refused);
/* Forget the timer if it is there: it was cancelled or moved. */
void rp_timer_refused_drop(rp_timer_refused *refused, uint64_t number);
/* Copy all to `out`; returns their number. */
uint64_t rp_timer_refused_copy(const rp_timer_refused *refused, rp_timer *out);
#endif
