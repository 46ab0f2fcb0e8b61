#ifndef ROCKETPY_PROCESS_H
#define ROCKETPY_PROCESS_H
/* What a worker does to itself in the kernel's eyes, first thing after the fork. In C because a foreign-function call
 * through ctypes would cost each worker half a megabyte of pages of its own. */
#include <stdint.h>
#include "base/status.h"

/* What a worker is to the kernel, written down by its parent: Python that runs in the child costs it pages. */
typedef struct {
    const int32_t *keep; /* descriptors that stay open beside 0, 1 and 2; ascending */
    uint32_t keep_count;
    int32_t prefers_latency; /* see rp_process_prefer_latency */
    const char *title;       /* its command line (`ps`) */
    const char *name;        /* its thread's name, at most 15 bytes */
    uint64_t title_start;    /* where the arguments lie in memory: from here */
    uint64_t title_end;      /* to here, as in /proc/self/stat; they are overwritten */
} rp_process_identity;

/* First thing in a worker, forked while the supervisor's signals were blocked: end with `parent` (at once if it has
 * ended), ignore the signals that are the supervisor's, close what is not named, take the title. */
void rp_process_begin(const rp_process_identity *identity, int32_t parent);
/* fork(), and rp_process_begin in the child. The interpreter is not told: a child may run Python in its one thread, but
 * import nothing, start no thread and draw no random number. Its process id, 0 in the child, or -1 with errno. */
int32_t rp_process_fork(const rp_process_identity *identity);
/* malloc: map blocks of `bytes` and more by themselves, from now on: they go back to the kernel when they are freed,
 * and zeroed ones take no memory before they are used. */
void rp_process_map_blocks(uint64_t bytes);
/* malloc: give back what is free. */
void rp_process_trim(void);
/* Unmap the clean pages of [start, start + size), a private mapping of a file that was never written to. */
void rp_process_drop_pages(uint64_t start, uint64_t size);
/* Have the kernel run this thread soon after each wake-up, for a short while (EEVDF's slice; kernels before 6.12 ignore
 * it). For loops that do little per message and hand on: with the default of some 3 ms, one that is in the middle of a
 * batch keeps the others waiting. */
void rp_process_prefer_latency(void);
/* Let this thread's work, which nobody waits for, give way to everything else. */
void rp_process_prefer_others(void);
#endif
