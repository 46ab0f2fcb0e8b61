#include "store/timers/timer_follow.h"
#include <errno.h>
#include "base/atomic.h"
#include "store/log/log_view.h"
#include "store/log/timer_properties.h"
#include "store/recovery/recovery.h"

/* Looks for records that name the place of the timer that they end (timer_properties.h). Of those with a transaction
 * flag only cancellations count, which look like a rollback: a commit names its half message in the same field. */

enum { STOP_EVERY = 4096 /* records */ };

/* The number of the timer at `phy_offset`; 0 if there is none. */
static int number_at(rp_log_view *view, uint64_t file_size, uint64_t phy_offset, uint64_t *number) {
    rp_record_view timer;
    uint64_t left = file_size - phy_offset % file_size;
    const uint8_t *image = rp_log_view_acquire(view, phy_offset, left);
    if (!image) return 0;
    int found = rp_record_decode(image, left, 0, &timer) == RP_OK && timer.phy_offset == phy_offset &&
                rp_timer_is_timer(&timer);
    if (found) *number = timer.queue_offset;
    rp_log_view_release(view, phy_offset);
    return found;
}

static rp_status mark(rp_timer_marks *marks, rp_log_view *view, uint64_t file_size, const rp_record_view *record,
                      uint64_t phy_offset) {
    uint64_t number, timer;
    if (!rp_timer_place(record, &timer) || timer + 1 >= phy_offset) return RP_OK;
    if (record->sys_flag & RP_TRANSACTION_MASK && !rp_timer_is_timer(record)) return RP_OK;
    if (!number_at(view, file_size, timer, &number)) return RP_OK;
    rp_status status = rp_timer_marks_reserve(marks, number);
    if (status == RP_OK) rp_timer_set_ended(marks, number);
    return status;
}

/* One file's part of the log, from the start of a record. */
static rp_status scan_span(rp_timer_marks *marks, rp_log_view *view, uint64_t file_size, const uint8_t *image,
                           uint64_t from, uint64_t to, const uint32_t *stop) {
    rp_record_view record;
    for (uint64_t at = from, n = 0; at < to; at += record.size) {
        rp_status status = rp_record_decode(image + (at - from), to - at, 0, &record);
        if (status == RP_END_OF_FILE) return RP_OK;
        if (status != RP_OK) { /* damage */
            record.size = (uint32_t)rp_recovery_resync(image + (at - from), to - at, at);
            continue;
        }
        if ((status = mark(marks, view, file_size, &record, at)) != RP_OK) return status;
        if (++n % STOP_EVERY == 0 && rp_load_acquire32(stop)) return RP_STOPPED;
    }
    return RP_OK;
}

rp_status rp_timer_scan(rp_timer_marks *marks, rp_log_view *view, uint64_t file_size, uint64_t from, uint64_t to,
                        const uint32_t *stop) {
    rp_status status = RP_OK;
    while (from < to && status == RP_OK) {
        uint64_t file_end = from - from % file_size + file_size, end = file_end < to ? file_end : to;
        const uint8_t *image = rp_log_view_acquire(view, from, end - from);
        if (!image && errno != ENOENT) return RP_IO_ERROR;
        if (image) {
            status = scan_span(marks, view, file_size, image, from, end, stop);
            rp_log_view_release(view, from);
        }
        from = file_end;
    }
    return status;
}

rp_status rp_timer_scan_log(rp_timer_marks *marks, const rp_control *control, const char *commitlog_directory,
                            const uint32_t *stop) {
    rp_timer_header *header = rp_timer_marks_header(marks);
    uint64_t from = header->scanned_phy_offset, to = rp_load_acquire(&control->published_phy_offset);
    uint64_t min = rp_load_acquire(&control->min_phy_offset), size = control->commitlog_file_size;
    if (from > to) from = to;
    if (from < min) from = min;
    rp_log_view *view = rp_log_view_open(commitlog_directory, size, 4);
    if (!view) return RP_NO_MEMORY;
    rp_status status = rp_timer_scan(marks, view, size, from, to, stop);
    rp_log_view_close(view);
    if (status != RP_OK) return status;
    header->marked_phy_offset = to;
    return RP_OK;
}
