#define _GNU_SOURCE
#include "ipc/process.h"

#include <linux/sched/types.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT_SLICE_NS = 100000, BACKGROUND_NICE = 10 };

rp_status rp_process_die_with_parent(void) {
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 ? RP_OK : RP_IO_ERROR;
}

void rp_process_set_title(const char *title, const char *name, uint64_t start, uint64_t end) {
    prctl(PR_SET_NAME, name, 0, 0, 0);
    if (end <= start + 1) return;
    size_t room = (size_t)(end - start), size = strlen(title);
    char *place = (char *)(uintptr_t)start;
    memset(place, 0, room);
    memcpy(place, title, size < room ? size : room - 1);
}

void rp_process_map_blocks(uint64_t bytes) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)bytes); /* fixed: without this it would grow with the blocks that were freed */
#else
    (void)bytes;
#endif
}

void rp_process_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void rp_process_drop_pages(uint64_t start, uint64_t size) {
    madvise((void *)(uintptr_t)start, (size_t)size, MADV_DONTNEED);
}

void rp_process_prefer_latency(void) {
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) < 0) return;
    attributes.sched_runtime = SHORT_SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void rp_process_prefer_others(void) {
    int nice = getpriority(PRIO_PROCESS, 0); /* 0: this thread, on Linux */
    setpriority(PRIO_PROCESS, 0, nice + BACKGROUND_NICE);
}
