#ifndef ROCKETPY_TIMER_INDEX_H
#define ROCKETPY_TIMER_INDEX_H
/* All pending timers in order of time: a heap in memory, and runs on the disk (docs/adr/0110). A timer may be in it
 * several times; one that has ended or is under way is passed over. C only; one thread. */
#include <stdint.h>
#include "base/map.h"
#include "base/status.h"
#include "store/timers/timer_heap.h"
#include "store/timers/timer_marks.h"

/* Runs: files of pending timers sorted by time (docs/understand/file-formats-own.md). Written once, read once in order,
 * then removed. */

typedef struct rp_timer_run rp_timer_run;

/* Write the files named [from, to), if there are any with their names, to the disk; those that are gone do not matter.
 * Any thread. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timer_runs_sync(const char *directory, uint64_t from, uint64_t to);

enum {
    RP_TIMER_HEAP_MAX = 131072, /* timers in memory, before they become a run */
    RP_TIMER_UNFILED_TIMES = 32, /* times as many numbers a restart may have to read again */
    RP_TIMER_RUNS_MAX = 8192
};

typedef struct rp_timer_index {
    char *directory; /* of the runs; owned */
    rp_timer_marks *marks; /* borrowed */
    const rp_number_set *under_way; /* borrowed */
    rp_timer_heap heap; /* timers are added here */
    uint32_t heap_max; /* RP_TIMER_HEAP_MAX; less in tests */
    rp_timer_run **runs; /* owned */
    uint32_t run_count;
    uint32_t run_capacity;
    rp_timer_run *source; /* of the timer that rp_timer_index_first has returned; NULL: the heap */
    uint64_t oldest_run;  /* no run that was there at the start has a lower name */
} rp_timer_index;

/* Open the runs of a directory, which exists or is created. Numbers from header->filed on are to be added, and runs
 * that have such numbers are removed. It is moved back if a run is missing or damaged, or if it is past `end`, the
 * end of the queue. RP_OK, RP_NO_MEMORY, RP_IO_ERROR with errno. */
rp_status rp_timer_index_open(rp_timer_index *index, const char *directory, rp_timer_marks *marks,
                              const rp_number_set *under_way, uint64_t end);
void rp_timer_index_close(rp_timer_index *index);
/* The timer that is due first, or NULL; valid until the next call. */
const rp_timer *rp_timer_index_first(rp_timer_index *index);
/* Remove it. */
void rp_timer_index_take(rp_timer_index *index);
/* 1 if the heap should become a run, because numbers below `to` have been added. */
int rp_timer_index_is_full(const rp_timer_index *index, uint64_t to);
/* Write the heap, and `count` timers `others` that are under way, as a run; numbers below `to` are filed then. RP_OK;
 * RP_FULL: too many runs; RP_NO_SPACE, RP_NO_MEMORY, RP_IO_ERROR: nothing has changed. */
rp_status rp_timer_index_file(rp_timer_index *index, const rp_timer *others, uint32_t count, uint64_t to);
/* Remove runs whose timers have all ended. */
void rp_timer_index_retire(rp_timer_index *index);
#endif
