/* One batch of dispatch: a run of records of one log file.
 *
 *   collect   decode, find the queue, add the unit to the queue's units of the batch (unit_batch.h), remember the
 *             record for the index
 *   write     the units of each queue together
 *   publish   max_phy_offset, then max_offset (release) of each queue
 *   tell      full fence; for a queue whose `watched` was 1, send an ARRIVAL. The pull worker sets `watched`, fences
 *             and reads max_offset: one of the two sees the other. Write, publish and tell are done for TELL_RUNS
 *             queues at a time, so that no pull waits for all of a large batch
 *   index     the keys of each record; of a large batch, some before its units
 *   advance   dispatched_phy_offset (release)
 *
 * A batch ends at the published position of its begin, or after BATCH_RECORDS or the caller's budget; beyond these two
 * it continues only while it is thin. After a crash or an error `dispatched` is unchanged and the batch is repeated:
 * units have fixed places, and max_phy_offset and the index's end offset show what was already written. Memory is
 * reserved at open. */
#include <errno.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "store/dispatch/dispatch_private.h"
#include "store/log/flush.h"
#include "store/log/new_file.h"
#include "store/queues/unit.h"

enum {
    BLANK_UNITS = 512, /* per write */
    TELL_RUNS = 256,
    LOOK_EVERY = 1024, /* records */
};

/* During a batch: update the heartbeat and wake the flush thread. */
static void look_around(const rp_dispatch *dispatch) {
    if (dispatch->heartbeat_ns) rp_store_release(dispatch->heartbeat_ns, rp_now_ns());
    if (dispatch->flush && rp_load_acquire(&dispatch->control->durable_phy_offset) <
                               rp_load_acquire(&dispatch->control->published_phy_offset))
        rp_flush_wake(dispatch->flush);
}

static void forget_batch(rp_dispatch *dispatch) {
    rp_unit_batch_clear(dispatch->batch);
    dispatch->collected = dispatch->keyed_count = 0;
}

static rp_status write_runs(rp_dispatch *dispatch, uint32_t from, uint32_t to) {
    rp_status status = RP_OK;
    for (uint32_t i = from; i < to && status == RP_OK; i++) {
        RP_CRASH_POINT("dispatch.chunk");
        status = rp_unit_batch_write(dispatch->batch, i, dispatch->writer, dispatch->ext_enable ? dispatch->ext : NULL,
                                     &dispatch->counts.plain);
    }
    return status;
}

static rp_ring_writer *owner_of(const rp_dispatch *dispatch, const rp_queue *queue) {
    uint32_t pull_count = dispatch->arrivals.pull_count;
    if (pull_count == 1) return dispatch->arrivals.pulls[0];
    const uint8_t *topic;
    uint32_t size = rp_control_topic(dispatch->block, queue->topic, &topic);
    return dispatch->arrivals.pulls[rp_queue_owner(topic, size, (int32_t)queue->queue_id, pull_count)];
}

rp_status rp_dispatch_send_arrivals(rp_dispatch *dispatch) {
    uint32_t left = 0, pull_count = dispatch->arrivals.pull_count, *queues = dispatch->arrivals.queues;
    for (uint32_t i = 0; i < dispatch->arrivals.count; i++) {
        rp_queue *queue = rp_control_queue(dispatch->block, queues[i]);
        rp_ring_writer *pull = owner_of(dispatch, queue);
        rp_msg_arrival *arrival = (rp_msg_arrival *)rp_ring_reserve(pull, sizeof *arrival);
        if (arrival) {
            *arrival = (rp_msg_arrival){.queue = queues[i]};
            rp_ring_commit(pull, sizeof *arrival, RP_MSG_ARRIVAL);
        } else if (pull_count == 1) {
            queues[left++] = queues[i];
        } else {
            rp_store_release32(&queue->watched, 1);
        }
    }
    dispatch->arrivals.count = left;
    for (uint32_t i = 0; i < pull_count; i++) rp_ring_wake(dispatch->arrivals.pulls[i]);
    return left ? RP_FULL : RP_OK;
}

static void publish_runs(rp_dispatch *dispatch, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) {
        const rp_unit_run *run = rp_unit_batch_run(dispatch->batch, i);
        rp_queue *queue = run->queue;
        if (queue->max_offset == 0 && run->offset) rp_store_release(&queue->min_offset, run->offset);
        RP_CRASH_POINT("dispatch.show_end");
        rp_store_release(&queue->max_phy_offset, run->max_phy_offset);
        RP_CRASH_POINT("dispatch.show_units");
        rp_store_release(&queue->max_offset, run->offset + run->count); /* the units on file */
    }
}

static void tell_watchers(rp_dispatch *dispatch, uint32_t from, uint32_t to) {
    if (!dispatch->arrivals.pull_count) return;
    rp_full_fence(); /* orders the stores of max_offset before the loads of `watched` */
    for (uint32_t i = from; i < to; i++) {
        rp_queue *queue = rp_unit_batch_run(dispatch->batch, i)->queue;
        if (rp_load_acquire32(&queue->watched) && rp_exchange32(&queue->watched, 0))
            dispatch->arrivals.queues[dispatch->arrivals.count++] = rp_control_queue_index(dispatch->block, queue);
    }
}

static rp_status index_record(rp_dispatch *dispatch, const struct keyed *record) {
    int32_t hash;
    int is_redo = record->phy_offset == rp_index_end(dispatch->index); /* some keys may be entered already */
    rp_key_hashes_begin(&dispatch->hashes, record->topic, record->topic_size, record->properties,
                        record->properties_size);
    while (rp_key_hashes_next(&dispatch->hashes, &hash)) {
        rp_status status = rp_index_put(dispatch->index, hash, record->phy_offset, record->store_timestamp_ms, is_redo);
        if (status != RP_OK) return status;
        dispatch->counts.keys++;
    }
    dispatch->counts.cut_short += (uint64_t)dispatch->hashes.is_cut_short;
    return RP_OK;
}

static rp_status index_batch(rp_dispatch *dispatch) {
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < dispatch->keyed_count && status == RP_OK; i++) { /* none without an index */
        if (dispatch->keyed[i].phy_offset >= rp_index_end(dispatch->index))
            status = index_record(dispatch, &dispatch->keyed[i]);
        if (i % LOOK_EVERY == LOOK_EVERY - 1) look_around(dispatch);
    }
    dispatch->collected = dispatch->keyed_count = 0;
    return status;
}

/* Write and publish the collected batch, up to `position` of the log. */
static rp_status finish_batch(rp_dispatch *dispatch, uint64_t position) {
    uint32_t runs = rp_unit_batch_runs(dispatch->batch), to;
    rp_status status = RP_OK;
    for (uint32_t from = 0; from < runs && status == RP_OK; from = to) {
        to = runs - from < TELL_RUNS ? runs : from + TELL_RUNS;
        status = write_runs(dispatch, from, to);
        if (status != RP_OK) break;
        publish_runs(dispatch, from, to);
        tell_watchers(dispatch, from, to);
        if (dispatch->arrivals.count)
            rp_dispatch_send_arrivals(dispatch); /* what does not fit goes first in the next run */
        look_around(dispatch);
    }
    if (status == RP_OK && dispatch->arrivals.count)
        rp_dispatch_send_arrivals(dispatch); /* queues met again, and nothing to write */
    RP_CRASH_POINT("dispatch.index");
    if (status == RP_OK) status = index_batch(dispatch);
    if (status == RP_OK && dispatch->timestamp_ms > 0)
        dispatch->control->dispatched_timestamp_ms = dispatch->timestamp_ms;
    RP_CRASH_POINT("dispatch.advance");
    if (status == RP_OK && dispatch->index)
        rp_store_release(&dispatch->control->indexed_phy_offset, rp_index_end(dispatch->index));
    if (status == RP_OK) rp_store_release(&dispatch->control->dispatched_phy_offset, position); /* units and index */
    forget_batch(dispatch);
    return status;
}

/* 1 if the places between `end` and the record's queue offset belong to messages that cannot be read: damaged ones, or
 * those of a lost log file. Between files they must also have had room in the log between the queue's last record and
 * this one, and in one log file: that bounds what is written for a damaged queue offset. rocketpy/store/rebuilding has
 * the same rule. */
static int is_gap(const rp_dispatch *dispatch, uint64_t end, uint64_t phy_end, uint64_t offset, uint64_t phy_offset) {
    if (offset < end || end == 0) return 0;
    if (offset / dispatch->units_per_file == (end - 1) / dispatch->units_per_file) return 1;
    uint64_t room = phy_offset > phy_end ? phy_offset - phy_end : 0, file_size = dispatch->control->commitlog_file_size;
    return offset - end <= (room < file_size ? room : file_size) / RP_RECORD_SIZE_MIN;
}

/* Pre-blank units in [end, offset). Readers see them with the unit after them, or before: rp_cq_write fills the begin
 * of the record's own file, which must not exist before that unit. */
static rp_status fill_gap(rp_dispatch *dispatch, rp_queue *queue, uint64_t end, uint64_t offset) {
    uint8_t blanks[BLANK_UNITS * RP_CQ_UNIT_SIZE];
    uint64_t per_file = dispatch->units_per_file;
    uint64_t to = offset / per_file == (end - 1) / per_file ? offset : offset - offset % per_file;
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < BLANK_UNITS; i++) rp_unit_fill(blanks + i * RP_CQ_UNIT_SIZE, 0, INT32_MAX, 0);
    while (end < to && status == RP_OK) {
        uint32_t count = to - end < BLANK_UNITS ? (uint32_t)(to - end) : BLANK_UNITS;
        status = rp_cq_write(dispatch->writer, queue, end, count, blanks);
        end += count;
        look_around(dispatch);
    }
    if (status == RP_OK && to == offset) rp_store_release(&queue->max_offset, offset);
    return status;
}

/* The queue offsets of the log jump from `end` to the record's. A gap is filled with pre-blank units; otherwise (an
 * earlier queue of the same name) the queue is restarted at that offset. No batch is open. */
static rp_status bridge(rp_dispatch *dispatch, rp_queue *queue, uint64_t end, const rp_record_view *record,
                        uint64_t phy_offset) {
    if (is_gap(dispatch, end, queue->max_phy_offset, record->queue_offset, phy_offset))
        return fill_gap(dispatch, queue, end, record->queue_offset);
    dispatch->counts.resets += end != 0;
    return end ? rp_dispatch_drop_queue(dispatch, queue) : RP_OK;
}

/* The previous process wrote the unit and died; it may not have sent the ARRIVAL. */
static void tell_again(rp_dispatch *dispatch, uint32_t index) {
    uint32_t count = dispatch->arrivals.count;
    if (dispatch->arrivals.pull_count && count < ARRIVALS_MAX - RP_UNIT_RUNS_MAX &&
        (!count || dispatch->arrivals.queues[count - 1] != index))
        dispatch->arrivals.queues[dispatch->arrivals.count++] = index;
}

/* Add the record's unit to its queue. RP_OK; RP_FULL: finish the batch, then call again. */
static rp_status collect_unit(rp_dispatch *dispatch, const rp_record_view *record, uint64_t phy_offset) {
    uint32_t queue_id = (uint32_t)record->queue_id;
    rp_queue *queue = rp_control_find(dispatch->block, record->topic, record->topic_size, queue_id);
    if (!queue) queue = rp_control_add(dispatch->block, record->topic, record->topic_size, queue_id);
    if (!queue && !rp_control_refuses(errno)) return rp_status_of_errno();
    if (!queue || !rp_cq_is_offset(record->queue_offset)) {
        dispatch->counts.unplaced++;
        return RP_OK;
    }
    uint32_t index = rp_control_queue_index(dispatch->block, queue);
    uint64_t end, phy_end;
    int is_open = rp_unit_batch_end(dispatch->batch, queue, &end, &phy_end);
    if (phy_offset + record->size <= phy_end) { /* done before a restart; or written, and not shown */
        uint64_t next = queue->max_offset ? queue->max_offset : queue->min_offset, at = record->queue_offset;
        if (at >= next && rp_cq_holds(dispatch->writer, queue, at, phy_offset, record->size)) /* after it: a gap */
            rp_store_release(&queue->max_offset, at + 1);
        tell_again(dispatch, index);
        return RP_OK;
    }
    if (record->queue_offset != end && !(end == 0 && !is_open)) {
        if (rp_unit_batch_runs(dispatch->batch) || dispatch->keyed_count) return RP_FULL;
        rp_status status = bridge(dispatch, queue, end, record, phy_offset);
        if (status != RP_OK) return status;
    }
    rp_cq_extension extension;
    extension.store_timestamp_ms = record->store_timestamp_ms;
    extension.bitmap_size = 0;
    if (dispatch->filters.are_whole) rp_topic_filters_evaluate(&dispatch->filters, record, &extension);
    uint8_t *unit =
        rp_unit_batch_add(dispatch->batch, queue, record->queue_offset, phy_offset + record->size, &extension);
    if (!unit) return RP_FULL;
    rp_unit_fill(unit, phy_offset, record->size,
                 rp_unit_tags_code(record, dispatch->delay_level_ms, dispatch->delay_level_count));
    dispatch->counts.units++;
    return RP_OK;
}

/* Add one record to the batch. RP_OK; RP_FULL: finish the batch, then call again. */
static rp_status collect(rp_dispatch *dispatch, const rp_record_view *record, uint64_t phy_offset) {
    if (dispatch->collected == BATCH_RECORDS) {
        rp_status status = rp_unit_batch_is_thin(dispatch->batch) ? index_batch(dispatch) : RP_FULL;
        if (status != RP_OK) return status;
    }
    if (rp_has_unit(record->sys_flag)) {
        rp_status status = collect_unit(dispatch, record, phy_offset);
        if (status != RP_OK) return status;
    }
    if (++dispatch->counts.records % LOOK_EVERY == 0) look_around(dispatch);
    dispatch->timestamp_ms = record->store_timestamp_ms;
    dispatch->collected++;
    if (dispatch->index && rp_key_hashes_wants(record->sys_flag, record->properties_size))
        dispatch->keyed[dispatch->keyed_count++] = (struct keyed){.topic = record->topic,
                                                                  .topic_size = record->topic_size,
                                                                  .properties = record->properties,
                                                                  .properties_size = record->properties_size,
                                                                  .phy_offset = phy_offset,
                                                                  .store_timestamp_ms = record->store_timestamp_ms};
    return RP_OK;
}

rp_status rp_dispatch_span(rp_dispatch *dispatch, const uint8_t *image, uint64_t position, uint64_t end, uint64_t stop,
                           uint64_t *reached) {
    uint64_t file_size = dispatch->control->commitlog_file_size, at = position;
    rp_status status = RP_OK;
    while (at < end && (at < stop || rp_unit_batch_is_thin(dispatch->batch))) {
        rp_record_view record;
        status = rp_record_decode(image + (at - position), end - at, 0, &record);
        if (status == RP_END_OF_FILE) {
            at = at - at % file_size + file_size;
            status = RP_OK;
            break;
        }
        if (status != RP_OK) break;
        status = collect(dispatch, &record, at);
        if (status == RP_FULL) {
            status = finish_batch(dispatch, at);
            if (status != RP_OK) return status;
            *reached = at;
            if (dispatch->arrivals.count) return RP_OK; /* the ring is full; the list holds those of one batch */
            continue;
        }
        if (status != RP_OK) break;
        at += record.size;
    }
    if (status != RP_OK && status != RP_EMPTY && status != RP_INCOMPLETE && status != RP_CORRUPT) {
        forget_batch(dispatch);
        return status;
    }
    rp_status finished = at > *reached ? finish_batch(dispatch, at) : RP_OK;
    if (finished != RP_OK) return finished;
    *reached = at;
    if (status == RP_OK) return RP_OK;
    if (status == RP_INCOMPLETE && dispatch->control->stops_at_confirmed && end % file_size) {
        dispatch->incomplete_at = end;
        return RP_EMPTY;
    }
    return RP_CORRUPT; /* zeros or half a record below the published position are damage, too */
}

/* Queues whose units are removed with their files. */

/* A reader may open one of the files while they are being removed: its descriptor is then stale as well. */
static rp_status remove_files(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->generation, queue->generation + 1);
    rp_status status = rp_queue_files_remove(dispatch->writer, queue);
    rp_status extended = dispatch->ext ? rp_cq_ext_remove(dispatch->ext, queue) : RP_OK;
    rp_store_release(&queue->generation, queue->generation + 1);
    return status != RP_OK ? status : extended;
}

void rp_dispatch_finish_removals(rp_dispatch *dispatch) {
    for (uint32_t i = 0; i < dispatch->control->queue_count; i++) {
        rp_queue *queue = rp_control_queue(dispatch->block, i);
        int is_deleted = queue->max_offset ? rp_control_is_deleted(queue) : queue->state == RP_QUEUE_DELETED;
        if (is_deleted && queue->min_offset == queue->max_offset) remove_files(dispatch, queue);
    }
}

rp_status rp_dispatch_drop_queue(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->max_offset, 0); /* nothing can be read from here on */
    rp_store_release(&queue->min_offset, 0);
    RP_CRASH_POINT("dispatch.drop");
    return remove_files(dispatch, queue);
}

rp_status rp_dispatch_expire_queue(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->min_offset, queue->max_offset);
    return remove_files(dispatch, queue);
}
