#define _GNU_SOURCE
#include "store/timers/timer_index.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/crc32.h"
#include "store/log/mapped_file.h"
#include "store/log/new_file.h"

/* The file: header, then timers; numbers in the byte order of the machine, which the magic number shows.
 *
 *   header  magic(8) to(8) count(4) CRC-32 of the timers(4) zero(8)
 *   timer   due ms(8) number(8) place in the log(8) size(4) zero(4) */

#define MAGIC 0x314e5552454d4954ull /* "TIMERUN1", little-endian */
enum { BUFFER_TIMERS = 256 };

struct header {
    uint64_t magic;
    uint64_t to; /* all numbers in it are below this one */
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
    return rp_mapped_file_path(path, PATH_MAX, directory, name);
}

/* "<directory>/<20 digits: name>". Writes `count` sorted timers of numbers below `to`; the file appears complete.
 * RP_OK; RP_NO_SPACE, RP_NO_MEMORY, RP_IO_ERROR with errno. */
static rp_status run_write(const char *directory, uint64_t name, uint64_t to, const rp_timer *timers, uint32_t count) {
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
    status = rp_new_file_finish(&file, path, status);
    if (status == RP_OK) close(file.fd);
    return status;
}

static rp_status read_at(int fd, void *data, uint64_t size, uint64_t at) {
    int64_t n = rp_read_at(fd, data, size, at);
    return n < 0 ? RP_IO_ERROR : (uint64_t)n < size ? RP_CORRUPT : RP_OK;
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

/* Begin again with the first timer of the file. */
static void run_rewind(rp_timer_run *run) { run->at = run->buffered = run->count = 0; }

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
    run_rewind(run);
    return crc == run->header.crc ? RP_OK : RP_CORRUPT;
}

static void run_close(rp_timer_run *run) {
    rp_close_after(run->fd);
    free(run);
}

/* Open a run and verify it. RP_OK; RP_CORRUPT; RP_NOT_FOUND; RP_NO_MEMORY, RP_IO_ERROR with errno. */
static rp_status run_open(const char *directory, uint64_t name, rp_timer_run **opened) {
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
    run_close(run);
    return status;
}

/* The first timer that was not taken; NULL at the end, or if it cannot be read (*status is RP_IO_ERROR then). Valid
 * until the next call. */
static const rp_timer *run_first(rp_timer_run *run, rp_status *status) {
    *status = RP_OK;
    if (run->at == run->header.count) return NULL;
    if (run->at - run->buffered >= run->count && (*status = fill(run)) != RP_OK) return NULL;
    return &run->buffer[run->at - run->buffered];
}

/* 0, or -1 with errno. */
static int run_remove(const char *directory, uint64_t name) {
    char path[PATH_MAX];
    return path_of(path, directory, name) != 0 ? -1 : unlink(path);
}

rp_status rp_timer_runs_sync(const char *directory, uint64_t from, uint64_t to) {
    char path[PATH_MAX];
    rp_status status = RP_OK;
    for (uint64_t name = from; name < to && status == RP_OK; name++)
        status = path_of(path, directory, name) == 0 ? rp_sync_path(path) : RP_IO_ERROR;
    return status == RP_OK && from < to ? rp_sync_path(directory) : status;
}

enum { NAME_SIZE = 20 };

static rp_status keep(rp_timer_index *index, rp_timer_run *run) {
    if (index->run_count == index->run_capacity) {
        uint32_t capacity = index->run_capacity ? index->run_capacity * 2 : 16;
        rp_timer_run **runs = realloc(index->runs, capacity * sizeof(rp_timer_run *));
        if (!runs) return RP_NO_MEMORY;
        index->runs = runs;
        index->run_capacity = capacity;
    }
    index->runs[index->run_count++] = run;
    return RP_OK;
}

/* Timers of a run from its cursor on that have not ended; the cursor is at the end then. */
static uint64_t count_pending(const rp_timer_index *index, rp_timer_run *run) {
    uint64_t pending = 0;
    rp_status status;
    for (const rp_timer *timer; (timer = run_first(run, &status)); run->at++)
        pending += !rp_timer_has_ended(index->marks, timer->number);
    return status == RP_OK ? pending : UINT64_MAX / 2;
}

/* Open one run. A run with numbers from header->filed on does not count and is removed: these numbers are added anew,
 * and in the run they may be those of timers that a power failure took back. RP_CORRUPT: it is damaged and was removed.
 */
static rp_status open_run(rp_timer_index *index, uint64_t name, uint64_t *pending) {
    rp_timer_run *run;
    rp_status status = run_open(index->directory, name, &run);
    if (status == RP_CORRUPT) run_remove(index->directory, name);
    if (status != RP_OK) return status;
    if (run->header.to > rp_timer_marks_header(index->marks)->filed) {
        run_close(run);
        return run_remove(index->directory, name) == 0 ? RP_OK : RP_IO_ERROR;
    }
    *pending += count_pending(index, run);
    run_rewind(run);
    if (keep(index, run) == RP_OK) return RP_OK;
    run_close(run);
    return RP_NO_MEMORY;
}

static rp_status open_runs(rp_timer_index *index, DIR *directory, int *is_damaged, uint64_t *pending) {
    rp_timer_header *header = rp_timer_marks_header(index->marks);
    for (struct dirent *entry; (errno = 0, entry = readdir(directory));) {
        if (strlen(entry->d_name) != NAME_SIZE || strspn(entry->d_name, "0123456789") != NAME_SIZE) continue;
        uint64_t name = strtoull(entry->d_name, NULL, 10);
        if (name >= header->next_run) header->next_run = name + 1;
        if (name < index->oldest_run) index->oldest_run = name;
        rp_status status = open_run(index, name, pending);
        if (status == RP_CORRUPT)
            *is_damaged = 1;
        else if (status != RP_OK)
            return status;
    }
    return errno ? RP_IO_ERROR : RP_OK;
}

rp_status rp_timer_index_open(rp_timer_index *index, const char *path, rp_timer_marks *marks,
                              const rp_number_set *under_way, uint64_t end) {
    rp_timer_header *header = rp_timer_marks_header(marks);
    int is_damaged = 0;
    uint64_t pending = 0;
    *index = (rp_timer_index){
        .marks = marks, .under_way = under_way, .oldest_run = header->next_run, .heap_max = RP_TIMER_HEAP_MAX};
    if (!(index->directory = strdup(path))) return RP_NO_MEMORY;
    if (rp_make_directories(path) != 0) return rp_status_of_errno();
    DIR *directory = opendir(path);
    if (!directory) return rp_status_of_errno();
    if (header->filed > end) header->filed = header->filed_durable = header->floor;
    rp_status status = open_runs(index, directory, &is_damaged, &pending);
    closedir(directory);
    if (status != RP_OK) return status;
    if (is_damaged || pending < rp_timer_marks_pending(marks, header->filed))
        header->filed = header->filed_durable = header->floor;
    return RP_OK;
}

void rp_timer_index_close(rp_timer_index *index) {
    for (uint32_t i = 0; i < index->run_count; i++) run_close(index->runs[i]);
    free(index->runs);
    free(index->directory);
    rp_timer_heap_destroy(&index->heap);
    *index = (rp_timer_index){0};
}

static int is_passed_over(const rp_timer_index *index, uint64_t number) {
    return rp_timer_has_ended(index->marks, number) || rp_number_set_has(index->under_way, number);
}

static const rp_timer *first_of_run(const rp_timer_index *index, rp_timer_run *run) {
    rp_status status;
    const rp_timer *timer = run_first(run, &status);
    for (; timer && is_passed_over(index, timer->number); timer = run_first(run, &status)) run->at++;
    return timer;
}

const rp_timer *rp_timer_index_first(rp_timer_index *index) {
    while (index->heap.count && is_passed_over(index, index->heap.timers[0].number)) rp_timer_heap_pop(&index->heap);
    const rp_timer *first = index->heap.count ? &index->heap.timers[0] : NULL;
    index->source = NULL;
    for (uint32_t i = 0; i < index->run_count; i++) {
        const rp_timer *timer = first_of_run(index, index->runs[i]);
        if (!timer || (first && rp_timer_compare(first, timer) <= 0)) continue;
        first = timer;
        index->source = index->runs[i];
    }
    return first;
}

void rp_timer_index_take(rp_timer_index *index) {
    if (index->source)
        index->source->at++;
    else
        rp_timer_heap_pop(&index->heap);
}

int rp_timer_index_is_full(const rp_timer_index *index, uint64_t to) {
    return index->heap.count >= index->heap_max ||
           to - rp_timer_marks_header(index->marks)->filed >= (uint64_t)index->heap_max * RP_TIMER_UNFILED_TIMES;
}

static rp_status write_run(rp_timer_index *index, rp_timer *timers, uint32_t count, uint64_t to) {
    rp_timer_header *header = rp_timer_marks_header(index->marks);
    rp_timer_run *run;
    qsort(timers, count, sizeof *timers, rp_timer_compare);
    rp_status status = run_write(index->directory, header->next_run, to, timers, count);
    if (status != RP_OK) return status;
    rp_store_release(&header->next_run, header->next_run + 1);
    uint64_t name = header->next_run - 1;
    status = run_open(index->directory, name, &run);
    if (status == RP_OK && keep(index, run) == RP_OK) return RP_OK;
    if (status == RP_OK) {
        run_close(run);
        status = RP_NO_MEMORY;
    }
    int error = errno;
    run_remove(index->directory, name); /* the next try writes another file */
    errno = error;
    return status;
}

rp_status rp_timer_index_file(rp_timer_index *index, const rp_timer *others, uint32_t count, uint64_t to) {
    rp_status status = RP_OK;
    if (index->run_count == RP_TIMER_RUNS_MAX) return RP_FULL;
    rp_timer *timers = malloc((index->heap.count + (uint64_t)count + 1) * sizeof *timers);
    if (!timers) return RP_NO_MEMORY;
    if (index->heap.count) memcpy(timers, index->heap.timers, index->heap.count * sizeof *timers);
    if (count) memcpy(timers + index->heap.count, others, count * sizeof *timers);
    count += index->heap.count;
    if (count) status = write_run(index, timers, count, to);
    free(timers);
    if (status != RP_OK) return status;
    index->heap.count = 0;
    RP_CRASH_POINT("timer.filed");
    rp_store_release(&rp_timer_marks_header(index->marks)->filed, to);
    return RP_OK;
}

void rp_timer_index_retire(rp_timer_index *index) {
    for (uint32_t i = index->run_count; i-- > 0;) {
        rp_timer_run *run = index->runs[i];
        if (first_of_run(index, run)) continue;
        run_rewind(run);
        if (count_pending(index, run)) continue;
        if (run_remove(index->directory, run->name) != 0 && errno != ENOENT) continue;
        run_close(run);
        index->runs[i] = index->runs[--index->run_count];
    }
}
