#ifndef ROCKETPY_BROKER_CLOCK_H
#define ROCKETPY_BROKER_CLOCK_H
/* The broker's clock, which store timestamps and delays follow: the wall clock, but it never goes back (docs/adr/0090).
 *
 * When the wall clock is set back, the broker's clock continues from its last value, at half the speed of
 * CLOCK_BOOTTIME, until the wall clock has caught up. Two values in the control block store where that began, so that
 * every process and every restart under the same kernel sees the same clock. Under another kernel it begins at the last
 * store timestamp. */
#include <stdint.h>
#include "store/control/control_block.h"

typedef struct rp_broker_clock {
    rp_control *control;
    int64_t last_ms;
    int64_t last_boot_ms;
} rp_broker_clock;

/* The broker's clock when the machine's clocks show `wall_ms` and `boot_ms`. Any process. */
int64_t rp_broker_clock_at(const rp_control *control, int64_t wall_ms, int64_t boot_ms);
/* Send worker only: start the clock, not before the last store time. */
void rp_broker_clock_open(rp_broker_clock *clock, rp_control *control, int64_t wall_ms, int64_t boot_ms);
/* Send worker only: the clock, never lower than the last value returned. */
int64_t rp_broker_clock_tick(rp_broker_clock *clock, int64_t wall_ms, int64_t boot_ms);
#endif
