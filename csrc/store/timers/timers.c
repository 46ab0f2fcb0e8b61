#define _GNU_SOURCE
#include "store/timers/timers.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "ipc/worker_counters.h"
#include "store/log/broker_clock.h"
#include "store/log/new_file.h"
#include "store/log/timer_properties.h"
#include "store/timers/timers_private.h"

/* Renewal: cleaning wants to delete log files that hold pending timers; or many numbers follow the oldest of them, and
 * beyond RP_TIMER_SPAN_MAX no timer would be taken, whoever sends it. The records of these timers are stored again at
 * the end of the log, by the send worker, each as a new timer in the same step that ends the old one (docs/adr/0110).
 * Timers lie in the log in the order of their numbers, so those below a position are a range of the timer queue. It is
 * read twice: first the timers are measured, and nothing is done if the copies would take more than half of what the
 * deletion of their files frees, or if more than one in sixteen of the numbers is pending; then the timers are given
 * away. Those that are due go first: renewals are given when the ring is empty, and use a part of the journal alone. */

enum {
    RENEWALS_PER_STEP = 1024,
    SKIP_MAX = 1 << 22, /* numbers passed over in a step */
    UNDER_WAY_MAX = RP_TIMERS_GIVEN_MAX / 2, /* refused renewals keep no place from deliveries */
    JOURNAL_RESERVE = RP_TIMER_JOURNAL_MAX / 4 * 3, /* entries for deliveries */
    SHARE_MAX = 16, /* one of so many numbers may be pending */
    RETRY_MS = 60000 /* until the timers are measured again, if too many were pending among the numbers */
};

static void begin(rp_timers *timers) {
    rp_timer_renewal *renewal = &timers->renewal;
    uint64_t requests = rp_load_acquire(&timers->header->renew_requests), floor = timers->header->floor;
    rp_timer_renewal next = {.phase = RP_RENEWAL_MEASURES,
                             .requests = requests,
                             .to = UINT64_MAX,
                             .until = UINT64_MAX,
                             .next = floor,
                             .tried_boot_ms = renewal->tried_boot_ms};
    if (requests != renewal->requests) {
        next.to = rp_load_acquire(&timers->header->renew_to);
    } else if (timers->next - floor > timers->config.span_max &&
               timers->kept_boot_ms - renewal->tried_boot_ms >= RETRY_MS) {
        next.until = timers->next - timers->config.span_max / 2;
        next.tried_boot_ms = timers->kept_boot_ms;
    } else {
        return;
    }
    *renewal = next;
}

/* 1 if so many of the numbers are pending that to store them again would free little for what it takes. */
static int are_many(const rp_timers *timers) {
    const rp_timer_renewal *renewal = &timers->renewal;
    uint64_t floor = timers->header->floor;
    return renewal->until != UINT64_MAX &&
           (renewal->until <= floor || renewal->count > (renewal->until - floor) / SHARE_MAX);
}

static int is_worth(const rp_timers *timers) {
    const rp_timer_renewal *renewal = &timers->renewal;
    uint64_t min = rp_load_acquire(&timers->control->min_phy_offset);
    if (renewal->until != UINT64_MAX) return !are_many(timers);
    return renewal->to > min && renewal->bytes <= (renewal->to - min) / 2;
}

/* All timers that are meant have been looked at. */
static void end_phase(rp_timers *timers) {
    rp_timer_renewal *renewal = &timers->renewal;
    int goes_on = renewal->phase == RP_RENEWAL_MEASURES && is_worth(timers);
    renewal->phase = goes_on ? RP_RENEWAL_GIVES : RP_RENEWAL_NONE;
    renewal->next = timers->header->floor;
}

static int may_give(const rp_timers *timers) {
    return rp_timers_has_room(timers, JOURNAL_RESERVE) && rp_timers_given_count(timers) < UNDER_WAY_MAX;
}

/* Look at one timer. 0: there is no room for it now. */
static int look_at(rp_timers *timers, const rp_timer *timer) {
    if (rp_timer_has_ended(timers->config.marks, timer->number) || rp_number_set_has(&timers->under_way, timer->number))
        return 1;
    if (timers->renewal.phase == RP_RENEWAL_GIVES) return may_give(timers) && rp_timers_give(timers, timer) == RP_OK;
    timers->renewal.bytes += timer->size;
    timers->renewal.count++;
    return 1;
}

/* One step of the renewal that cleaning has asked for; adds to *done. RP_OK; RP_IO_ERROR with errno. */
static rp_status renew(rp_timers *timers, uint64_t *done) {
    uint8_t units[RENEWALS_PER_STEP * RP_CQ_UNIT_SIZE];
    rp_timer_renewal *renewal = &timers->renewal;
    if (renewal->phase == RP_RENEWAL_NONE) begin(timers);
    if (renewal->phase == RP_RENEWAL_NONE) return RP_OK;
    if (renewal->phase == RP_RENEWAL_GIVES && rp_ring_depth(timers->config.to_send)) return RP_OK;
    uint64_t end = timers->next < renewal->until ? timers->next : renewal->until;
    uint64_t limit = end > renewal->next + SKIP_MAX ? renewal->next + SKIP_MAX : end;
    if (renewal->next < limit) renewal->next = rp_timer_marks_next_pending(timers->config.marks, renewal->next, limit);
    if (renewal->next == limit && limit < end) ++*done; /* there are more */
    int32_t count = rp_cq_read(timers->units, timers->queue, renewal->next, RENEWALS_PER_STEP, units);
    if (count < 0) return RP_IO_ERROR;
    int is_end = count == 0;
    for (int32_t i = 0; i < count && !is_end; i++, renewal->next++, ++*done) {
        rp_timer timer = rp_timer_of_unit(units + i * RP_CQ_UNIT_SIZE, renewal->next);
        timer.is_renewal = 1;
        is_end = timer.phy_offset >= renewal->to || renewal->next >= end;
        is_end |= renewal->phase == RP_RENEWAL_MEASURES && are_many(timers);
        if (!is_end && !look_at(timers, &timer)) break;
    }
    if (is_end) {
        end_phase(timers);
        *done += renewal->phase == RP_RENEWAL_GIVES; /* begin with that at once */
    }
    rp_ring_wake(timers->ring);
    return RP_OK;
}

enum {
    GIVEN_MAX = RP_TIMERS_GIVEN_MAX,
    UNITS_PER_STEP = RP_TIMERS_UNITS_PER_STEP,
    GIVE_PER_STEP = 1024,
    WAKE_EVERY = 64, /* timers given away; each may have waited for the disk */
    POLL_ACTIVE_MS = 4,     /* while timers come or are under way; how late one of a few ms may be */
    POLL_IDLE_MS = 200,     /* how late one of less may be after ACTIVE_MS without any */
    REST_MS = 1000,         /* while the log does not grow: rp_timers_wake ends it */
    ACTIVE_MS = 5000,
    HOUSEKEEPING_MS = 1000,
    QUEUE_FILES_MAX = 4,
    LOG_FILES_MAX = 4
};

rp_timers *rp_timers_open(const rp_timers_config *config) {
    pthread_condattr_t attributes;
    rp_timers *timers = calloc(1, sizeof *timers);
    if (!timers) return NULL;
    timers->config = *config;
    if (!config->span_max) timers->config.span_max = RP_TIMER_SPAN_MAX / 2;
    if (!config->wall_ms) timers->config.wall_ms = rp_wall_ms;
    if (!config->boot_ms) timers->config.boot_ms = rp_boot_ms;
    if (!config->rest_ms) timers->config.rest_ms = REST_MS;
    pthread_mutex_init(&timers->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&timers->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    timers->control = rp_control_header(config->block);
    timers->header = rp_timer_marks_header(config->marks);
    timers->opened_phy_offset = rp_load_acquire(&timers->control->published_phy_offset);
    timers->synced_run = UINT64_MAX;
    timers->active_boot_ms = timers->kept_boot_ms = -(int64_t)ACTIVE_MS;
    timers->renewal.tried_boot_ms = INT64_MIN / 2;
    timers->renewal.requests = rp_load_acquire(&timers->header->renew_requests);
    timers->config.directory = timers->strings[0] = strdup(config->directory);
    timers->config.commitlog_directory = timers->strings[1] = strdup(config->commitlog_directory);
    timers->config.consume_queue_directory = timers->strings[2] = strdup(config->consume_queue_directory);
    timers->journaled = calloc(RP_TIMER_JOURNAL_MAX, sizeof *timers->journaled);
    timers->given = calloc(GIVEN_MAX, sizeof *timers->given);
    if (timers->strings[0] && timers->strings[1] && timers->strings[2] && timers->journaled && timers->given &&
        rp_timer_refused_init(&timers->refused) == RP_OK &&
        rp_number_set_init(&timers->under_way, RP_TIMER_JOURNAL_MAX + GIVEN_MAX) == RP_OK &&
        (timers->ring = rp_ring_writer_open(config->to_send)) &&
        (timers->records = rp_log_view_open(timers->strings[1], timers->control->commitlog_file_size, LOG_FILES_MAX)) &&
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
    rp_cq_close(timers->units);
    rp_log_view_close(timers->records);
    for (int i = 0; i < 3; i++) free(timers->strings[i]);
    free(timers->journaled);
    free(timers->given);
    rp_timer_refused_destroy(&timers->refused);
    pthread_cond_destroy(&timers->wake);
    pthread_mutex_destroy(&timers->lock);
    free(timers);
}

/* ---- start ---- */

/* Take over the journal of the previous process. */
static rp_status read_journal(rp_timers *timers) {
    for (timers->seen = timers->header->journal_begin; timers->seen < rp_load_acquire(&timers->header->journal_end);
         timers->seen++) {
        rp_timer_end end = rp_timer_journal_at(timers->config.marks, timers->seen);
        if (end.end_phy_offset > rp_load_acquire(&timers->control->published_phy_offset)) break; /* may be taken back */
        rp_status status =
            rp_timers_read_unit(timers, end.number, &timers->journaled[timers->seen % RP_TIMER_JOURNAL_MAX]);
        if (status < 0) return status;
        rp_number_set_add(&timers->under_way, end.number);
    }
    return RP_OK;
}

/* Cleaning may delete what lies before the oldest pending timer, or before `looked`, a dispatched position read
 * earlier, if none was pending then. */
static void hold_log(rp_timers *timers, uint64_t looked, const rp_timer *oldest) {
    timers->oldest_phy_offset = oldest ? oldest->phy_offset + 1 : 0;
    rp_store_release(&timers->header->held_phy_offset, oldest ? timers->oldest_phy_offset : looked + 1);
}

/* 1 if there is a queue of timers. Without one nothing in the log is held. */
static int has_queue(rp_timers *timers) {
    uint64_t looked = rp_load_acquire(&timers->control->dispatched_phy_offset);
    if (timers->queue) return 1;
    timers->queue =
        rp_control_find(timers->config.block, (const uint8_t *)RP_TIMER_TOPIC, sizeof RP_TIMER_TOPIC - 1, 0);
    if (!timers->queue && !rp_load_acquire(&timers->control->rebuilding)) hold_log(timers, looked, NULL);
    return timers->queue != NULL;
}

/* After a power failure or a cut: forget the numbers from the first one on that was given since. The log may have lost
 * the end where they were used before. *end becomes that number, or is the end of the queue. */
static rp_status cut(rp_timers *timers, uint64_t *end) {
    uint64_t boot = timers->header->boot_phy_offset, low = rp_load_acquire(&timers->queue->min_offset);
    rp_timer timer;
    if (!timers->header->must_scan || !boot) return RP_OK;
    for (uint64_t high = *end; low < high;) {
        uint64_t middle = low + (high - low) / 2;
        rp_status status = rp_timers_read_unit(timers, middle, &timer);
        if (status < 0) return status;
        if (status == RP_OK && timer.phy_offset >= boot - 1)
            *end = high = middle;
        else
            low = middle + 1;
    }
    rp_timer_marks_cut(timers->config.marks, *end);
    return RP_OK;
}

/* Mark the timers that have ended, as the log says where the marks do not know it. */
static rp_status load_marks(rp_timers *timers, uint64_t end) {
    rp_timer_marks *marks = timers->config.marks;
    uint64_t min = rp_load_acquire(&timers->queue->min_offset),
             to = rp_load_acquire(&timers->control->published_phy_offset);
    rp_status status = RP_OK;
    rp_timer_marks_move_floor(marks, min, min);
    if (end) status = rp_timer_marks_reserve(marks, end - 1);
    if (status == RP_OK && timers->header->must_scan) {
        status = rp_timer_scan(marks, timers->control, timers->config.commitlog_directory,
                               timers->header->scanned_phy_offset, to, &timers->stop);
        if (status == RP_OK) timers->header->marked_phy_offset = to;
    }
    if (status == RP_OK) rp_timer_marks_move_floor(marks, min, end);
    return status;
}

/* After a power failure: what was forgotten is forgotten on the disk as well, before must_scan is 0. Else stale bits
 * and runs could count after the next one. */
static rp_status sync_forgotten(rp_timers *timers) {
    if (!timers->header->must_scan) return RP_OK;
    rp_status status = rp_sync_path(timers->config.directory); /* which runs there are, and which were removed */
    return status == RP_OK ? rp_timer_marks_sync(timers->config.marks) : status;
}

/* 0 while a cut may still take back records that were in the log at the start: their marks would stay. */
static int is_log_confirmed(const rp_timers *timers) {
    return !timers->control->stops_at_confirmed ||
           rp_load_acquire(&timers->control->confirmed_phy_offset) >= timers->opened_phy_offset;
}

/* Once the queue is there, the log is confirmed, and what the previous process gave away has been served. RP_EMPTY: not
 * yet. */
static rp_status load(rp_timers *timers) {
    rp_timer_marks *marks = timers->config.marks;
    if (!is_log_confirmed(timers)) return RP_EMPTY;
    if (!has_queue(timers) || rp_load_acquire(&timers->control->rebuilding) || rp_ring_depth(timers->config.to_send))
        return RP_EMPTY;
    uint64_t end = rp_load_acquire(&timers->queue->max_offset), known_end = end;
    rp_status status = cut(timers, &known_end);
    if (status == RP_OK) status = load_marks(timers, end);
    if (status != RP_OK) return status;
    rp_number_set_destroy(&timers->under_way);
    rp_timer_index_close(&timers->index);
    status = rp_number_set_init(&timers->under_way, RP_TIMER_JOURNAL_MAX + GIVEN_MAX);
    if (status == RP_OK)
        status = rp_timer_index_open(&timers->index, timers->config.directory, marks, &timers->under_way, known_end);
    if (status == RP_OK) status = read_journal(timers);
    if (status == RP_OK) status = sync_forgotten(timers);
    if (status != RP_OK) return status;
    RP_CRASH_POINT("timer.forgotten");
    rp_store_release32(&timers->header->must_scan, 0);
    if (timers->config.heap_max) timers->index.heap_max = timers->config.heap_max;
    rp_store_release(&timers->filed_phy_offset, rp_load_acquire(&timers->control->dispatched_phy_offset));
    timers->next = timers->header->filed > timers->header->floor ? timers->header->filed : timers->header->floor;
    timers->header->pending = rp_timer_marks_pending(marks, timers->next);
    rp_store_release(&timers->synced_run, timers->index.oldest_run);
    timers->is_loaded = 1;
    return RP_OK;
}

/* ---- what comes and what is due ---- */

/* Everything in memory as a run. */
static rp_status file_heap(rp_timers *timers) {
    uint32_t count;
    rp_timer *others = rp_timers_copy_under_way(timers, &count);
    if (!others) return RP_NO_MEMORY;
    /* before `filed`; all its timers are dispatched */
    rp_store_release(&timers->filed_phy_offset, rp_load_acquire(&timers->control->dispatched_phy_offset));
    rp_status status = rp_timer_index_file(&timers->index, others, count, timers->next);
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
        rp_timer timer = rp_timer_of_unit(unit, timers->next);
        if (rp_timer_has_ended(timers->config.marks, timer.number)) continue;
        if ((status = rp_timer_heap_push(&timers->index.heap, &timer)) != RP_OK) return status;
        timers->header->pending++;
    }
    return RP_OK;
}

/* The timer to be given next, or NULL; valid until the next call. */
static const rp_timer *next_due(rp_timers *timers) {
    const rp_timer *timer = rp_timers_given_count(timers) < GIVEN_MAX ? rp_timer_index_first(&timers->index) : NULL;
    return timer && timer->due_ms <= timers->now_ms ? timer : NULL;
}

static void give(rp_timers *timers, uint64_t *done) {
    for (uint32_t i = 0; i < GIVE_PER_STEP && rp_timers_has_room(timers, GIVEN_MAX); i++, ++*done) {
        const rp_timer *refused = rp_timer_refused_first(&timers->refused, timers->now_ms);
        const rp_timer *timer = refused ? refused : next_due(timers);
        if (!timer || rp_timers_give(timers, timer) != RP_OK) break;
        if (refused)
            rp_timer_refused_take(&timers->refused);
        else
            rp_timer_index_take(&timers->index);
        if (i % WAKE_EVERY == WAKE_EVERY - 1) rp_ring_wake(timers->ring);
    }
    const rp_timer *next = rp_timer_index_first(&timers->index);
    timers->header->next_due_ms = next ? next->due_ms : 0;
    rp_ring_wake(timers->ring);
}

/* Move the floor, hold the log from the oldest pending timer on, remove runs that are done. */
static void keep_house(rp_timers *timers) {
    rp_timer oldest;
    uint64_t looked = rp_load_acquire(&timers->control->dispatched_phy_offset);
    rp_timer_marks_move_floor(timers->config.marks, rp_load_acquire(&timers->queue->min_offset), timers->next);
    rp_timer_index_retire(&timers->index);
    rp_cq_release(timers->units);
    rp_log_view_trim(timers->records, rp_load_acquire(&timers->control->min_phy_offset));
    rp_status status = rp_timers_read_unit(timers, timers->header->floor, &oldest);
    if (status >= 0) hold_log(timers, looked, status == RP_OK ? &oldest : NULL);
}

/* In the counters of the worker. */
static void show(const rp_timers *timers) {
    uint64_t *counters = timers->config.worker->counters;
    rp_store_release(&counters[RP_COUNT_TIMERS_PENDING], timers->header->pending);
    rp_store_release(&counters[RP_COUNT_TIMERS_NEXT_DUE_MS], (uint64_t)timers->header->next_due_ms);
    rp_store_release(&counters[RP_COUNT_TIMERS_OLDEST], timers->oldest_phy_offset);
}

rp_status rp_timers_step(rp_timers *timers) {
    uint64_t done = 0;
    int64_t boot_ms = timers->config.boot_ms();
    timers->now_ms = rp_broker_clock_at(timers->control, timers->config.wall_ms(), boot_ms);
    if (rp_load_acquire32(&timers->stop)) return RP_STOPPED;
    uint64_t dispatched = rp_load_acquire(&timers->control->dispatched_phy_offset);
    timers->is_log_quiet = dispatched == timers->looked_phy_offset;
    timers->looked_phy_offset = dispatched;
    rp_status status = timers->is_loaded ? RP_OK : load(timers);
    if (status != RP_OK) return status;
    status = rp_timers_look_back(timers, &done);
    if (status == RP_OK) status = follow_queue(timers, &done);
    if (status != RP_OK) return status;
    give(timers, &done);
    if ((status = renew(timers, &done)) != RP_OK) return status;
    if (done || timers->given_begin < timers->given_end) timers->active_boot_ms = boot_ms;
    if (boot_ms >= timers->kept_boot_ms + HOUSEKEEPING_MS) {
        timers->kept_boot_ms = boot_ms;
        keep_house(timers);
    }
    show(timers);
    return done ? RP_OK : RP_EMPTY;
}

/* 1 if only time and what is dispatched from now on can bring work. */
static int may_rest(const rp_timers *timers) {
    const rp_timer_header *header = timers->header;
    if (!timers->is_log_quiet || timers->renewal.phase != RP_RENEWAL_NONE || rp_timers_given_count(timers)) return 0;
    if (header->journal_begin != rp_load_acquire(&header->journal_end)) return 0;
    if (timers->is_loaded) return timers->next >= rp_load_acquire(&timers->queue->max_offset);
    return !timers->queue && is_log_confirmed(timers) && !rp_load_acquire(&timers->control->rebuilding);
}

/* Milliseconds until the next step is due. */
static int64_t wait_ms_of(const rp_timers *timers) {
    int is_active = timers->config.boot_ms() < timers->active_boot_ms + ACTIVE_MS;
    int64_t poll_ms = is_active ? POLL_ACTIVE_MS : may_rest(timers) ? timers->config.rest_ms : POLL_IDLE_MS;
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
    timers->rests = wait_ms > POLL_IDLE_MS;
    int has_more = rp_load_acquire(&timers->control->dispatched_phy_offset) != timers->looked_phy_offset;
    if (!timers->stop && !(timers->rests && has_more)) pthread_cond_timedwait(&timers->wake, &timers->lock, &until);
    timers->rests = 0;
    pthread_mutex_unlock(&timers->lock);
}

void rp_timers_wake(rp_timers *timers) {
    pthread_mutex_lock(&timers->lock);
    if (timers->rests) pthread_cond_signal(&timers->wake);
    pthread_mutex_unlock(&timers->lock);
}

rp_status rp_timers_run(rp_timers *timers, int64_t timeout_ns) {
    uint64_t end = rp_now_ns() + (uint64_t)timeout_ns;
    do {
        rp_status status = rp_timers_step(timers);
        if (status != RP_OK && status != RP_EMPTY) return status;
        if (status == RP_EMPTY) wait_for(timers, wait_ms_of(timers));
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
    uint64_t filed = rp_load_acquire(&header->filed), filed_to = rp_load_acquire(&timers->filed_phy_offset),
             end = rp_load_acquire(&header->next_run);
    if (rp_load_acquire(&timers->synced_run) == UINT64_MAX) return RP_OK; /* not loaded */
    rp_status status = rp_timer_runs_sync(timers->config.directory, timers->synced_run, end);
    if (status == RP_OK) status = rp_timer_marks_sync(timers->config.marks);
    if (status != RP_OK) return status;
    timers->synced_run = end;
    RP_CRASH_POINT("timer.runs_synced");
    /* A number whose record a power failure may take back does not count as filed. */
    if (rp_load_acquire(&timers->control->durable_phy_offset) >= filed_to)
        rp_store_release(&header->filed_durable, filed);
    return RP_OK;
}
