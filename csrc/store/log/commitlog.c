/* The writer of the CommitLog: the mapped active file, a position in it, and a helper thread that keeps page faults and
 * unmapping off the fast path.
 *
 * No private state of the writer survives it. The end of the log is `published_phy_offset` in the control block, moved
 * with a release store after a record (or the blank at the end of a file) is complete. A restarted writer opens at that
 * position and zeroes an incomplete record after it.
 *
 * What a slave receives in large chunks is written by system call, which fills pages that were never touched without
 * zeroing them first; nothing is populated then. The mapping shows it like all else.
 *
 * The helper populates pages ahead of the position (MADV_POPULATE_WRITE: a first touch costs six times a warm write),
 * drops page table entries far below it (the pages stay in the page cache; a worker's resident size stays small) and
 * unmaps files that are full. It shares only `struct errands` with the writer, under its lock, and has the lowest
 * priority.
 *
 * Populated pages are dirty: the next flush writes their zeros and write-protects them. So the helper populates only as
 * far as the writer gets before its next request, and starts at the position again after a flush. If little data waits
 * for a flush (sync flush, or few messages) it populates each page once. docs/adr/0055 says why, and how the kernel is
 * told the size of a populated step. */
#define _GNU_SOURCE
#include "store/log/commitlog.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/endian.h"
#include "ipc/process.h"
#include "store/log/mapped_file.h"
#include "store/log/new_file.h"
#include "store/log/record.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
enum {
    AHEAD_MIN = 256 << 10, /* bytes ahead of the position that are populated, asked for at half way; doubled */
    AHEAD_MAX = 8 << 20, /* while the writer comes that far in less than ASK_NS, halved at 8 times that */
    AHEAD_MAX_FLUSHED = 1 << 20, /* after a recent flush: the next one writes it all; 512 KiB: 6 % fewer sends/s */
    NEAR_BYTES = 256 << 10, /* a flush counts as recent if less than this is dirty */
    ASK_NS = 20000000,
    FAST_SPAN = 8 << 20, /* the writer is fast if it appends this much ... */
    FAST_NS = 125000000, /* ... in this time; single pages would take almost half of the sends from it (sync flush) */
    POPULATE_STEP = 64 << 10, /* per call of madvise; bounds the time in which others wait for the CPU */
    KEEP_BEHIND = 16 << 20, /* page table entries kept below the position */
    WRITE_MIN = 8 << 10, /* from here on a system call costs less than first touches of the pages */
    WIPE_SPAN = 8 << 20, /* after this many zeros there is no torn record */
    PAGE = 4096,
    FULL_MAX = 2 /* files: the helper works on one at most */
};

/* The bytes that the first access to a page brings into the page cache. */
enum caching {
    SINGLE_PAGES,
    PIECES /* of 2 MiB, two at a time */
};

struct errands {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint8_t *base; /* the file being written */
    uint64_t populated; /* offsets in it */
    uint64_t populate_to;
    uint64_t dropped;
    uint64_t drop_to;
    enum caching caching; /* wanted of it; changed by the writer alone */
    enum caching advised; /* what the kernel was told */
    uint8_t *busy; /* the file that the helper works on without the lock */
    uint8_t *full[FULL_MAX]; /* files to unmap */
    int stop;
};

struct rp_commitlog {
    rp_control *control;
    char *directory;
    uint64_t file_size;
    uint8_t *base; /* of the file that holds `position`; NULL: not mapped yet */
    uint64_t start;
    int fd; /* of that file; -1: not needed yet */
    int is_written; /* the last bytes were written by system call: nothing is populated then */
    uint64_t position;
    uint64_t ask_at; /* position at which the helper is asked again */
    uint64_t ahead;
    uint64_t asked_ns;
    uint64_t durable; /* durable_phy_offset when it was asked */
    int was_near; /* to the position, then */
    int is_fast;
    uint32_t rolls; /* since rp_commitlog_take_rolls */
    uint64_t fast_from; /* where the writer was, and when, when `is_fast` was found */
    uint64_t fast_from_ns;
    struct errands errands;
    pthread_t helper;
};

/* Random access alone gives single pages. Huge pages without it give pieces, or the readahead of the disk if the kernel
 * has no huge pages of files. Both together give one piece, but single pages on such a kernel. */
static void advise(uint8_t *base, uint64_t size, enum caching caching) {
    madvise(base, size, caching == PIECES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise(base, size, caching == PIECES ? MADV_NORMAL : MADV_RANDOM);
}

static uint8_t *take_full(struct errands *errands) {
    for (int i = 0; i < FULL_MAX; i++) {
        uint8_t *full = errands->full[i];
        errands->full[i] = NULL;
        if (full) return full;
    }
    return NULL;
}

/* Pass `base` (NULL: nothing) to the helper for unmapping. If the helper is too far behind, returns a file that the
 * caller must unmap. */
static uint8_t *put_full(struct errands *errands, uint8_t *base) {
    int at = 0;
    while (at < FULL_MAX && errands->full[at]) at++;
    if (at == FULL_MAX) at = errands->full[0] == errands->busy; /* one of the others */
    uint8_t *instead = errands->full[at];
    errands->full[at] = base;
    return instead;
}

static void *run_errands(void *argument) {
    struct rp_commitlog *log = argument;
    struct errands *errands = &log->errands;
    rp_priority_lower();
    pthread_mutex_lock(&errands->lock);
    while (!errands->stop) {
        uint8_t *base = errands->base, *full = take_full(errands);
        uint64_t from = errands->populated, drop_from = errands->dropped, drop_to = errands->drop_to;
        uint64_t to = from + POPULATE_STEP < errands->populate_to ? from + POPULATE_STEP : errands->populate_to;
        enum caching caching = errands->caching;
        int is_changed = caching != errands->advised;
        if (from >= to && drop_from >= drop_to && !full && !is_changed) {
            pthread_cond_wait(&errands->wake, &errands->lock);
            continue;
        }
        errands->busy = base;
        errands->advised = caching;
        if (from < to) errands->populated = to;
        if (drop_from < drop_to) errands->dropped = drop_to;
        pthread_mutex_unlock(&errands->lock);
        /* Failure costs page faults later, nothing else. The writer unmaps no file that is `busy`. */
        if (is_changed) advise(base, log->file_size, caching);
        if (from < to) madvise(base + from, to - from, MADV_POPULATE_WRITE);
        if (drop_from < drop_to) madvise(base + drop_from, drop_to - drop_from, MADV_DONTNEED);
        if (full) munmap(full, log->file_size);
        pthread_mutex_lock(&errands->lock);
        errands->busy = NULL;
    }
    pthread_mutex_unlock(&errands->lock);
    return NULL;
}

static uint64_t page_down(uint64_t offset) { return offset & ~(uint64_t)(PAGE - 1); }

static void see_speed(rp_commitlog *log, uint64_t now) {
    if (log->position < log->fast_from + FAST_SPAN) return;
    log->is_fast = now - log->fast_from_ns < FAST_NS;
    log->fast_from = log->position;
    log->fast_from_ns = now;
}

/* Pass the current position to the helper. */
static void ask_helper(rp_commitlog *log) {
    struct errands *errands = &log->errands;
    uint64_t now = rp_now_ns(), took = now - log->asked_ns,
             durable = rp_load_acquire(&log->control->durable_phy_offset);
    int is_flushed = durable != log->durable, is_near = log->position - durable <= NEAR_BYTES;
    int stays_near = is_near && log->was_near; /* once may be chance: a flush has just ended */
    uint64_t ahead_max = stays_near ? AHEAD_MAX_FLUSHED : AHEAD_MAX;
    if (took < ASK_NS && log->ahead < ahead_max) log->ahead *= 2;
    if ((took > 8 * ASK_NS && log->ahead > AHEAD_MIN) || log->ahead > ahead_max) log->ahead /= 2;
    log->asked_ns = now;
    log->durable = durable;
    log->was_near = is_near;
    see_speed(log, now);
    uint64_t at = log->position - log->start, to = page_down(log->is_written ? at : at + log->ahead);
    pthread_mutex_lock(&errands->lock);
    if ((is_flushed && !stays_near) || errands->populated < page_down(at)) errands->populated = page_down(at);
    errands->populate_to = to < log->file_size ? to : page_down(log->file_size);
    /* Reading what was just written would make pieces ahead of it, to be written again. */
    errands->caching = log->is_fast && !stays_near && !log->is_written ? PIECES : SINGLE_PAGES;
    if (at > KEEP_BEHIND) errands->drop_to = page_down(at - KEEP_BEHIND);
    pthread_cond_signal(&errands->wake);
    pthread_mutex_unlock(&errands->lock);
    log->ask_at = log->position + log->ahead / 2;
}

static void close_fd(rp_commitlog *log) {
    if (log->fd >= 0) close(log->fd);
    log->fd = -1;
}

/* Make the file at `start` the one being written; it is mapped at `base`. */
static void switch_file(rp_commitlog *log, uint8_t *base, uint64_t start) {
    struct errands *errands = &log->errands;
    pthread_mutex_lock(&errands->lock);
    uint8_t *unmap_here = put_full(errands, log->base);
    errands->base = base;
    errands->advised = errands->caching;
    errands->populated = errands->populate_to = 0;
    errands->dropped = errands->drop_to = page_down(log->position - start);
    pthread_mutex_unlock(&errands->lock);
    if (unmap_here) munmap(unmap_here, log->file_size);
    close_fd(log);
    log->base = base;
    log->start = start;
    ask_helper(log);
}

/* With its advice, before anything touches it. */
static rp_status map_existing(const rp_commitlog *log, uint64_t start, uint8_t **base) {
    rp_status status = rp_mapped_file_map(log->directory, start, log->file_size, 1, base);
    if (status == RP_OK) advise(*base, log->file_size, log->errands.caching);
    return status;
}

static rp_status map_file(const rp_commitlog *log, uint64_t start, uint8_t **base) {
    rp_status status = map_existing(log, start, base);
    if (status != RP_NOT_FOUND) return status;
    status = rp_mapped_file_create(log->directory, start, log->file_size);
    return status == RP_OK ? map_existing(log, start, base) : status;
}

static int is_zero(const uint8_t *at, uint64_t size) {
    return !size || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

/* Zero the bytes of an earlier writer from `at` on: up to the end of the file, or up to WIPE_SPAN zeros in a row. */
static void wipe(uint8_t *base, uint64_t at, uint64_t file_size) {
    for (uint64_t zeros = 0; at < file_size && zeros < WIPE_SPAN;) {
        uint64_t size = PAGE - at % PAGE;
        if (size > file_size - at) size = file_size - at;
        if (is_zero(base + at, size)) {
            zeros += size;
        } else {
            memset(base + at, 0, size);
            RP_CRASH_POINT("append.wipe");
            zeros = 0;
        }
        at += size;
    }
}

rp_commitlog *rp_commitlog_open(const char *directory, rp_control *control) {
    rp_commitlog *log = calloc(1, sizeof *log);
    if (!log) return NULL;
    log->control = control;
    log->file_size = control->commitlog_file_size;
    log->position = rp_load_acquire(&control->published_phy_offset);
    log->ahead = AHEAD_MIN;
    log->fd = -1;
    pthread_mutex_init(&log->errands.lock, NULL);
    pthread_cond_init(&log->errands.wake, NULL);
    uint64_t start = log->position - log->position % log->file_size;
    uint8_t *base = NULL;
    rp_status status = RP_NO_MEMORY;
    if (!(log->directory = strdup(directory))) goto failed;
    /* A missing file is created by the first reservation, so a store can be opened on a full disk. */
    status = map_existing(log, start, &base);
    if (status != RP_OK && status != RP_NOT_FOUND && status != RP_NO_SPACE) goto failed;
    if (base) wipe(base, log->position - start, log->file_size);
    if ((errno = pthread_create(&log->helper, NULL, run_errands, log))) goto failed;
    if (base) switch_file(log, base, start);
    return log;
failed:
    if (base) munmap(base, log->file_size);
    free(log->directory);
    free(log);
    return NULL;
}

void rp_commitlog_close(rp_commitlog *log) {
    if (!log) return;
    pthread_mutex_lock(&log->errands.lock);
    log->errands.stop = 1;
    pthread_cond_signal(&log->errands.wake);
    pthread_mutex_unlock(&log->errands.lock);
    pthread_join(log->helper, NULL);
    for (uint8_t *full; (full = take_full(&log->errands));) munmap(full, log->file_size);
    if (log->base) munmap(log->base, log->file_size);
    close_fd(log);
    pthread_cond_destroy(&log->errands.wake);
    pthread_mutex_destroy(&log->errands.lock);
    free(log->directory);
    free(log);
}

/* Map the file that holds the position: the first one, or the one after a blank that was received. */
static rp_status open_active(rp_commitlog *log) {
    if (log->base && log->position - log->start < log->file_size) return RP_OK;
    uint64_t start = log->position - log->position % log->file_size;
    uint8_t *base = NULL;
    rp_status status = map_file(log, start, &base);
    if (status != RP_OK) return status == RP_CORRUPT ? RP_IO_ERROR : status;
    wipe(base, log->position - start, log->file_size);
    log->rolls += log->base && start == log->start + log->file_size;
    switch_file(log, base, start);
    return RP_OK;
}

/* End the current file with a blank and continue in the next one, which is created before anything is changed. */
static rp_status roll(rp_commitlog *log) {
    uint8_t *next = NULL, *blank = log->base + (log->position - log->start);
    uint64_t next_start = log->start + log->file_size;
    rp_status status = map_file(log, next_start, &next);
    if (status != RP_OK) return status == RP_CORRUPT ? RP_IO_ERROR : status;
    RP_CRASH_POINT("roll.next");
    rp_store32(blank, (uint32_t)(next_start - log->position));
    RP_CRASH_POINT("roll.blank");
    rp_store32(blank + 4, (uint32_t)RP_BLANK_MAGIC);
    log->position = next_start;
    log->rolls++;
    switch_file(log, next, next_start);
    RP_CRASH_POINT("roll.publish");
    rp_store_release(&log->control->published_phy_offset, next_start); /* the blank */
    return RP_OK;
}

rp_status rp_commitlog_reserve(rp_commitlog *log, uint32_t size, uint8_t **at, uint64_t *phy_offset) {
    if ((uint64_t)size + RP_END_FILE_MIN_BLANK > log->file_size) return RP_TOO_LARGE;
    rp_status status = open_active(log);
    if (status != RP_OK) return status;
    if ((uint64_t)size + RP_END_FILE_MIN_BLANK > log->start + log->file_size - log->position) {
        status = roll(log);
        if (status != RP_OK) return status;
    }
    if (log->position >= log->ask_at) ask_helper(log);
    *at = log->base + (log->position - log->start);
    *phy_offset = log->position;
    return RP_OK;
}

uint32_t rp_commitlog_take_rolls(rp_commitlog *log) {
    uint32_t rolls = log->rolls;
    log->rolls = 0;
    return rolls;
}

rp_status rp_commitlog_window(rp_commitlog *log, uint8_t **at, uint64_t *phy_offset, uint64_t *room) {
    rp_status status = open_active(log);
    if (status != RP_OK) return status;
    if (log->position >= log->ask_at) ask_helper(log);
    *at = log->base + (log->position - log->start);
    *phy_offset = log->position;
    *room = log->start + log->file_size - log->position;
    return RP_OK;
}

static int open_fd(rp_commitlog *log) {
    char path[PATH_MAX];
    if (log->fd < 0 && rp_mapped_file_path(path, sizeof path, log->directory, log->start) == 0)
        log->fd = open(path, O_WRONLY | O_CLOEXEC);
    return log->fd;
}

/* The page cache takes whole pages from pwrite without zeroing them first. CPU s/GB, against the mapping: 0.52 and 0.98
 * for 8 KiB, 0.13 and 0.96 for 128 KiB, 0.88 and 1.0 for 4 KiB (bench/results/catch-up-in-large-chunks.md). */
rp_status rp_commitlog_write(rp_commitlog *log, uint64_t skip, const uint8_t *data, uint64_t size) {
    uint64_t at = log->position - log->start + skip;
    log->is_written = size >= WRITE_MIN && open_fd(log) >= 0; /* without a descriptor the mapping takes them */
    if (log->is_written) return rp_write_at(log->fd, data, size, at);
    memcpy(log->base + at, data, size);
    return RP_OK;
}

rp_status rp_commitlog_begin_at(rp_commitlog *log, uint64_t phy_offset) {
    rp_control *control = log->control;
    if (log->position > control->min_phy_offset || phy_offset % log->file_size) return RP_INVALID;
    char path[PATH_MAX];
    uint64_t first = log->position - log->position % log->file_size; /* created ahead, when this was to be a master */
    if (first != phy_offset && rp_mapped_file_path(path, sizeof path, log->directory, first) == 0) unlink(path);
    RP_CRASH_POINT("begin.unlinked");
    log->position = phy_offset;
    /* Nothing is published, so no other worker moves these positions now. `published` is last: it shows the others. */
    rp_store_release(&control->min_phy_offset, phy_offset);
    RP_CRASH_POINT("begin.min");
    rp_store_release(&control->dispatched_phy_offset, phy_offset);
    RP_CRASH_POINT("begin.dispatched");
    rp_store_release(&control->durable_phy_offset, phy_offset);
    RP_CRASH_POINT("begin.durable");
    rp_store_release(&control->published_phy_offset, phy_offset);
    RP_CRASH_POINT("begin.published");
    return RP_OK;
}

void rp_commitlog_publish(rp_commitlog *log, uint32_t size, int64_t store_timestamp_ms) {
    RP_CRASH_POINT("append.publish");
    log->position += size;
    log->control->last_store_timestamp_ms = store_timestamp_ms;
    RP_CRASH_POINT("append.timestamp");
    rp_store_release(&log->control->published_phy_offset, log->position); /* the record and its timestamp */
    RP_CRASH_POINT("append.published");
}
