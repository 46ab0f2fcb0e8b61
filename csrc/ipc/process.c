#define _GNU_SOURCE
#include "ipc/process.h"
#include <errno.h>
#include <linux/sched/types.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int SUPERVISED[] = {SIGTERM, SIGINT, SIGHUP}; /* what the supervisor acts upon */

static sigset_t supervised(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof SUPERVISED / sizeof *SUPERVISED; i++) sigaddset(&set, SUPERVISED[i]);
    return set;
}

static void die_with(int32_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) _exit(0);
}

/* Signals that a terminal or a service manager sends to the whole group are for the supervisor: a worker that obeyed
 * them would end too early in an orderly stop. */
static void leave_signals_to_supervisor(const rp_process_identity *identity) {
    for (size_t i = 0; i < sizeof SUPERVISED / sizeof *SUPERVISED; i++) {
        int is_obeyed = SUPERVISED[i] == SIGTERM && identity->ends_on_sigterm;
        signal(SUPERVISED[i], is_obeyed ? SIG_DFL : SIG_IGN); /* ignoring drops one that waits */
    }
    signal(SIGCHLD, SIG_DFL);
    sigset_t set = supervised();
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void close_between(unsigned from, unsigned to) {
    if (from > to || syscall(SYS_close_range, from, to, 0) == 0) return;
    struct rlimit limit; /* a kernel before 5.9 */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && to >= limit.rlim_cur) to = (unsigned)limit.rlim_cur - 1;
    for (unsigned fd = from; fd <= to; fd++) close((int)fd);
}

static void close_all_but(const int32_t *keep, uint32_t count) {
    unsigned from = STDERR_FILENO + 1;
    for (uint32_t i = 0; i < count; i++) {
        unsigned fd = (unsigned)keep[i];
        if (fd < from) continue;
        if (fd > from) close_between(from, fd - 1);
        from = fd + 1;
    }
    close_between(from, ~0U);
}

static void set_title(const rp_process_identity *identity) {
    prctl(PR_SET_NAME, identity->name, 0, 0, 0);
    if (identity->title_end <= identity->title_start + 1) return;
    size_t room = (size_t)(identity->title_end - identity->title_start), size = strlen(identity->title);
    char *place = (char *)(uintptr_t)identity->title_start;
    memset(place, 0, room);
    memcpy(place, identity->title, size < room ? size : room - 1);
}

enum { SHORT_SLICE_NS = 100000, BACKGROUND_NICE = 10 };

/* Ask the kernel to run this thread soon after each wake-up, in short slices (EEVDF; kernels before 6.12 ignore it).
 * For loops that do little per message and pass it on: with the default slice of about 3 ms, a loop in the middle of a
 * batch would keep the others waiting. */
static void prefer_latency(void) {
    struct sched_attr attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) < 0) return;
    attributes.sched_runtime = SHORT_SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void rp_process_begin(const rp_process_identity *identity, int32_t parent) {
    die_with(parent);
    leave_signals_to_supervisor(identity);
    close_all_but(identity->keep, identity->keep_count);
    set_title(identity);
    if (identity->prefers_latency) prefer_latency();
}

int32_t rp_process_fork(const rp_process_identity *identity) {
    int32_t parent = (int32_t)getpid();
    sigset_t set = supervised(), before;
    sigprocmask(SIG_BLOCK, &set, &before); /* until the child has its own dispositions: ours would write to our pipe */
    pid_t pid = fork();
    if (pid == 0) {
        rp_process_begin(identity, parent);
        return 0;
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return (int32_t)pid;
}

void rp_priority_lower(void) {
    int nice = getpriority(PRIO_PROCESS, 0); /* 0: this thread, on Linux */
    setpriority(PRIO_PROCESS, 0, nice + BACKGROUND_NICE);
}

void rp_process_memory_map_blocks(uint64_t bytes) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)bytes); /* fixed: without this it would grow with the blocks that were freed */
#endif
}

enum { BLOCK_STEP = 16, BLOCK_MIN = 24 /* of malloc's blocks, without their headers */ };

void rp_process_memory_fill_heap(uint64_t bytes) {
#ifdef __GLIBC__
    malloc_trim(0);
    uintptr_t end = (uintptr_t)sbrk(0);
    for (uint64_t size = bytes - BLOCK_STEP; size >= BLOCK_MIN && size < bytes; size -= BLOCK_STEP) {
        void *block;
        while ((block = malloc(size)) && (uintptr_t)block < end) continue;
        free(block); /* from new memory: there is no more room below */
    }
#endif
}
