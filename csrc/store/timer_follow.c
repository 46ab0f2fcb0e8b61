/* See timer_follow.h. `must_scan` stays 1: records that arrive after a call are not marked, whoever opens the store
 * next reads them from scanned_phy_offset on. */
#include "store/timer_follow.h"
#include "base/atomic.h"
#include "base/endian.h"
#include "store/commitlog.h"
#include "store/consume_queue.h"
#include "store/timer_scan.h"

enum { MAPPINGS = 4, QUEUE_FILES_MAX = 2 };

void rp_timer_follow_begin(rp_timer_marks *marks) {
    rp_timer_header *header = rp_timer_marks_header(marks);
    rp_store_release32(&header->must_scan, 1);
    rp_store_release(&header->journal_begin, header->journal_end);
    header->pending = 0;
    header->next_due_ms = 0;
}

/* The log is needed from the oldest pending timer on. */
static rp_status hold(const rp_timer_follow_config *config, const rp_queue *queue, rp_timer_header *header) {
    uint8_t unit[RP_CQ_UNIT_SIZE];
    rp_cq_reader *units = rp_cq_reader_open(config->block, config->consume_queue_directory,
                                            config->consume_queue_file_size, QUEUE_FILES_MAX);
    if (!units) return RP_NO_MEMORY;
    int32_t count = rp_cq_read(units, queue, header->floor, 1, unit);
    if (count >= 0) rp_store_release(&header->held_phy_offset, count ? rp_load64(unit) + 1 : 0);
    rp_cq_reader_close(units);
    return count < 0 ? RP_IO_ERROR : RP_OK;
}

static rp_status scan(const rp_timer_follow_config *config, uint64_t to, const uint32_t *stop) {
    const rp_control *control = rp_control_header(config->block);
    uint64_t from = rp_timer_marks_header(config->marks)->scanned_phy_offset, min = control->min_phy_offset;
    if (from < min) from = min;
    rp_log_view *view = rp_log_view_open(config->commitlog_directory, control->commitlog_file_size, MAPPINGS);
    if (!view) return RP_NO_MEMORY;
    rp_status status = rp_timer_scan(config->marks, view, control->commitlog_file_size, from, to, stop);
    rp_log_view_close(view);
    return status;
}

rp_status rp_timer_follow(const rp_timer_follow_config *config, const uint32_t *stop) {
    const rp_control *control = rp_control_header(config->block);
    rp_timer_header *header = rp_timer_marks_header(config->marks);
    /* What is dispatched has its queue: without one there is no timer below this position. */
    uint64_t to = rp_load_acquire(&control->dispatched_phy_offset),
             durable = rp_load_acquire(&control->durable_phy_offset);
    const rp_queue *queue =
        rp_control_find(config->block, (const uint8_t *)RP_TIMER_TOPIC, sizeof RP_TIMER_TOPIC - 1, 0);
    if (to > durable) to = durable; /* a bit must not outlive the record of its delivery */
    if (to <= header->scanned_phy_offset) return RP_OK;
    if (queue) {
        uint64_t min = rp_load_acquire(&queue->min_offset), end = rp_load_acquire(&queue->max_offset);
        rp_timer_marks_move_floor(config->marks, min, min);
        rp_status status = end ? rp_timer_marks_reserve(config->marks, end - 1) : RP_OK;
        if (status == RP_OK) status = scan(config, to, stop);
        if (status != RP_OK) return status;
        rp_timer_marks_move_floor(config->marks, min, end);
        status = hold(config, queue, header);
        if (status == RP_OK) status = rp_timer_marks_sync(config->marks);
        if (status != RP_OK) return status;
    }
    rp_store_release(&header->scanned_phy_offset, to);
    return RP_OK;
}
