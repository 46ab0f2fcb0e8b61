/* See priority.h. */
#define _GNU_SOURCE
#include "ipc/priority.h"
#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT_SLICE_NS = 100000, BACKGROUND_NICE = 10 };

void rp_priority_prefer_latency(void) {
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) < 0) return;
    attributes.sched_runtime = SHORT_SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void rp_priority_lower(void) {
    int nice = getpriority(PRIO_PROCESS, 0); /* 0: this thread, on Linux */
    setpriority(PRIO_PROCESS, 0, nice + BACKGROUND_NICE);
}
