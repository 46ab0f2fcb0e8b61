/* The file: header, then timers; numbers in the byte order of the machine, which the magic number shows.
 *
 *   header  magic(8) to(8) count(4) CRC-32 of the timers(4) zero(8)
 *   timer   due ms(8) number(8) place in the log(8) size(4) zero(4) */
#define _GNU_SOURCE
#include "store/timers/timer_run.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crc32.h"
#include "store/log/new_file.h"

#define MAGIC 0x314e5552454d4954ull /* "TIMERUN1", little-endian */
enum { BUFFER_TIMERS = 256 };

struct header {
    uint64_t magic;
    uint64_t to;
    uint32_t count;
    uint32_t crc;
    uint64_t reserved;
};

struct rp_timer_run {
    struct header header;
    uint64_t name;
    int fd;
    uint32_t at;       /* timer that is first */
    uint32_t buffered; /* the buffer holds timers from here ... */
    uint32_t count;    /* ... so many */
    rp_timer buffer[BUFFER_TIMERS];
};

static int path_of(char *path, const char *directory, uint64_t name) {
    int size = snprintf(path, PATH_MAX, "%s/%020llu", directory, (unsigned long long)name);
    if (size > 0 && size < PATH_MAX) return 0;
    errno = ENAMETOOLONG;
    return -1;
}

rp_status rp_timer_run_write(const char *directory, uint64_t name, uint64_t to, const rp_timer *timers,
                             uint32_t count) {
    char path[PATH_MAX];
    rp_new_file file;
    uint64_t size = count * sizeof *timers;
    struct header header = {
        .magic = MAGIC, .to = to, .count = count, .crc = rp_crc32(0, (const uint8_t *)timers, size)};
    if (path_of(path, directory, name) != 0) return RP_IO_ERROR;
    rp_status status = rp_new_file_begin(&file, directory);
    if (status != RP_OK) return status;
    status = rp_write_at(file.fd, &header, sizeof header, 0);
    if (status == RP_OK) status = rp_write_at(file.fd, timers, size, sizeof header);
    if (status != RP_OK) {
        rp_new_file_abandon(&file);
        return status;
    }
    status = rp_new_file_finish(&file, path);
    if (status == RP_OK) close(file.fd);
    return status;
}

static rp_status read_at(int fd, void *data, uint64_t size, uint64_t at) {
    uint64_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (uint8_t *)data + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return RP_IO_ERROR;
        if (n == 0) return RP_CORRUPT;
        done += (uint64_t)n;
    }
    return RP_OK;
}

static rp_status fill(rp_timer_run *run) {
    uint32_t left = run->header.count - run->at;
    run->buffered = run->at;
    run->count = left < BUFFER_TIMERS ? left : BUFFER_TIMERS;
    rp_status status = read_at(run->fd, run->buffer, run->count * sizeof *run->buffer,
                               sizeof run->header + (uint64_t)run->at * sizeof *run->buffer);
    if (status != RP_OK) run->count = 0;
    return status;
}

static rp_status verify(rp_timer_run *run) {
    struct stat info;
    uint32_t crc = 0;
    rp_status status = read_at(run->fd, &run->header, sizeof run->header, 0);
    if (status != RP_OK) return status;
    if (fstat(run->fd, &info) != 0) return RP_IO_ERROR;
    if (run->header.magic != MAGIC ||
        (uint64_t)info.st_size != sizeof run->header + (uint64_t)run->header.count * sizeof *run->buffer)
        return RP_CORRUPT;
    for (run->at = 0; run->at < run->header.count; run->at += run->count) {
        if ((status = fill(run)) != RP_OK) return status;
        crc = rp_crc32(crc, (const uint8_t *)run->buffer, run->count * sizeof *run->buffer);
    }
    rp_timer_run_rewind(run);
    return crc == run->header.crc ? RP_OK : RP_CORRUPT;
}

rp_status rp_timer_run_open(const char *directory, uint64_t name, rp_timer_run **opened) {
    char path[PATH_MAX];
    if (path_of(path, directory, name) != 0) return RP_IO_ERROR;
    rp_timer_run *run = calloc(1, sizeof *run);
    if (!run) return RP_NO_MEMORY;
    run->name = name;
    run->fd = open(path, O_RDONLY | O_CLOEXEC);
    rp_status status = run->fd >= 0 ? verify(run) : errno == ENOENT ? RP_NOT_FOUND : rp_status_of_errno();
    if (status == RP_OK) {
        *opened = run;
        return RP_OK;
    }
    rp_timer_run_close(run);
    return status;
}

void rp_timer_run_close(rp_timer_run *run) {
    int error = errno;
    if (!run) return;
    if (run->fd >= 0) close(run->fd);
    free(run);
    errno = error;
}

uint64_t rp_timer_run_name(const rp_timer_run *run) { return run->name; }
uint64_t rp_timer_run_to(const rp_timer_run *run) { return run->header.to; }

const rp_timer *rp_timer_run_first(rp_timer_run *run, rp_status *status) {
    *status = RP_OK;
    if (run->at == run->header.count) return NULL;
    if (run->at - run->buffered >= run->count && (*status = fill(run)) != RP_OK) return NULL;
    return &run->buffer[run->at - run->buffered];
}

void rp_timer_run_next(rp_timer_run *run) { run->at++; }

void rp_timer_run_rewind(rp_timer_run *run) { run->at = run->buffered = run->count = 0; }

int rp_timer_run_remove(const char *directory, uint64_t name) {
    char path[PATH_MAX];
    return path_of(path, directory, name) != 0 ? -1 : unlink(path);
}

static rp_status sync_path(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? RP_OK : RP_IO_ERROR;
    int failed = fsync(fd), error = errno;
    close(fd);
    errno = error;
    return failed ? RP_IO_ERROR : RP_OK;
}

rp_status rp_timer_run_names_sync(const char *directory) { return sync_path(directory); }

rp_status rp_timer_runs_sync(const char *directory, uint64_t from, uint64_t to) {
    char path[PATH_MAX];
    rp_status status = RP_OK;
    for (uint64_t name = from; name < to && status == RP_OK; name++)
        status = path_of(path, directory, name) == 0 ? sync_path(path) : RP_IO_ERROR;
    return status == RP_OK && from < to ? rp_timer_run_names_sync(directory) : status;
}
