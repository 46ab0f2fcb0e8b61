#ifndef ROCKETPY_PROCESS_MEMORY_H
#define ROCKETPY_PROCESS_MEMORY_H
/* What this process does with its memory: which blocks malloc takes from where, and which pages go back
 * (docs/adr/0041).
 */
#include <stdint.h>

/* malloc: map blocks of `bytes` and more by themselves, from now on: they go back to the kernel when they are freed,
 * and zeroed ones take no memory before they are used. */
void rp_process_memory_map_blocks(uint64_t bytes);
/* malloc: give back what is free. */
void rp_process_memory_trim(void);
/* malloc: take the free blocks of `bytes` and more out of the heap for good. Returns how many bytes that were. What is
 * asked for later lies together at the heap's end, or is mapped: it touches no page that others share. */
uint64_t rp_process_memory_retire_free_blocks(uint64_t bytes);
/* Unmap the clean pages of [start, start + size), a private mapping of a file that was never written to. */
void rp_process_memory_drop_pages(uint64_t start, uint64_t size);
#endif
