/* A timer that was given away is *under way* until its bit is set: first in the ring (`given`, in order), then in the
 * journal (`journaled`, by the journal's numbers). The send worker takes them in order, so a timer that it has passed
 * over, or that is not in the journal when the ring is empty, was refused: it waits (`refused`), and is tried again in
 * a second. While GIVEN_MAX of them wait, no others are given: what refuses so many, mostly a full disk, refuses them
 * all, and they would fill memory and runs. A timer that was cancelled or moved is under way, too, from its entry in
 * the journal to its bit. */
#define _GNU_SOURCE
#include "store/timers.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/endian.h"
#include "ipc/worker_messages.h"
#include "store/broker_clock.h"
#include "store/commitlog.h"
#include "store/consume_queue.h"
#include "store/timer_index.h"
#include "store/timer_refused.h"
#include "store/timer_scan.h"

enum {
    GIVEN_MAX = RP_TIMER_REFUSED_MAX, /* in the ring and refused, together; a power of two */
    UNITS_PER_STEP = 2048,
    GIVE_PER_STEP = 1024,
    POLL_ACTIVE_MS = 4,     /* while timers come or are under way; how late one of a few ms may be */
    POLL_IDLE_MS = 50,
    ACTIVE_MS = 5000,
    HOUSEKEEPING_MS = 1000,
    QUEUE_FILES_MAX = 4
};

struct rp_timers {
    rp_timers_config config;
    rp_control *control;
    rp_timer_header *header;
    char *strings[3];
    rp_timer_index index;
    rp_number_set under_way;
    rp_timer *journaled; /* of RP_TIMER_JOURNAL_MAX */
    rp_timer *given;     /* of GIVEN_MAX: [given_begin, given_end) are in the ring */
    uint64_t given_begin;
    uint64_t given_end;
    rp_timer_refused refused;
    uint64_t seen;       /* entries of the journal that were taken notice of */
    uint64_t next;       /* number to follow the queue from */
    const rp_queue *queue;
    rp_ring_writer *ring;
    rp_cq_reader *units;
    int is_loaded;
    int64_t now_ms;      /* of the broker's clock */
    int64_t active_boot_ms;
    int64_t kept_boot_ms; /* last housekeeping */
    uint64_t synced_run; /* of rp_timers_sync: runs below this name are on the disk */
    uint32_t stop;
    pthread_mutex_t lock; /* over `stop`, for waiting */
    pthread_cond_t wake;
};

rp_timers *rp_timers_open(const rp_timers_config *config) {
    pthread_condattr_t attributes;
    rp_timers *timers = calloc(1, sizeof *timers);
    if (!timers) return NULL;
    timers->config = *config;
    if (!config->wall_ms) timers->config.wall_ms = rp_wall_ms;
    if (!config->boot_ms) timers->config.boot_ms = rp_boot_ms;
    pthread_mutex_init(&timers->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&timers->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    timers->control = rp_control_header(config->block);
    timers->header = rp_timer_marks_header(config->marks);
    timers->synced_run = UINT64_MAX;
    timers->active_boot_ms = timers->kept_boot_ms = -(int64_t)ACTIVE_MS;
    timers->config.directory = timers->strings[0] = strdup(config->directory);
    timers->config.commitlog_directory = timers->strings[1] = strdup(config->commitlog_directory);
    timers->config.consume_queue_directory = timers->strings[2] = strdup(config->consume_queue_directory);
    timers->journaled = calloc(RP_TIMER_JOURNAL_MAX, sizeof *timers->journaled);
    timers->given = calloc(GIVEN_MAX, sizeof *timers->given);
    if (timers->strings[0] && timers->strings[1] && timers->strings[2] && timers->journaled && timers->given &&
        rp_timer_refused_init(&timers->refused) == RP_OK &&
        rp_number_set_init(&timers->under_way, RP_TIMER_JOURNAL_MAX + GIVEN_MAX) == RP_OK &&
        (timers->ring = rp_ring_writer_open(config->to_send)) &&
        (timers->units =
             rp_cq_reader_open(config->block, timers->strings[2], config->consume_queue_file_size, QUEUE_FILES_MAX)))
        return timers;
    rp_timers_close(timers);
    errno = ENOMEM;
    return NULL;
}

void rp_timers_close(rp_timers *timers) {
    if (!timers) return;
    rp_timer_index_close(&timers->index);
    rp_number_set_destroy(&timers->under_way);
    rp_ring_writer_close(timers->ring);
    rp_cq_reader_close(timers->units);
    for (int i = 0; i < 3; i++) free(timers->strings[i]);
    free(timers->journaled);
    free(timers->given);
    rp_timer_refused_destroy(&timers->refused);
    pthread_cond_destroy(&timers->wake);
    pthread_mutex_destroy(&timers->lock);
    free(timers);
}

/* ------------------------------------------------------------------ start */

static rp_status read_unit(const rp_timers *timers, uint64_t number, rp_timer *timer) {
    uint8_t unit[RP_CQ_UNIT_SIZE];
    int32_t count = rp_cq_read(timers->units, timers->queue, number, 1, unit);
    if (count < 0) return RP_IO_ERROR;
    *timer = (rp_timer){.number = number};
    if (count == 0) return RP_NOT_FOUND;
    timer->phy_offset = rp_load64(unit);
    timer->size = rp_load32(unit + 8);
    timer->due_ms = (int64_t)rp_load64(unit + 12);
    return RP_OK;
}

/* Take over the journal of the previous process. */
static rp_status read_journal(rp_timers *timers) {
    for (timers->seen = timers->header->journal_begin; timers->seen < rp_load_acquire(&timers->header->journal_end);
         timers->seen++) {
        rp_timer_end end = rp_timer_journal_at(timers->config.marks, timers->seen);
        if (end.end_phy_offset > rp_load_acquire(&timers->control->published_phy_offset)) break; /* may be taken back */
        rp_status status = read_unit(timers, end.number, &timers->journaled[timers->seen % RP_TIMER_JOURNAL_MAX]);
        if (status < 0) return status;
        rp_number_set_add(&timers->under_way, end.number);
    }
    return RP_OK;
}

/* Once the queue is there, and what the previous process gave away has been served. RP_EMPTY: not yet. */
static rp_status load(rp_timers *timers) {
    rp_timer_marks *marks = timers->config.marks;
    rp_status status = RP_OK;
    if (!timers->queue)
        timers->queue =
            rp_control_find(timers->config.block, (const uint8_t *)RP_TIMER_TOPIC, sizeof RP_TIMER_TOPIC - 1, 0);
    if (!timers->queue || rp_load_acquire(&timers->control->rebuilding) || rp_ring_depth(timers->config.to_send))
        return RP_EMPTY;
    uint64_t min = rp_load_acquire(&timers->queue->min_offset), end = rp_load_acquire(&timers->queue->max_offset);
    rp_timer_marks_move_floor(marks, min, min);
    if (end) status = rp_timer_marks_reserve(marks, end - 1);
    if (status == RP_OK && timers->header->must_scan)
        status = rp_timer_scan_log(marks, timers->control, timers->config.commitlog_directory, &timers->stop);
    if (status != RP_OK) return status;
    rp_timer_marks_move_floor(marks, min, end);
    rp_number_set_destroy(&timers->under_way);
    rp_timer_index_close(&timers->index);
    status = rp_number_set_init(&timers->under_way, RP_TIMER_JOURNAL_MAX + GIVEN_MAX);
    if (status == RP_OK)
        status = rp_timer_index_open(&timers->index, timers->config.directory, marks, &timers->under_way, end);
    if (status == RP_OK) status = read_journal(timers);
    if (status != RP_OK) return status;
    if (timers->config.heap_max) timers->index.heap_max = timers->config.heap_max;
    timers->next = timers->header->filed > timers->header->floor ? timers->header->filed : timers->header->floor;
    timers->header->pending = rp_timer_marks_pending(marks, timers->next);
    rp_store_release(&timers->synced_run, timers->index.oldest_run);
    timers->is_loaded = 1;
    return RP_OK;
}

/* ------------------------------------------------------------------ what was given away */

/* The first timer that was given was refused; it stays under way. */
static void again(rp_timers *timers) {
    const rp_timer *timer = &timers->given[timers->given_begin++ % GIVEN_MAX];
    if (timer->size) rp_timer_refused_add(&timers->refused, timer, timers->now_ms); /* 0: it was cancelled or moved */
}

static int is_given(const rp_timers *timers, uint64_t number) {
    for (uint64_t at = timers->given_begin; at < timers->given_end; at++)
        if (timers->given[at % GIVEN_MAX].number == number) return 1;
    return 0;
}

/* A delivery: what was given away before it was refused. */
static rp_status read_delivery(rp_timers *timers, uint64_t number, rp_timer *timer) {
    *timer = (rp_timer){.number = number};
    if (!is_given(timers, number)) return RP_OK;
    while (timers->given[timers->given_begin % GIVEN_MAX].number != number) again(timers);
    *timer = timers->given[timers->given_begin++ % GIVEN_MAX];
    return RP_OK;
}

/* A cancellation or a move, of a timer that waits, or that is in the ring: there the send worker passes it over. */
static rp_status read_change(rp_timers *timers, uint64_t number, rp_timer *timer) {
    rp_status status = read_unit(timers, number, timer);
    if (status < 0) return status;
    for (uint64_t at = timers->given_begin; at < timers->given_end; at++)
        if (timers->given[at % GIVEN_MAX].number == number) timers->given[at % GIVEN_MAX].size = 0;
    rp_timer_refused_drop(&timers->refused, number);
    rp_number_set_add(&timers->under_way, number);
    return RP_OK;
}

/* Take notice of new entries of the journal. */
static rp_status read_ends(rp_timers *timers) {
    uint64_t last = rp_load_acquire(&timers->header->journal_end);
    for (; timers->seen < last; timers->seen++) {
        rp_timer_end end = rp_timer_journal_at(timers->config.marks, timers->seen);
        if (end.end_phy_offset > rp_load_acquire(&timers->control->published_phy_offset)) break; /* may be taken back */
        rp_timer *timer = &timers->journaled[timers->seen % RP_TIMER_JOURNAL_MAX];
        rp_status status = (end.is_change ? read_change : read_delivery)(timers, end.number, timer);
        if (status != RP_OK) return status;
    }
    return RP_OK;
}

/* Set the bits of timers whose end is on the disk. Returns their number. */
static uint64_t set_bits(rp_timers *timers, uint64_t published) {
    rp_timer_header *header = timers->header;
    uint64_t durable = rp_load_acquire(&timers->control->durable_phy_offset), at = header->journal_begin, from = at;
    for (; at < timers->seen; at++) {
        rp_timer_end end = rp_timer_journal_at(timers->config.marks, at);
        uint64_t number = end.number;
        if (end.end_phy_offset > durable) break;
        if (rp_timer_marks_reserve(timers->config.marks, number) != RP_OK) break; /* changed before it was followed */
        if (number < timers->next && !rp_timer_is_delivered(timers->config.marks, number))
            header->pending -= header->pending > 0;
        rp_timer_set_delivered(timers->config.marks, number);
        rp_number_set_remove(&timers->under_way, number);
        header->marked_phy_offset = end.end_phy_offset;
    }
    rp_store_release(&header->journal_begin, at);
    if (at == timers->seen && timers->given_begin == timers->given_end)
        header->marked_phy_offset = published < durable ? published : durable;
    return at - from;
}

static rp_status look_back(rp_timers *timers, uint64_t *done) {
    uint64_t published = rp_load_acquire(&timers->control->published_phy_offset), seen = timers->seen;
    int is_ring_empty = rp_ring_depth(timers->config.to_send) == 0;
    rp_status status = read_ends(timers);
    while (status == RP_OK && is_ring_empty && timers->given_begin < timers->given_end) again(timers);
    *done += timers->seen - seen + set_bits(timers, published);
    return status;
}

/* ------------------------------------------------------------------ what comes and what is due */

/* Everything in memory as a run. */
static rp_status file_heap(rp_timers *timers) {
    uint64_t begin = timers->header->journal_begin, count = 0;
    rp_timer *others = malloc((timers->seen - begin + GIVEN_MAX) * sizeof *others);
    if (!others) return RP_NO_MEMORY;
    for (uint64_t at = begin; at < timers->seen; at++)
        if (timers->journaled[at % RP_TIMER_JOURNAL_MAX].size)
            others[count++] = timers->journaled[at % RP_TIMER_JOURNAL_MAX];
    for (uint64_t at = timers->given_begin; at < timers->given_end; at++)
        if (timers->given[at % GIVEN_MAX].size) others[count++] = timers->given[at % GIVEN_MAX];
    count += rp_timer_refused_copy(&timers->refused, others + count);
    rp_status status = rp_timer_index_file(&timers->index, others, (uint32_t)count, timers->next);
    free(others);
    return status;
}

static rp_status follow_queue(rp_timers *timers, uint64_t *done) {
    uint8_t units[UNITS_PER_STEP * RP_CQ_UNIT_SIZE];
    rp_status status = RP_OK;
    if (rp_timer_index_is_full(&timers->index, timers->next)) status = file_heap(timers);
    if (status != RP_OK) return status == RP_FULL ? RP_OK : status;
    uint64_t min = rp_load_acquire(&timers->queue->min_offset);
    if (timers->next < min) timers->next = min;
    int32_t count = rp_cq_read(timers->units, timers->queue, timers->next, UNITS_PER_STEP, units);
    if (count < 0) return RP_IO_ERROR;
    if (count) status = rp_timer_marks_reserve(timers->config.marks, timers->next + (uint64_t)count - 1);
    if (status != RP_OK) return status == RP_FULL ? RP_OK : status;
    for (const uint8_t *unit = units; count-- > 0; unit += RP_CQ_UNIT_SIZE, timers->next++, ++*done) {
        rp_timer timer = {.due_ms = (int64_t)rp_load64(unit + 12),
                          .number = timers->next,
                          .phy_offset = rp_load64(unit),
                          .size = rp_load32(unit + 8)};
        if (rp_timer_is_delivered(timers->config.marks, timer.number)) continue;
        if ((status = rp_timer_index_add(&timers->index, &timer)) != RP_OK) return status;
        timers->header->pending++;
    }
    return RP_OK;
}

static int has_room(const rp_timers *timers) {
    uint64_t given = timers->given_end - timers->given_begin;
    return timers->seen - timers->header->journal_begin + given < RP_TIMER_JOURNAL_MAX - GIVEN_MAX;
}

/* The timer to be given next, or NULL; valid until the next call. */
static const rp_timer *next_due(rp_timers *timers) {
    uint64_t under_way = timers->given_end - timers->given_begin + rp_timer_refused_count(&timers->refused);
    const rp_timer *timer = under_way < GIVEN_MAX ? rp_timer_index_first(&timers->index) : NULL;
    return timer && timer->due_ms <= timers->now_ms ? timer : NULL;
}

static void give(rp_timers *timers, uint64_t *done) {
    for (uint32_t i = 0; i < GIVE_PER_STEP && has_room(timers); i++, ++*done) {
        const rp_timer *refused = rp_timer_refused_first(&timers->refused, timers->now_ms);
        const rp_timer *timer = refused ? refused : next_due(timers);
        if (!timer) break;
        rp_msg_timer *message = (rp_msg_timer *)rp_ring_reserve(timers->ring, sizeof *message);
        if (!message) break;
        *message = (rp_msg_timer){
            .phy_offset = timer->phy_offset, .number = timer->number, .due_ms = timer->due_ms, .size = timer->size};
        timers->given[timers->given_end++ % GIVEN_MAX] = *timer;
        rp_number_set_add(&timers->under_way, timer->number);
        rp_ring_commit(timers->ring, sizeof *message, RP_MSG_TIMER);
        if (refused)
            rp_timer_refused_take(&timers->refused);
        else
            rp_timer_index_take(&timers->index);
    }
    const rp_timer *next = rp_timer_index_first(&timers->index);
    timers->header->next_due_ms = next ? next->due_ms : 0;
    rp_ring_wake(timers->ring);
}

/* Move the floor, hold the log from the oldest pending timer on, remove runs that are done. */
static void keep_house(rp_timers *timers) {
    rp_timer oldest;
    rp_timer_marks_move_floor(timers->config.marks, rp_load_acquire(&timers->queue->min_offset), timers->next);
    rp_timer_index_retire(&timers->index);
    rp_cq_reader_release(timers->units);
    rp_status status = read_unit(timers, timers->header->floor, &oldest);
    if (status >= 0) rp_store_release(&timers->header->held_phy_offset, status == RP_OK ? oldest.phy_offset + 1 : 0);
}

rp_status rp_timers_step(rp_timers *timers) {
    uint64_t done = 0;
    int64_t boot_ms = timers->config.boot_ms();
    timers->now_ms = rp_broker_clock_at(timers->control, timers->config.wall_ms(), boot_ms);
    if (rp_load_acquire32(&timers->stop)) return RP_STOPPED;
    rp_status status = timers->is_loaded ? RP_OK : load(timers);
    if (status != RP_OK) return status;
    status = look_back(timers, &done);
    if (status == RP_OK) status = follow_queue(timers, &done);
    if (status != RP_OK) return status;
    give(timers, &done);
    rp_store_release(&timers->config.worker->counters[RP_COUNT_TIMERS_PENDING], timers->header->pending);
    rp_store_release(&timers->config.worker->counters[RP_COUNT_TIMERS_NEXT_DUE_MS],
                     (uint64_t)timers->header->next_due_ms);
    rp_store_release(&timers->config.worker->counters[RP_COUNT_TIMERS_OLDEST], timers->header->held_phy_offset);
    if (done || timers->given_begin < timers->given_end) timers->active_boot_ms = boot_ms;
    if (boot_ms >= timers->kept_boot_ms + HOUSEKEEPING_MS) {
        timers->kept_boot_ms = boot_ms;
        keep_house(timers);
    }
    return done ? RP_OK : RP_EMPTY;
}

int64_t rp_timers_wait_ms(const rp_timers *timers) {
    int64_t poll_ms = timers->config.boot_ms() < timers->active_boot_ms + ACTIVE_MS ? POLL_ACTIVE_MS : POLL_IDLE_MS;
    int64_t due_ms = timers->header->next_due_ms - timers->now_ms;
    if (!timers->is_loaded || !timers->header->next_due_ms || due_ms > poll_ms) return poll_ms;
    return due_ms < 1 ? 1 : due_ms;
}

static void wait_for(rp_timers *timers, int64_t wait_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + wait_ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&timers->lock);
    if (!timers->stop) pthread_cond_timedwait(&timers->wake, &timers->lock, &until);
    pthread_mutex_unlock(&timers->lock);
}

rp_status rp_timers_run(rp_timers *timers, int64_t timeout_ns) {
    uint64_t end = rp_now_ns() + (uint64_t)timeout_ns;
    do {
        rp_status status = rp_timers_step(timers);
        if (status != RP_OK && status != RP_EMPTY) return status;
        if (status == RP_EMPTY) wait_for(timers, rp_timers_wait_ms(timers));
    } while (rp_now_ns() < end);
    return RP_OK;
}

void rp_timers_stop(rp_timers *timers) {
    pthread_mutex_lock(&timers->lock);
    rp_store_release32(&timers->stop, 1);
    pthread_cond_signal(&timers->wake);
    pthread_mutex_unlock(&timers->lock);
}

rp_status rp_timers_sync(rp_timers *timers) {
    rp_timer_header *header = timers->header;
    uint64_t filed = rp_load_acquire(&header->filed), end = rp_load_acquire(&header->next_run);
    if (rp_load_acquire(&timers->synced_run) == UINT64_MAX) return RP_OK; /* not loaded */
    rp_status status = rp_timer_runs_sync(timers->config.directory, timers->synced_run, end);
    if (status == RP_OK) status = rp_timer_marks_sync(timers->config.marks);
    if (status != RP_OK) return status;
    timers->synced_run = end;
    rp_store_release(&header->filed_durable, filed);
    return RP_OK;
}
