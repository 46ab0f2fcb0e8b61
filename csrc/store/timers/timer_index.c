/* See timer_index.h. */
#define _GNU_SOURCE
#include "store/timers/timer_index.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/log/new_file.h"

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
    for (const rp_timer *timer; (timer = rp_timer_run_first(run, &status)); rp_timer_run_next(run))
        pending += !rp_timer_has_ended(index->marks, timer->number);
    return status == RP_OK ? pending : UINT64_MAX / 2;
}

/* Open one run. A run with numbers from header->filed on does not count and is removed: these numbers are added anew,
 * and in the run they may be those of timers that a power failure took back. RP_CORRUPT: it is damaged and was removed.
 */
static rp_status open_run(rp_timer_index *index, uint64_t name, uint64_t *pending) {
    rp_timer_run *run;
    rp_status status = rp_timer_run_open(index->directory, name, &run);
    if (status == RP_CORRUPT) rp_timer_run_remove(index->directory, name);
    if (status != RP_OK) return status;
    if (rp_timer_run_to(run) > rp_timer_marks_header(index->marks)->filed) {
        rp_timer_run_close(run);
        return rp_timer_run_remove(index->directory, name) == 0 ? RP_OK : RP_IO_ERROR;
    }
    *pending += count_pending(index, run);
    rp_timer_run_rewind(run);
    if (keep(index, run) == RP_OK) return RP_OK;
    rp_timer_run_close(run);
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
    for (uint32_t i = 0; i < index->run_count; i++) rp_timer_run_close(index->runs[i]);
    free(index->runs);
    free(index->directory);
    rp_timer_heap_destroy(&index->heap);
    *index = (rp_timer_index){0};
}

rp_status rp_timer_index_add(rp_timer_index *index, const rp_timer *timer) {
    return rp_timer_heap_push(&index->heap, timer);
}

static int is_passed_over(const rp_timer_index *index, uint64_t number) {
    return rp_timer_has_ended(index->marks, number) || rp_number_set_has(index->under_way, number);
}

static const rp_timer *first_of_run(const rp_timer_index *index, rp_timer_run *run) {
    rp_status status;
    const rp_timer *timer = rp_timer_run_first(run, &status);
    for (; timer && is_passed_over(index, timer->number); timer = rp_timer_run_first(run, &status))
        rp_timer_run_next(run);
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
        rp_timer_run_next(index->source);
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
    rp_status status = rp_timer_run_write(index->directory, header->next_run, to, timers, count);
    if (status != RP_OK) return status;
    rp_store_release(&header->next_run, header->next_run + 1);
    uint64_t name = header->next_run - 1;
    status = rp_timer_run_open(index->directory, name, &run);
    if (status == RP_OK && keep(index, run) == RP_OK) return RP_OK;
    if (status == RP_OK) {
        rp_timer_run_close(run);
        status = RP_NO_MEMORY;
    }
    int error = errno;
    rp_timer_run_remove(index->directory, name); /* the next try writes another file */
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
        rp_timer_run_rewind(run);
        if (count_pending(index, run)) continue;
        if (rp_timer_run_remove(index->directory, rp_timer_run_name(run)) != 0 && errno != ENOENT) continue;
        rp_timer_run_close(run);
        index->runs[i] = index->runs[--index->run_count];
    }
}
