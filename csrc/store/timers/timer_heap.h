#ifndef ROCKETPY_TIMER_HEAP_H
#define ROCKETPY_TIMER_HEAP_H
/* Pending timers in memory: a heap by time, then number. C only; one thread. */
#include <stdint.h>
#include "base/status.h"

/* One pending timer; a run file is a row of these. */
typedef struct rp_timer {
    int64_t due_ms;      /* of the broker's clock */
    uint64_t number;     /* offset in the timer queue */
    uint64_t phy_offset; /* of its record */
    uint32_t size;       /* of its record */
    uint32_t is_renewal; /* in memory only: it was given away to be stored again; 0 in files */
} rp_timer;
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
#endif
