#ifndef ROCKETPY_PROCESS_H
#define ROCKETPY_PROCESS_H
/* What a worker does to itself in the kernel's eyes, first thing after the fork. In C because a foreign-function call
 * through ctypes would cost each worker half a megabyte of pages of its own. */
#include <stdint.h>
#include "base/status.h"

/* Be killed by the kernel when the process that forked us ends. RP_OK, or RP_IO_ERROR with errno. The caller then
 * looks whether its parent is still the one it expects. */
rp_status rp_process_die_with_parent(void);
/* Show `title` as the command line (`ps`) and `name` (cut to 15 bytes) as the thread's name. The memory of the
 * arguments, `start` to `end` of /proc/self/stat, is overwritten. */
void rp_process_set_title(const char *title, const char *name, uint64_t start, uint64_t end);
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
