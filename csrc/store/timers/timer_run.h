#ifndef ROCKETPY_TIMER_RUN_H
#define ROCKETPY_TIMER_RUN_H
/* Runs: files of pending timers sorted by time (docs/understand/file-formats-own.md). Written once, read once in order,
 * then removed. C only; one thread. */
#include <stdint.h>
#include "base/status.h"
#include "store/timers/timer_heap.h"

typedef struct rp_timer_run rp_timer_run;

/* "<directory>/<20 digits: name>". Writes `count` sorted timers of numbers below `to`; the file appears complete.
 * RP_OK; RP_NO_SPACE, RP_NO_MEMORY, RP_IO_ERROR with errno. */
rp_status rp_timer_run_write(const char *directory, uint64_t name, uint64_t to, const rp_timer *timers, uint32_t count);
/* Open a run and verify it. RP_OK; RP_CORRUPT; RP_NOT_FOUND; RP_NO_MEMORY, RP_IO_ERROR with errno. */
rp_status rp_timer_run_open(const char *directory, uint64_t name, rp_timer_run **run);
void rp_timer_run_close(rp_timer_run *run);
uint64_t rp_timer_run_name(const rp_timer_run *run);
/* All numbers in it are below this one. */
uint64_t rp_timer_run_to(const rp_timer_run *run);
/* The first timer that was not taken; NULL at the end, or if it cannot be read (*status is RP_IO_ERROR then). Valid
 * until the next call. */
const rp_timer *rp_timer_run_first(rp_timer_run *run, rp_status *status);
/* Take the first timer. */
void rp_timer_run_next(rp_timer_run *run);
/* Begin again with the first timer of the file. */
void rp_timer_run_rewind(rp_timer_run *run);
/* 0, or -1 with errno. */
int rp_timer_run_remove(const char *directory, uint64_t name);
/* Bring it to the disk which runs there are, and which were removed. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timer_run_names_sync(const char *directory);
/* Write the files named [from, to), if there are any with their names, to the disk; those that are gone do not matter.
 * Any thread. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timer_runs_sync(const char *directory, uint64_t from, uint64_t to);
#endif
