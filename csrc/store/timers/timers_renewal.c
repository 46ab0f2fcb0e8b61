/* Renewal: cleaning wants to delete log files that hold pending timers; or many numbers follow the oldest of them, and
 * beyond RP_TIMER_SPAN_MAX no timer would be taken, whoever sends it. The records of these timers are stored again at
 * the end of the log, by the send worker, each as a new timer in the same step that ends the old one (docs/adr/0110).
 * Timers lie in the log in the order of their numbers, so those below a position are a range of the timer queue. It is
 * read twice: first the timers are measured, and nothing is done if the copies would take more than half of what the
 * deletion of their files frees, or if more than one in sixteen of the numbers is pending; then the timers are given
 * away. Those that are due go first: renewals are given when the ring is empty, and use a part of the journal alone. */
#include "base/atomic.h"
#include "store/timers/timers_private.h"

enum {
    UNITS_PER_STEP = 1024,
    SKIP_MAX = 1 << 22, /* numbers passed over in a step */
    UNDER_WAY_MAX = RP_TIMERS_GIVEN_MAX / 2,    /* refused renewals keep no place from deliveries */
    JOURNAL_RESERVE = RP_TIMER_JOURNAL_MAX / 4 * 3, /* entries for deliveries */
    SHARE_MAX = 16,  /* one of so many numbers may be pending */
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

rp_status rp_timers_renew(rp_timers *timers, uint64_t *done) {
    uint8_t units[UNITS_PER_STEP * RP_CQ_UNIT_SIZE];
    rp_timer_renewal *renewal = &timers->renewal;
    if (renewal->phase == RP_RENEWAL_NONE) begin(timers);
    if (renewal->phase == RP_RENEWAL_NONE) return RP_OK;
    if (renewal->phase == RP_RENEWAL_GIVES && rp_ring_depth(timers->config.to_send)) return RP_OK;
    uint64_t end = timers->next < renewal->until ? timers->next : renewal->until;
    uint64_t limit = end > renewal->next + SKIP_MAX ? renewal->next + SKIP_MAX : end;
    if (renewal->next < limit) renewal->next = rp_timer_marks_next_pending(timers->config.marks, renewal->next, limit);
    if (renewal->next == limit && limit < end) ++*done; /* there are more */
    int32_t count = rp_cq_read(timers->units, timers->queue, renewal->next, UNITS_PER_STEP, units);
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
