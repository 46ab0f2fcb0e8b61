#ifndef ROCKETPY_TIMER_FOLLOW_H
#define ROCKETPY_TIMER_FOLLOW_H
/* Ends of timers that the log tells: after a power failure, and on a slave, where the master delivers
 * (rocketpy/store/services/timer_follower.py). */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/log/log_view.h"
#include "store/log/record.h"
#include "store/timers/timer_marks.h"

/* Set the bits of the timers that records in [from, to) of the log end.
 * Damage is passed over as dispatch does. RP_OK; RP_STOPPED: *stop became 1; RP_NO_SPACE, RP_IO_ERROR, RP_NO_MEMORY
 * with errno; RP_FULL as rp_timer_marks_reserve. */
rp_status rp_timer_scan(rp_timer_marks *marks, rp_log_view *view, uint64_t file_size, uint64_t from, uint64_t to,
                        const uint32_t *stop);
/* The same from where the marks know of all ends, to the end of the log. */
rp_status rp_timer_scan_log(rp_timer_marks *marks, const rp_control *control, const char *commitlog_directory,
                            const uint32_t *stop);
#endif
