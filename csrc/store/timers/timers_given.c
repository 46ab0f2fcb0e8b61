/* A timer that was given away is *under way* until its bit is set: first in the ring (`given`, in order), then in the
 * journal (`journaled`, by the journal's numbers). The send worker takes them in order, so a timer that it has passed
 * over, or that is not in the journal when the ring is empty, was refused: it waits (`refused`), and is tried again in
 * a second, for delivery or renewal as before. While GIVEN_MAX of them wait, no others are given: what refuses so many,
 * mostly a full disk, refuses them all, and they would fill memory and runs. A timer that was cancelled or moved is
 * under way, too, from its entry in the journal to its bit. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "ipc/worker_messages.h"
#include "store/timers/timers_private.h"

enum { GIVEN_MAX = RP_TIMERS_GIVEN_MAX, PAGE_SIZE = 4096 };

rp_status rp_timers_read_unit(const rp_timers *timers, uint64_t number, rp_timer *timer) {
    uint8_t unit[RP_CQ_UNIT_SIZE];
    int32_t count = rp_cq_read(timers->units, timers->queue, number, 1, unit);
    if (count < 0) return RP_IO_ERROR;
    *timer = (rp_timer){.number = number};
    if (count == 0) return RP_NOT_FOUND;
    *timer = rp_timer_of_unit(unit, number);
    return RP_OK;
}

/* The send worker refused the first timer in the ring: it is tried again later, and stays under way. */
static void requeue_refused(rp_timers *timers) {
    const rp_timer *timer = &timers->given[timers->given_begin++ % GIVEN_MAX];
    if (timer->size) rp_timer_refused_add(&timers->refused, timer, timers->now_ms); /* 0: it was cancelled or moved */
}

static int is_given(const rp_timers *timers, uint64_t number) {
    for (uint64_t at = timers->given_begin; at < timers->given_end; at++)
        if (timers->given[at % GIVEN_MAX].number == number) return 1;
    return 0;
}

/* A delivery or renewal: what was given away before it was refused. */
static rp_status read_delivery(rp_timers *timers, uint64_t number, rp_timer *timer) {
    *timer = (rp_timer){.number = number};
    if (!is_given(timers, number)) return RP_OK;
    while (timers->given[timers->given_begin % GIVEN_MAX].number != number) requeue_refused(timers);
    *timer = timers->given[timers->given_begin++ % GIVEN_MAX];
    return RP_OK;
}

/* A cancellation or a move, of a timer that waits, or that is in the ring: there the send worker passes it over. */
static rp_status read_change(rp_timers *timers, uint64_t number, rp_timer *timer) {
    rp_status status = rp_timers_read_unit(timers, number, timer);
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
        rp_status status = (end.kind == RP_TIMER_CHANGED ? read_change : read_delivery)(timers, end.number, timer);
        if (status != RP_OK) return status;
    }
    return RP_OK;
}

/* The end of a timer counts below it: it is on the disk, and no cut of the log takes it back. */
static uint64_t lasting(const rp_control *control) {
    uint64_t durable = rp_load_acquire(&control->durable_phy_offset);
    if (!control->stops_at_confirmed) return durable;
    uint64_t confirmed = rp_load_acquire(&control->confirmed_phy_offset);
    return confirmed < durable ? confirmed : durable;
}

/* Set the bits of timers whose end lasts. Returns their number. */
static uint64_t set_bits(rp_timers *timers, uint64_t published) {
    rp_timer_header *header = timers->header;
    uint64_t lasts = lasting(timers->control), at = header->journal_begin, from = at;
    for (; at < timers->seen; at++) {
        rp_timer_end end = rp_timer_journal_at(timers->config.marks, at);
        uint64_t number = end.number;
        if (end.end_phy_offset > lasts) break;
        if (rp_timer_marks_reserve(timers->config.marks, number) != RP_OK) break; /* changed before it was followed */
        if (number < timers->next && !rp_timer_has_ended(timers->config.marks, number))
            header->pending -= header->pending > 0;
        RP_CRASH_POINT("timer.bit");
        rp_timer_set_ended(timers->config.marks, number);
        rp_number_set_remove(&timers->under_way, number);
        header->marked_phy_offset = end.end_phy_offset;
    }
    if (at > from) RP_CRASH_POINT("timer.bits");
    rp_store_release(&header->journal_begin, at);
    if (at == timers->seen && timers->given_begin == timers->given_end)
        header->marked_phy_offset = published < lasts ? published : lasts;
    return at - from;
}

rp_status rp_timers_look_back(rp_timers *timers, uint64_t *done) {
    uint64_t published = rp_load_acquire(&timers->control->published_phy_offset), seen = timers->seen;
    int is_ring_empty = rp_ring_depth(timers->config.to_send) == 0;
    rp_status status = read_ends(timers);
    while (status == RP_OK && is_ring_empty && timers->given_begin < timers->given_end) requeue_refused(timers);
    *done += timers->seen - seen + set_bits(timers, published);
    return status;
}

/* ---- giving away ---- */

int rp_timers_has_room(const rp_timers *timers, uint64_t reserve) {
    uint64_t given = timers->given_end - timers->given_begin;
    return timers->seen - timers->header->journal_begin + given + reserve < RP_TIMER_JOURNAL_MAX;
}

uint64_t rp_timers_given_count(const rp_timers *timers) {
    return timers->given_end - timers->given_begin + rp_timer_refused_count(&timers->refused);
}

/* Bring the record's pages to memory: the send worker must not wait for the disk. What cannot be read it will find
 * out; kernels before 5.14 do nothing here. */
static void touch(rp_timers *timers, const rp_timer *timer) {
    uint64_t from = timer->phy_offset & ~(uint64_t)(PAGE_SIZE - 1), end = timer->phy_offset + timer->size;
    if (from >= timers->touched_from && end <= timers->touched_to) return;
    const uint8_t *image = rp_log_view_acquire(timers->records, timer->phy_offset, timer->size);
    if (!image) return;
    uint64_t size = (end - from + PAGE_SIZE - 1) & ~(uint64_t)(PAGE_SIZE - 1);
    madvise((void *)(uintptr_t)(image - (timer->phy_offset - from)), size, MADV_POPULATE_READ);
    rp_log_view_release(timers->records, timer->phy_offset);
    timers->touched_from = from;
    timers->touched_to = from + size;
}

rp_status rp_timers_give(rp_timers *timers, const rp_timer *timer) {
    rp_timer *message = (rp_timer *)rp_ring_reserve(timers->ring, sizeof *message);
    if (!message) return RP_FULL;
    touch(timers, timer);
    *message = *timer;
    timers->given[timers->given_end++ % GIVEN_MAX] = *timer;
    rp_number_set_add(&timers->under_way, timer->number);
    rp_ring_commit(timers->ring, sizeof *message, RP_MSG_TIMER);
    return RP_OK;
}

rp_timer *rp_timers_copy_under_way(const rp_timers *timers, uint32_t *count) {
    uint64_t begin = timers->header->journal_begin, n = 0;
    rp_timer *copies = malloc((timers->seen - begin + GIVEN_MAX) * sizeof *copies);
    if (!copies) return NULL;
    for (uint64_t at = begin; at < timers->seen; at++)
        if (timers->journaled[at % RP_TIMER_JOURNAL_MAX].size)
            copies[n++] = timers->journaled[at % RP_TIMER_JOURNAL_MAX];
    for (uint64_t at = timers->given_begin; at < timers->given_end; at++)
        if (timers->given[at % GIVEN_MAX].size) copies[n++] = timers->given[at % GIVEN_MAX];
    n += rp_timer_refused_copy(&timers->refused, copies + n);
    for (uint64_t i = 0; i < n; i++) copies[i].is_renewal = 0;
    *count = (uint32_t)n;
    return copies;
}
