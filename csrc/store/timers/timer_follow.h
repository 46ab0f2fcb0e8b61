#ifndef ROCKETPY_TIMER_FOLLOW_H
#define ROCKETPY_TIMER_FOLLOW_H
/* Timers on a slave: the master delivers them, and the log says which. The marks follow the log, so that cleaning keeps
 * the files of pending timers. Whoever opens the store next reads the log again from scanned_phy_offset on, which stays
 * here: a master forgets what is after boot_phy_offset (timers.c). */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/log/log_view.h"
#include "store/log/record.h"
#include "store/timers/timer_marks.h"

typedef struct rp_timer_follow_config {
    rp_control_block *block;
    rp_timer_marks *marks;
    const char *commitlog_directory;
    const char *consume_queue_directory;
    uint64_t consume_queue_file_size;
} rp_timer_follow_config;

/* From now on the journal says nothing: what has ended is in the log only. Before the workers are forked. */
void rp_timer_follow_begin(rp_timer_marks *marks);
/* Bring the marks from followed_phy_offset to what is dispatched and on the disk; it moves there, and is kept in their
 * file: a restarted worker does not read the log again, and after a power failure little of it is read. RP_OK;
 * RP_STOPPED: *stop became 1; RP_NO_SPACE, RP_IO_ERROR, RP_NO_MEMORY with errno, RP_FULL: call again later. */
rp_status rp_timer_follow(const rp_timer_follow_config *config, const uint32_t *stop);

/* After a power failure, or if timer/ was lost: set the bits of the timers that records in [from, to) of the log end.
 * Damage is passed over as dispatch does. RP_OK; RP_STOPPED: *stop became 1; RP_NO_SPACE, RP_IO_ERROR, RP_NO_MEMORY
 * with errno; RP_FULL as rp_timer_marks_reserve. */
rp_status rp_timer_scan(rp_timer_marks *marks, rp_log_view *view, uint64_t file_size, uint64_t from, uint64_t to,
                        const uint32_t *stop);
/* The same from where the marks know of all ends, to the end of the log. */
rp_status rp_timer_scan_log(rp_timer_marks *marks, const rp_control *control, const char *commitlog_directory,
                            const uint32_t *stop);
#endif
