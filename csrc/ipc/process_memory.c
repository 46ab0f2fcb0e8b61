/* See process_memory.h. */
#define _GNU_SOURCE
#include "ipc/process_memory.h"
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RETIRED_MAX = 64 << 20 };

void rp_process_memory_map_blocks(uint64_t bytes) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)bytes); /* fixed: without this it would grow with the blocks that were freed */
#else
    (void)bytes;
#endif
}

void rp_process_memory_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

uint64_t rp_process_memory_retire_free_blocks(uint64_t bytes) {
    uint64_t retired = 0;
#ifdef __GLIBC__
    const char *end = sbrk(0);
    while (retired < RETIRED_MAX) {
        char *block = malloc((size_t)bytes);
        if (!block || block >= end || sbrk(0) != end) { /* nothing of that size was free: it is mapped, or at the end */
            free(block);
            break;
        }
        retired += bytes;
    }
#else
    (void)bytes;
#endif
    return retired;
}

void rp_process_memory_drop_pages(uint64_t start, uint64_t size) {
    madvise((void *)(uintptr_t)start, (size_t)size, MADV_DONTNEED);
}
