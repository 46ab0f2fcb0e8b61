#ifndef ROCKETPY_PROCESS_H
#define ROCKETPY_PROCESS_H
/* The first steps of a forked worker: its parent, signals, descriptors and title, set right after the fork. In C
 * because a foreign-function call through ctypes would cost each worker half a megabyte of pages of its own. */
#include <stdint.h>

/* The process settings of a worker, prepared by its parent, because Python code that runs in the child costs it memory
 * pages. */
typedef struct {
    const int32_t *keep; /* descriptors that stay open beside 0, 1 and 2; ascending */
    uint32_t keep_count;
    int32_t prefers_latency; /* a short time slice: prefer_latency in process.c */
    int32_t ends_on_sigterm; /* SIGTERM ends it, until it has a handler of its own; 0: it is ignored */
    const char *title;       /* its command line (`ps`) */
    const char *name;        /* its thread's name, at most 15 bytes */
    uint64_t title_start;    /* where the arguments lie in memory: from here */
    uint64_t title_end;      /* to here, as in /proc/self/stat; they are overwritten */
} rp_process_identity;

/* Called first in a worker, which was forked while the supervisor's signals were blocked. It lets the worker die with
 * `parent` (at once if that has ended), ignores the signals that the supervisor handles (SIGTERM only if the identity
 * says so: one that waits ends it now), closes all other descriptors, and sets the title. */
void rp_process_begin(const rp_process_identity *identity, int32_t parent);
/* fork(), and rp_process_begin in the child. The Python interpreter does not notice the fork: the child may run Python
 * in its one thread, but must not import, start a thread or draw a random number. Returns the process id, 0 in the
 * child, or -1 with errno. */
int32_t rp_process_fork(const rp_process_identity *identity);

/* Give this thread the lowest priority, because nobody waits for its work. */
void rp_priority_lower(void);

/* malloc: map blocks of `bytes` and more by themselves, from now on: they go back to the kernel when they are freed. */
void rp_process_memory_map_blocks(uint64_t bytes);
/* malloc: give free pages back, and take all free places in the heap that are smaller than `bytes`, for ever: a forked
 * process would copy a page for each place that it uses. */
void rp_process_memory_fill_heap(uint64_t bytes);
#endif
