/* See unit_windows.h. Windows are slots of one reserved range of addresses. When all are in use, a hand goes round: a
 * queue without a window takes that at the hand if it is idle. So while messages go to more queues in turn than there
 * are windows, all windows stay where they are. */
#define _GNU_SOURCE
#include "store/queues/unit_windows.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/shared.h"
#include "store/control/control_block.h"

enum {
    MAPPINGS_DEFAULT = 65530,
    WINDOWS_LIMIT = 262144,
    LARGE = 256,         /* bytes: with more in one write, a page is soon full */
    ROOM_MIN = 100,      /* bytes left in the page: some units */
    IDLE = RP_CONTROL_QUEUES_MAX, /* writes to others: a window was passed over by a turn of any number of queues */
    NONE = 0
};
/* f_type of statfs */
static const int64_t BTRFS = 0x9123683E, ZFS = 0x2FC12FC1, BCACHEFS = 0xCA451A4E;

struct window {
    uint64_t begin; /* in the queue */
    uint64_t end;
    uint64_t used_at; /* of `writes` */
    uint32_t queue;
};

struct rp_unit_windows {
    uint64_t page_size;
    uint32_t windows_max;
    uint8_t *pages;
    uint32_t *window_of; /* by queue: its window + 1 */
    struct window *windows;
    uint64_t writes;
    uint32_t count;
    uint32_t hand;
};

/* Three quarters of the mappings that a process may have: others are the log's and the libraries'. */
static uint32_t windows_allowed(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    unsigned long mappings = MAPPINGS_DEFAULT;
    if (file && fscanf(file, "%lu", &mappings) != 1) mappings = MAPPINGS_DEFAULT;
    if (file) fclose(file);
    return mappings / 4 >= WINDOWS_LIMIT / 3 ? WINDOWS_LIMIT : (uint32_t)(mappings / 4 * 3 + 1);
}

/* Addresses alone: nothing of it counts as memory, where the kernel or RLIMIT_DATA limits what may be written to. */
static void *addresses_create(uint64_t size) {
    void *addresses = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return addresses == MAP_FAILED ? NULL : addresses;
}

static uint64_t pages_size(const rp_unit_windows *windows) { return windows->windows_max * windows->page_size; }

static uint64_t windows_size(const rp_unit_windows *windows) { return windows->windows_max * sizeof(struct window); }

rp_unit_windows *rp_unit_windows_open(uint32_t windows_max) {
    rp_unit_windows *windows = calloc(1, sizeof *windows);
    if (!windows) return NULL;
    windows->page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    windows->windows_max = windows_max ? windows_max : windows_allowed();
    windows->pages = addresses_create(pages_size(windows));
    windows->window_of = rp_private_create(RP_CONTROL_QUEUES_MAX * sizeof *windows->window_of);
    windows->windows = rp_private_create(windows_size(windows));
    if (windows->pages && windows->window_of && windows->windows) return windows;
    rp_unit_windows_close(windows);
    errno = ENOMEM;
    return NULL;
}

void rp_unit_windows_close(rp_unit_windows *windows) {
    if (!windows) return;
    if (windows->pages) munmap(windows->pages, pages_size(windows));
    if (windows->window_of) munmap(windows->window_of, RP_CONTROL_QUEUES_MAX * sizeof *windows->window_of);
    if (windows->windows) munmap(windows->windows, windows_size(windows));
    free(windows);
}

static uint8_t *page_of(const rp_unit_windows *windows, uint32_t window) {
    return windows->pages + (window - 1) * windows->page_size;
}

int rp_unit_windows_write(rp_unit_windows *windows, uint32_t queue, uint64_t at, const void *data, uint64_t size) {
    uint32_t number = windows->window_of[queue];
    struct window *window = &windows->windows[number ? number - 1 : 0];
    windows->writes++;
    if (number == NONE || at < window->begin || at + size > window->end) return 0;
    memcpy(page_of(windows, number) + (at - window->begin), data, size);
    window->used_at = windows->writes;
    return 1;
}

/* A window for another queue, or NONE. */
static uint32_t take(rp_unit_windows *windows, uint32_t queue) {
    int is_new = windows->count < windows->windows_max;
    uint32_t number = is_new ? ++windows->count : windows->hand++ % windows->windows_max + 1;
    struct window *window = &windows->windows[number - 1];
    if (!is_new && windows->writes - window->used_at < IDLE) return NONE;
    if (windows->window_of[window->queue] == number) windows->window_of[window->queue] = NONE;
    window->queue = queue;
    window->used_at = windows->writes;
    return windows->window_of[queue] = number;
}

/* Map a page of `fd`, or nothing (-1), in place of what the window shows. */
static void show(rp_unit_windows *windows, uint32_t number, int fd, uint64_t in_file, uint64_t begin, uint64_t end) {
    struct window *window = &windows->windows[number - 1];
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    int access = fd < 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *page = mmap(page_of(windows, number), windows->page_size, access, flags | MAP_FIXED, fd, (off_t)in_file);
    window->begin = window->end = 0;
    if (page == MAP_FAILED || fd < 0) return; /* as before, with pwrite */
    window->begin = begin;
    window->end = end;
}

/* 1: a page of which some bytes were written needs no more of the disk. With smaller blocks the others may be holes,
 * and some file systems take a new block for each change. */
static int keeps_blocks(int fd, uint64_t page_size) {
    struct statfs system;
    if (fstatfs(fd, &system) < 0 || (uint64_t)system.f_bsize < page_size) return 0;
    return system.f_type != BTRFS && system.f_type != ZFS && system.f_type != BCACHEFS;
}

void rp_unit_windows_follow(rp_unit_windows *windows, uint32_t queue, int fd, uint64_t start, uint64_t file_size,
                            uint64_t at, uint64_t size) {
    uint64_t end = at + size, in_file = end - end % windows->page_size;
    uint64_t page_end = in_file + windows->page_size < file_size ? in_file + windows->page_size : file_size;
    struct stat info;
    if (size > LARGE || in_file == end || page_end < end + ROOM_MIN) return;
    if (fstat(fd, &info) < 0 || (uint64_t)info.st_size < page_end)
        return; /* a damaged file: a store does not extend it */
    if (!keeps_blocks(fd, windows->page_size)) return;
    if (page_end == file_size) page_end--; /* the last unit gets no room: its pwrite sets the time of the file */
    uint32_t number = windows->window_of[queue] ? windows->window_of[queue] : take(windows, queue);
    if (number != NONE) show(windows, number, fd, in_file, start + in_file, start + page_end);
}

void rp_unit_windows_drop(rp_unit_windows *windows, uint32_t queue) {
    if (windows->window_of[queue]) show(windows, windows->window_of[queue], -1, 0, 0, 0);
}
