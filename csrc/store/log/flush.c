#define _GNU_SOURCE
#include "store/log/flush.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "store/log/mapped_file.h"
#include "store/log/new_file.h"

struct rp_flush {
    rp_control *control;
    char *directory;
    int fd; /* of the file synced last */
    uint64_t start;
    int has_begun; /* pages that a dead process may have failed to sync are dirty again */
    rp_status failed;
    int failed_errno;
    uint64_t flushes;
    uint64_t flush_ns;
    pthread_mutex_t lock; /* over `stop`, and for waiting */
    pthread_cond_t wake;
    int stop;
};

rp_flush *rp_flush_open(const char *commitlog_directory, rp_control *control) {
    pthread_condattr_t attributes;
    rp_flush *flush = calloc(1, sizeof *flush);
    if (!flush) return NULL;
    flush->control = control;
    flush->fd = -1;
    pthread_mutex_init(&flush->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&flush->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (rp_load_acquire32(&control->running_flags) & RP_FLAG_NOT_WRITEABLE) { /* an earlier sync failed */
        flush->failed = RP_IO_ERROR;
        flush->failed_errno = EIO;
    }
    if ((flush->directory = strdup(commitlog_directory))) return flush;
    rp_flush_close(flush);
    errno = ENOMEM;
    return NULL;
}

void rp_flush_close(rp_flush *flush) {
    if (!flush) return;
    if (flush->fd >= 0) close(flush->fd);
    pthread_cond_destroy(&flush->wake);
    pthread_mutex_destroy(&flush->lock);
    free(flush->directory);
    free(flush);
}

/* 1 if the call failed for lack of descriptors or memory: that is not a failure of the disk, and another try may
 * succeed. */
static int lacks_resources(void) { return errno == EMFILE || errno == ENFILE || errno == ENOMEM; }

static void close_file(rp_flush *flush) {
    rp_close_after(flush->fd);
    flush->fd = -1;
}

/* Open the file that starts at `start`, and sync its name. RP_OK, also if the file was deleted; RP_NO_MEMORY: not
 * tried; other: failed, with errno. */
static rp_status open_file(rp_flush *flush, uint64_t start) {
    char path[PATH_MAX];
    if (flush->fd >= 0 && flush->start == start) return RP_OK;
    close_file(flush);
    if (rp_mapped_file_path(path, sizeof path, flush->directory, start) < 0) return RP_IO_ERROR;
    flush->fd = open(path, O_RDWR | O_CLOEXEC);
    flush->start = start;
    /* Below min_phy_offset the file was deleted meanwhile. */
    if (flush->fd < 0 && errno == ENOENT && start < rp_load_acquire(&flush->control->min_phy_offset)) return RP_OK;
    int directory = flush->fd < 0 ? -1 : open(flush->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rp_status status = RP_OK;
    if (directory < 0)
        status = lacks_resources() ? RP_NO_MEMORY : RP_IO_ERROR;
    else if (fsync(directory) < 0)
        status = RP_IO_ERROR;
    rp_close_after(directory);
    if (status != RP_OK) close_file(flush); /* else another try would pass over the name */
    return status;
}

/* Sync the file that starts at `start`; the first time also its name. Returns as open_file. */
static rp_status sync_file(rp_flush *flush, uint64_t start) {
    rp_status status = open_file(flush, start);
    if (status != RP_OK || flush->fd < 0 || fdatasync(flush->fd) == 0) return status;
    return errno == ENOSPC || errno == EDQUOT ? RP_NO_SPACE : RP_IO_ERROR;
}

/* Make the pages of [from, to) dirty again. After a failed sync the kernel marks them clean, and the next sync succeeds
 * without writing them: the previous process may have died between such a failure and RP_FLAG_NOT_WRITEABLE. The bytes
 * that are touched are below the published position, so nobody else writes them. */
static rp_status rewrite(rp_flush *flush, uint64_t from, uint64_t to) {
    uint64_t file_size = flush->control->commitlog_file_size, page = (uint64_t)sysconf(_SC_PAGESIZE);
    while (from < to) {
        uint8_t *image;
        uint64_t start = from - from % file_size, end = to < start + file_size ? to : start + file_size;
        rp_status status = rp_mapped_file_map(flush->directory, start, file_size, 1, &image);
        if (status != RP_OK && start >= rp_load_acquire(&flush->control->min_phy_offset)) /* below: deleted meanwhile */
            return status != RP_NOT_FOUND && lacks_resources() ? RP_NO_MEMORY : RP_IO_ERROR;
        for (; status == RP_OK && from < end; from += page - from % page) {
            volatile uint8_t *at = image + (from - start);
            *at = *at;
        }
        if (status == RP_OK) munmap(image, file_size);
        from = end;
    }
    return RP_OK;
}

static rp_status fail(rp_flush *flush, rp_status status) {
    flush->failed_errno = errno;
    flush->failed = status;
    rp_control_put_flag(flush->control, RP_FLAG_NOT_WRITEABLE, 1); /* before anybody can be told that more is durable */
    return status;
}

rp_status rp_flush_log(rp_flush *flush) {
    rp_control *control = flush->control;
    int64_t timestamp_ms = control->last_store_timestamp_ms, began_ns;
    uint64_t published = rp_load_acquire(&control->published_phy_offset),
             durable = rp_load_acquire(&control->durable_phy_offset);
    if (flush->failed) {
        errno = flush->failed_errno;
        return flush->failed;
    }
    if (durable >= published) return RP_EMPTY;
    began_ns = (int64_t)rp_now_ns();
    if (!flush->has_begun) {
        rp_status status = control->flush_begun ? rewrite(flush, durable, published) : RP_OK;
        if (status == RP_NO_MEMORY) return status;
        if (status != RP_OK) return fail(flush, status);
        flush->has_begun = 1;
        rp_store_release(&control->flush_begun, 1);
    }
    for (uint64_t start = durable - durable % control->commitlog_file_size; start < published;
         start += control->commitlog_file_size) {
        RP_CRASH_POINT("flush.file");
        rp_status status = sync_file(flush, start);
        if (status == RP_NO_MEMORY) return status;
        if (status != RP_OK) return fail(flush, status);
    }
    RP_CRASH_POINT("flush.synced");
    rp_store_release(&control->durable_phy_offset, published); /* what the syncs above covered */
    RP_CRASH_POINT("flush.durable");
    if (timestamp_ms > 0) control->physic_timestamp_ms = timestamp_ms;
    rp_add(&flush->flushes, 1);
    rp_add(&flush->flush_ns, (uint64_t)((int64_t)rp_now_ns() - began_ns));
    return RP_OK;
}

static int is_behind(const rp_flush *flush, uint64_t least_bytes) {
    uint64_t durable = rp_load_acquire(&flush->control->durable_phy_offset);
    return rp_load_acquire(&flush->control->published_phy_offset) >= durable + least_bytes;
}

/* Returns whether to stop. */
static int wait_for(rp_flush *flush, uint64_t least_bytes, int64_t timeout_ns) {
    int64_t until_ns = (int64_t)rp_now_ns() + timeout_ns;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&flush->lock);
    while (!flush->stop && !is_behind(flush, least_bytes))
        if (pthread_cond_timedwait(&flush->wake, &flush->lock, &until)) break;
    int stop = flush->stop;
    pthread_mutex_unlock(&flush->lock);
    return stop;
}

void rp_flush_wait(rp_flush *flush, uint64_t least_bytes, int64_t timeout_ns) {
    wait_for(flush, least_bytes, timeout_ns);
}

rp_status rp_flush_serve(rp_flush *flush, rp_worker *waiter, int64_t timeout_ns) {
    int stop = wait_for(flush, 1, timeout_ns);
    rp_status status = rp_flush_log(flush);
    if (status == RP_OK && waiter) {
        rp_full_fence(); /* orders the store of the durable position before the load of `asleep` */
        rp_worker_wake(waiter, 0);
    }
    return stop && status == RP_EMPTY ? RP_STOPPED : status;
}

void rp_flush_wake(rp_flush *flush) {
    pthread_mutex_lock(&flush->lock);
    pthread_cond_signal(&flush->wake);
    pthread_mutex_unlock(&flush->lock);
}

void rp_flush_stop(rp_flush *flush) {
    pthread_mutex_lock(&flush->lock);
    flush->stop = 1;
    pthread_cond_broadcast(&flush->wake);
    pthread_mutex_unlock(&flush->lock);
}

void rp_flush_read_counts(const rp_flush *flush, rp_flush_counts *counts) {
    counts->flushes = rp_load_acquire(&flush->flushes);
    counts->flush_ns = rp_load_acquire(&flush->flush_ns);
}
