/* Dispatch over the files of the log; dispatch_batch.c is one batch. */
#define _GNU_SOURCE
#include "store/dispatch/dispatch.h"
#include <errno.h>
#include <stdlib.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/dispatch/dispatch_private.h"
#include "store/log/flush.h"
#include "store/recovery/recovery.h"

enum { DROP_PAGES_EVERY = 16 << 20 }; /* bytes of log read before their page table entries are given back */

rp_dispatch *rp_dispatch_open(rp_control_block *block, const rp_dispatch_config *config) {
    rp_dispatch *dispatch = calloc(1, sizeof *dispatch);
    if (!dispatch) return NULL;
    dispatch->block = block;
    dispatch->control = rp_control_header(block);
    dispatch->limit = dispatch->control->stops_at_confirmed ? &dispatch->control->confirmed_phy_offset
                                                            : &dispatch->control->published_phy_offset;
    dispatch->units_per_file = config->consume_queue_file_size / RP_CQ_UNIT_SIZE;
    dispatch->delay_level_count = config->delay_level_count;
    dispatch->view = rp_log_view_open(config->commitlog_directory, dispatch->control->commitlog_file_size, 2);
    dispatch->writer = rp_cq_writer_open(block, config->consume_queue_directory, config->consume_queue_file_size,
                                         config->consume_queue_files_max);
    dispatch->ext_enable = config->consume_queue_ext_enable && config->consume_queue_ext_file_size;
    if (config->consume_queue_ext_file_size)
        dispatch->ext = rp_cq_ext_writer_open(block, config->consume_queue_directory, config->consume_queue_file_size,
                                              config->consume_queue_ext_file_size);
    if (config->index_enable)
        dispatch->index = rp_index_open(config->index_directory, config->hash_slot_num, config->index_num);
    if (dispatch->index && rp_index_end(dispatch->index) > dispatch->control->published_phy_offset)
        rp_index_limit(dispatch->index, dispatch->control->dispatched_phy_offset); /* damaged */
    dispatch->delay_level_ms = config->delay_level_ms;
    dispatch->batch = rp_unit_batch_open(block, dispatch->ext_enable);
    rp_topic_filters_init(&dispatch->filters, dispatch->ext_enable ? config->filter_marks : NULL);
    dispatch->keyed = calloc(BATCH_RECORDS, sizeof *dispatch->keyed);
    dispatch->arrivals.queues = calloc(ARRIVALS_MAX, sizeof(uint32_t));
    if (!dispatch->view || !dispatch->writer || (config->index_enable && !dispatch->index) ||
        (config->consume_queue_ext_file_size && !dispatch->ext) || !dispatch->batch || !dispatch->keyed ||
        !dispatch->arrivals.queues) {
        int error = errno;
        rp_dispatch_close(dispatch);
        errno = error;
        return NULL;
    }
    rp_dispatch_finish_removals(dispatch);
    return dispatch;
}

void rp_dispatch_close(rp_dispatch *dispatch) {
    if (!dispatch) return;
    rp_log_view_close(dispatch->view);
    rp_cq_close(dispatch->writer);
    rp_unit_batch_close(dispatch->batch);
    rp_topic_filters_destroy(&dispatch->filters);
    rp_cq_ext_writer_close(dispatch->ext);
    rp_index_close(dispatch->index);
    free(dispatch->keyed);
    free(dispatch->arrivals.queues);
    free(dispatch);
}

rp_status rp_dispatch_take_filter(rp_dispatch *dispatch, const uint8_t *data, uint32_t size) {
    return rp_topic_filters_apply(&dispatch->filters, data, size,
                                  rp_load_acquire(&dispatch->control->published_phy_offset));
}

void rp_dispatch_filters_are_whole(rp_dispatch *dispatch) { dispatch->filters.are_whole = 1; }

void rp_dispatch_set_pulls(rp_dispatch *dispatch, rp_ring_writer *const *pulls, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) dispatch->arrivals.pulls[i] = pulls[i];
    dispatch->arrivals.pull_count = count;
}

void rp_dispatch_set_watchers(rp_dispatch *dispatch, uint64_t *heartbeat_ns, rp_flush *flush) {
    dispatch->heartbeat_ns = heartbeat_ns;
    dispatch->flush = flush;
}

void rp_dispatch_read_counts(const rp_dispatch *dispatch, rp_dispatch_counts *counts) { *counts = dispatch->counts; }

static void give_pages_back(rp_dispatch *dispatch, uint64_t position) {
    uint64_t start = position - position % dispatch->control->commitlog_file_size;
    if (dispatch->dropped < start) dispatch->dropped = start;
    if (position < dispatch->dropped + DROP_PAGES_EVERY) return;
    rp_log_view_drop_pages(dispatch->view, dispatch->dropped, position);
    dispatch->dropped = position;
}

rp_status rp_dispatch_run(rp_dispatch *dispatch, uint64_t budget) {
    rp_control *control = dispatch->control;
    uint64_t position = rp_load_acquire(&control->dispatched_phy_offset),
             min = rp_load_acquire(&control->min_phy_offset);
    uint64_t end = rp_load_acquire(dispatch->limit), file_size = control->commitlog_file_size;
    if (dispatch->arrivals.count && rp_dispatch_send_arrivals(dispatch) != RP_OK) return RP_FULL;
    if (position < min) position = min;
    if (position > end) return RP_EMPTY; /* a slave's log that is about to begin at `min` */
    if (end && end == dispatch->incomplete_at) return RP_EMPTY;
    uint64_t stop = budget < end - position ? position + budget : end;
    while (position < stop) {
        uint64_t file_end = position - position % file_size + file_size, to = file_end < end ? file_end : end;
        const uint8_t *image = rp_log_view_acquire(dispatch->view, position, to - position);
        if (!image) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
        uint64_t reached = position;
        rp_status status = rp_dispatch_span(dispatch, image, position, to, stop, &reached);
        rp_log_view_release(dispatch->view, position);
        if (status != RP_OK && dispatch->ext_enable)
            rp_cq_ext_forget(dispatch->ext); /* what was collected comes again */
        if (status != RP_OK) return status;
        position = reached;
        give_pages_back(dispatch, position);
        if (dispatch->arrivals.count) return RP_FULL;
    }
    rp_log_view_trim(dispatch->view, min);
    return position < rp_load_acquire(dispatch->limit) ? RP_OK : RP_EMPTY;
}

int rp_dispatch_is_behind(const rp_dispatch *dispatch) {
    uint64_t limit = rp_load_acquire(dispatch->limit);
    return limit != dispatch->incomplete_at && rp_load_acquire(&dispatch->control->dispatched_phy_offset) < limit;
}

uint64_t rp_dispatch_skip(rp_dispatch *dispatch) {
    rp_control *control = dispatch->control;
    uint64_t position = rp_load_acquire(&control->dispatched_phy_offset), file_size = control->commitlog_file_size;
    uint64_t end = rp_load_acquire(dispatch->limit), to = position - position % file_size + file_size;
    if (to > end) to = end;
    if (position >= end) return 0;
    const uint8_t *image = rp_log_view_acquire(dispatch->view, position, to - position);
    if (!image && errno != ENOENT) return 0; /* that says nothing of the file */
    uint64_t at = image ? position + rp_recovery_resync(image, to - position, position) : to;
    if (image) rp_log_view_release(dispatch->view, position);
    rp_store_release(&control->dispatched_phy_offset, at);
    return at - position;
}

void rp_dispatch_release(rp_dispatch *dispatch) {
    rp_cq_release(dispatch->writer);
    if (dispatch->ext) rp_cq_ext_writer_release(dispatch->ext);
}

/* As with units (queue_files.c): the next sync would succeed without writing them. */
static rp_status lose_index(rp_dispatch *dispatch, rp_status status) {
    rp_store_release(&dispatch->control->units_lost, 1);
    return status;
}

rp_status rp_dispatch_sync(rp_dispatch *dispatch) {
    rp_control *control = dispatch->control;
    uint64_t dispatched = rp_load_acquire(&control->dispatched_phy_offset);
    int64_t timestamp_ms = 0;
    rp_status status = RP_OK;
    if (rp_load_acquire(&control->units_lost)) {
        errno = EIO;
        return RP_IO_ERROR;
    }
    if (dispatch->ext) status = rp_cq_ext_sync(dispatch->ext); /* before the units that name them */
    if (status == RP_OK) status = rp_queue_files_sync(dispatch->writer);
    RP_CRASH_POINT("dispatch.units_durable");
    if (status == RP_OK) rp_store_release(&control->units_durable_phy_offset, dispatched);
    if (status != RP_OK || !dispatch->index) return status;
    status = rp_index_sync_full(dispatch->index, &timestamp_ms);
    if (status == RP_OK && timestamp_ms) control->index_timestamp_ms = timestamp_ms;
    return status == RP_OK ? RP_OK : lose_index(dispatch, status);
}

rp_status rp_dispatch_sync_index(rp_dispatch *dispatch) {
    rp_status status = dispatch->index ? rp_index_sync(dispatch->index) : RP_OK;
    return status == RP_OK ? RP_OK : lose_index(dispatch, status);
}
