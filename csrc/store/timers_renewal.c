/* Renewal: cleaning wants to delete log files that hold pending timers. Their records are stored again at the end of
 * the log, by the send worker, each as a new timer in the same step that ends the old one (docs/adr/0113). Timers lie
 * in the log in the order of their numbers, so those below a position are a range of the timer queue. It is read twice:
 * first the sizes are added up, and nothing is done if the copies would take more than half of what their deletion
 * frees; then the timers are given away. Those that are due go first: renewals are given when the ring is empty, and
 * use a part of the journal alone. */
#include "base/atomic.h"
#include "store/timers_private.h"

enum {
    UNITS_PER_STEP = 1024,
    SKIP_MAX = 1 << 22, /* numbers passed over in a step */
    UNDER_WAY_MAX = RP_TIMERS_GIVEN_MAX / 2,    /* refused renewals keep no place from deliveries */
    JOURNAL_RESERVE = RP_TIMER_JOURNAL_MAX / 4 * 3 /* entries for deliveries */
};

static void begin(rp_timers *timers) {
    rp_timer_renewal *renewal = &timers->renewal;
    uint64_t requests = rp_load_acquire(&timers->header->renew_requests);
    if (requests == renewal->requests) return;
    *renewal = (rp_timer_renewal){.phase = RP_RENEWAL_MEASURES,
                                  .requests = requests,
                                  .to = rp_load_acquire(&timers->header->renew_to),
                                  .next = timers->header->floor};
}

/* All timers below `to` have been looked at. */
static void end_phase(rp_timers *timers) {
    rp_timer_renewal *renewal = &timers->renewal;
    uint64_t min = rp_load_acquire(&timers->control->min_phy_offset);
    int is_worth = renewal->to > min && renewal->bytes <= (renewal->to - min) / 2;
    renewal->phase = renewal->phase == RP_RENEWAL_MEASURES && is_worth ? RP_RENEWAL_GIVES : RP_RENEWAL_NONE;
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
    return 1;
}

rp_status rp_timers_renew(rp_timers *timers, uint64_t *done) {
    uint8_t units[UNITS_PER_STEP * RP_CQ_UNIT_SIZE];
    rp_timer_renewal *renewal = &timers->renewal;
    if (renewal->phase == RP_RENEWAL_NONE) begin(timers);
    if (renewal->phase == RP_RENEWAL_NONE) return RP_OK;
    if (renewal->phase == RP_RENEWAL_GIVES && rp_ring_depth(timers->config.to_send)) return RP_OK;
    uint64_t limit = timers->next - renewal->next > SKIP_MAX ? renewal->next + SKIP_MAX : timers->next;
    if (renewal->next < limit) renewal->next = rp_timer_marks_next_pending(timers->config.marks, renewal->next, limit);
    if (renewal->next == limit && limit < timers->next) ++*done; /* there are more */
    int32_t count = rp_cq_read(timers->units, timers->queue, renewal->next, UNITS_PER_STEP, units);
    if (count < 0) return RP_IO_ERROR;
    int is_end = count == 0;
    for (int32_t i = 0; i < count && !is_end; i++, renewal->next++, ++*done) {
        rp_timer timer = rp_timer_of_unit(units + i * RP_CQ_UNIT_SIZE, renewal->next);
        timer.is_renewal = 1;
        is_end = timer.phy_offset >= renewal->to || renewal->next >= timers->next;
        if (!is_end && !look_at(timers, &timer)) break;
    }
    if (is_end) {
        end_phase(timers);
        *done += renewal->phase == RP_RENEWAL_GIVES; /* begin with that at once */
    }
    rp_ring_wake(timers->ring);
    return RP_OK;
}
