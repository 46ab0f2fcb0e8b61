/* At half speed the clock is clock_slow_base_ms + CLOCK_BOOTTIME / 2: one value, so that a reader cannot see half a
 * change. 0 means that the wall clock was never set back: the sum is then far in the past and does not count.
 * Short: one rule for the time, which send, timers and Python follow. */
#include "store/log/broker_clock.h"

#include "base/atomic.h"

/* Unsigned: what a damaged block says is wrong, but no overflow. */
static int64_t at_half_speed(const rp_control *control, int64_t boot_ms) {
    return (int64_t)(rp_load_acquire((const uint64_t *)&control->clock_slow_base_ms) + (uint64_t)boot_ms / 2);
}

static void slow_down(rp_control *control, int64_t from_ms, int64_t boot_ms) {
    /* The place first: a reader that sees it without the other takes a delay for longer, never for shorter. */
    rp_store_release((uint64_t *)&control->clock_slowed_from_ms, (uint64_t)from_ms);
    rp_store_release((uint64_t *)&control->clock_slow_base_ms, (uint64_t)from_ms - (uint64_t)boot_ms / 2);
}

int64_t rp_broker_clock_at(const rp_control *control, int64_t wall_ms, int64_t boot_ms) {
    int64_t slowed_ms = at_half_speed(control, boot_ms);
    return slowed_ms > wall_ms ? slowed_ms : wall_ms;
}

void rp_broker_clock_open(rp_broker_clock *clock, rp_control *control, int64_t wall_ms, int64_t boot_ms) {
    *clock = (rp_broker_clock){.control = control, .last_boot_ms = boot_ms};
    clock->last_ms = rp_broker_clock_at(control, wall_ms, boot_ms);
    if (clock->last_ms >= control->last_store_timestamp_ms) return;
    clock->last_ms = control->last_store_timestamp_ms;
    slow_down(control, clock->last_ms, boot_ms);
}

int64_t rp_broker_clock_tick(rp_broker_clock *clock, int64_t wall_ms, int64_t boot_ms) {
    int64_t now_ms = rp_broker_clock_at(clock->control, wall_ms, boot_ms);
    if (now_ms < clock->last_ms) {
        slow_down(clock->control, clock->last_ms, clock->last_boot_ms);
        now_ms = rp_broker_clock_at(clock->control, wall_ms, boot_ms);
    }
    clock->last_ms = now_ms;
    clock->last_boot_ms = boot_ms;
    return now_ms;
}
