/* See timer_follow.h. `must_scan` stays 1. */
#include "store/timers/timer_follow.h"
#include <errno.h>
#include "base/atomic.h"
#include "store/log/log_view.h"
#include "store/log/timer_properties.h"
#include "store/queues/consume_queue.h"
#include "store/queues/unit.h"
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

enum {
    MAPPINGS = 4,
    QUEUE_FILES_MAX = 2,
    SYNC_BYTES = 256 << 20 /* of the log that are read again after a power failure, at most about */
};

void rp_timer_follow_begin(rp_timer_marks *marks) {
    rp_timer_header *header = rp_timer_marks_header(marks);
    /* A master of this boot has cut what a power failure made wrong; its marks are right up to scanned_phy_offset. */
    if (!header->must_scan) header->boot_phy_offset = 0;
    rp_store_release32(&header->must_scan, 1);
    rp_store_release(&header->journal_begin, header->journal_end);
    header->pending = 0;
    header->next_due_ms = 0;
}

/* The log is needed from the oldest pending timer on; without one, from `looked` on. */
static rp_status hold(const rp_timer_follow_config *config, const rp_queue *queue, rp_timer_header *header,
                      uint64_t looked) {
    uint8_t unit[RP_CQ_UNIT_SIZE];
    rp_cq_reader *units = rp_cq_reader_open(config->block, config->consume_queue_directory,
                                            config->consume_queue_file_size, QUEUE_FILES_MAX);
    if (!units) return RP_NO_MEMORY;
    int32_t count = rp_cq_read(units, queue, header->floor, 1, unit);
    if (count >= 0) rp_store_release(&header->held_phy_offset, (count ? rp_unit_read(unit).phy_offset : looked) + 1);
    rp_cq_reader_close(units);
    return count < 0 ? RP_IO_ERROR : RP_OK;
}

static rp_status scan(const rp_timer_follow_config *config, uint64_t from, uint64_t to, const uint32_t *stop) {
    const rp_control *control = rp_control_header(config->block);
    uint64_t min = rp_load_acquire(&control->min_phy_offset);
    if (from < min) from = min;
    rp_log_view *view = rp_log_view_open(config->commitlog_directory, control->commitlog_file_size, MAPPINGS);
    if (!view) return RP_NO_MEMORY;
    rp_status status = rp_timer_scan(config->marks, view, control->commitlog_file_size, from, to, stop);
    rp_log_view_close(view);
    return status;
}

/* Mark what has ended in [from, to). */
static rp_status follow_queue(const rp_timer_follow_config *config, const rp_queue *queue, uint64_t from, uint64_t to,
                              const uint32_t *stop) {
    uint64_t min = rp_load_acquire(&queue->min_offset), end = rp_load_acquire(&queue->max_offset);
    rp_timer_marks_move_floor(config->marks, min, min);
    rp_status status = end ? rp_timer_marks_reserve(config->marks, end - 1) : RP_OK;
    if (status == RP_OK) status = scan(config, from, to, stop);
    if (status != RP_OK) return status;
    rp_timer_marks_move_floor(config->marks, min, end);
    return hold(config, queue, rp_timer_marks_header(config->marks), to);
}

/* Bits that have been written until now are true after a power failure, too. */
static rp_status keep(rp_timer_marks *marks, rp_timer_header *header, uint64_t position) {
    rp_store_release(&header->followed_phy_offset, position);
    if (position - header->followed_durable < SYNC_BYTES) return RP_OK;
    rp_status status = rp_timer_marks_sync(marks);
    if (status == RP_OK) header->followed_durable = position;
    return status;
}

rp_status rp_timer_follow(const rp_timer_follow_config *config, const uint32_t *stop) {
    const rp_control *control = rp_control_header(config->block);
    rp_timer_header *header = rp_timer_marks_header(config->marks);
    /* What is dispatched has its queue: without one there is no timer below this position. A bit must not outlive the
     * record of its delivery. */
    uint64_t to = rp_load_acquire(&control->dispatched_phy_offset),
             durable = rp_load_acquire(&control->durable_phy_offset), from;
    const rp_queue *queue =
        rp_control_find(config->block, (const uint8_t *)RP_TIMER_TOPIC, sizeof RP_TIMER_TOPIC - 1, 0);
    if (to > durable) to = durable;
    if (header->followed_durable > to) header->followed_durable = to; /* the log is shorter than it was */
    if (header->followed_phy_offset > to) header->followed_phy_offset = to;
    from = header->followed_phy_offset;
    if (from < header->scanned_phy_offset) from = header->scanned_phy_offset;
    if (to <= from) return RP_OK;
    rp_status status = RP_OK;
    if (queue)
        status = follow_queue(config, queue, from, to, stop);
    else
        rp_store_release(&header->held_phy_offset, to + 1);
    return status == RP_OK ? keep(config->marks, header, to) : status;
}
