/* See dispatch.h. A batch is a run of records of one log file:
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
#define _GNU_SOURCE
#include "store/dispatch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "store/commitlog.h"
#include "store/consume_queue.h"
#include "store/consume_queue_ext.h"
#include "base/crash_point.h"
#include "base/endian.h"
#include "store/flush.h"
#include "store/index_file.h"
#include "store/new_file.h"
#include "store/record.h"
#include "store/recovery.h"
#include "store/arrivals.h"
#include "store/unit_batch.h"
#include "store/has_unit.h"
#include "store/unit_tags.h"

enum {
    BATCH_RECORDS = 8192,
    BLANK_UNITS = 128, /* per write */
    TELL_RUNS = 256,
    LOOK_EVERY = 1024, /* records */
    ARRIVALS_MAX = 2 * RP_UNIT_RUNS_MAX, /* one batch's, and as many queues met again after a restart */
    DROP_PAGES_EVERY = 16 << 20, /* bytes of log read before their page table entries are given back */
};

/* The fields of a record that the index needs; spans point into the mapped log. */
struct keyed {
    const uint8_t *topic;
    const uint8_t *properties;
    uint64_t phy_offset;
    int64_t store_timestamp_ms;
    uint32_t topic_size;
    uint32_t properties_size;
};

struct rp_dispatch {
    rp_control_block *block;
    rp_control *control;
    rp_log_view *view;
    rp_cq_writer *writer;
    rp_cq_ext_writer *ext;
    int ext_enable;
    rp_index *index;
    int64_t *delay_level_ms;
    uint32_t delay_level_count;
    uint64_t units_per_file;
    uint64_t dropped; /* pages of the log below it were given back */
    rp_unit_batch *batch;
    uint32_t collected; /* records, since the batch began or its first keys were entered */
    struct keyed *keyed;
    uint32_t keyed_count;
    uint64_t *heartbeat_ns; /* of the worker, or NULL */
    rp_flush *flush;        /* woken within batches, or NULL */
    rp_arrivals arrivals; /* some are left between calls only while a ring is full */
    int64_t timestamp_ms; /* store time of the record collected last */
    rp_dispatch_counts counts;
    uint8_t key[RP_TOPIC_SIZE_V2_MAX + 1 + RP_PROPERTIES_SIZE_MAX];
};

/* A reader may open one of the files while they are being removed: its descriptor is then stale as well. */
static rp_status remove_files(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->generation, queue->generation + 1);
    rp_status status = rp_cq_remove(dispatch->writer, queue);
    rp_status extended = dispatch->ext ? rp_cq_ext_remove(dispatch->ext, queue) : RP_OK;
    rp_store_release(&queue->generation, queue->generation + 1);
    return status != RP_OK ? status : extended;
}

/* An earlier process may have died while it removed them. Best effort: files that cannot be removed only cost disk
 * space. */
static void finish_removals(rp_dispatch *dispatch) {
    for (uint32_t i = 0; i < dispatch->control->queue_count; i++) {
        rp_queue *queue = rp_control_queue(dispatch->block, i);
        int is_deleted = queue->max_offset ? rp_control_is_deleted(queue) : queue->state == RP_QUEUE_DELETED;
        if (is_deleted && queue->min_offset == queue->max_offset) remove_files(dispatch, queue);
    }
}

rp_dispatch *rp_dispatch_open(rp_control_block *block, const rp_dispatch_config *config) {
    rp_dispatch *dispatch = calloc(1, sizeof *dispatch);
    if (!dispatch) return NULL;
    dispatch->block = block;
    dispatch->control = rp_control_header(block);
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
    dispatch->delay_level_ms = calloc(config->delay_level_count + 1ull, sizeof *dispatch->delay_level_ms);
    dispatch->batch = rp_unit_batch_open(block, dispatch->ext_enable);
    dispatch->keyed = calloc(BATCH_RECORDS, sizeof *dispatch->keyed);
    dispatch->arrivals = (rp_arrivals){.block = block, .queues = calloc(ARRIVALS_MAX, sizeof(uint32_t))};
    if (!dispatch->view || !dispatch->writer || (config->index_enable && !dispatch->index) ||
        (config->consume_queue_ext_file_size && !dispatch->ext) || !dispatch->delay_level_ms || !dispatch->batch ||
        !dispatch->keyed || !dispatch->arrivals.queues) {
        int error = errno;
        rp_dispatch_close(dispatch);
        errno = error;
        return NULL;
    }
    if (config->delay_level_count)
        memcpy(dispatch->delay_level_ms, config->delay_level_ms,
               config->delay_level_count * sizeof *dispatch->delay_level_ms);
    finish_removals(dispatch);
    return dispatch;
}

void rp_dispatch_close(rp_dispatch *dispatch) {
    if (!dispatch) return;
    rp_log_view_close(dispatch->view);
    rp_cq_writer_close(dispatch->writer);
    rp_unit_batch_close(dispatch->batch);
    rp_cq_ext_writer_close(dispatch->ext);
    rp_index_close(dispatch->index);
    free(dispatch->delay_level_ms);
    free(dispatch->keyed);
    free(dispatch->arrivals.queues);
    free(dispatch);
}

void rp_dispatch_set_pulls(rp_dispatch *dispatch, rp_ring_writer *const *pulls, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) dispatch->arrivals.pulls[i] = pulls[i];
    dispatch->arrivals.pull_count = count;
}

void rp_dispatch_set_heartbeat(rp_dispatch *dispatch, uint64_t *heartbeat_ns) { dispatch->heartbeat_ns = heartbeat_ns; }
void rp_dispatch_set_flush(rp_dispatch *dispatch, rp_flush *flush) { dispatch->flush = flush; }
void rp_dispatch_read_counts(const rp_dispatch *dispatch, rp_dispatch_counts *counts) { *counts = dispatch->counts; }

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
    rp_full_fence(); /* max_offset above before `watched` below */
    for (uint32_t i = from; i < to; i++) {
        rp_queue *queue = rp_unit_batch_run(dispatch->batch, i)->queue;
        if (rp_load_acquire32(&queue->watched) && rp_exchange32(&queue->watched, 0))
            dispatch->arrivals.queues[dispatch->arrivals.count++] = rp_control_queue_index(dispatch->block, queue);
    }
}

static rp_status put_key(rp_dispatch *dispatch, const struct keyed *record, const uint8_t *key, uint32_t size,
                         int is_redo) {
    uint8_t *out = dispatch->key;
    memcpy(out, record->topic, record->topic_size);
    out[record->topic_size] = '#';
    memcpy(out + record->topic_size + 1, key, size);
    int32_t hash = rp_index_hash(out, record->topic_size + 1 + size);
    rp_status status = rp_index_put(dispatch->index, hash, record->phy_offset, record->store_timestamp_ms, is_redo);
    if (status == RP_OK) dispatch->counts.keys++;
    return status;
}

/* UNIQ_KEY, then the first RP_INDEX_KEYS_MAX of KEYS. */
static rp_status index_record(rp_dispatch *dispatch, const struct keyed *record) {
    const uint8_t *key;
    uint32_t size, taken = 0;
    rp_keys keys;
    rp_keys_begin(&keys, record->properties, record->properties_size);
    uint32_t room = RP_INDEX_KEYS_MAX + (keys.unique != NULL);
    int is_redo = record->phy_offset == rp_index_end(dispatch->index); /* how a predecessor died, it cannot say */
    while (rp_keys_next(&keys, &key, &size)) {
        if (taken++ == room) {
            dispatch->counts.cut_short++;
            return RP_OK;
        }
        rp_status status = put_key(dispatch, record, key, size, is_redo);
        if (status != RP_OK) return status;
    }
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
            rp_arrivals_send(&dispatch->arrivals); /* what does not fit goes first in the next run */
        look_around(dispatch);
    }
    if (status == RP_OK && dispatch->arrivals.count)
        rp_arrivals_send(&dispatch->arrivals); /* queues met again, and nothing to write */
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

static void fill_unit(uint8_t *unit, uint64_t phy_offset, uint32_t size, int64_t code) {
    rp_store64(unit, phy_offset);
    rp_store32(unit + 8, size);
    rp_store64(unit + 12, (uint64_t)code);
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

/* The queue offsets of the log jump from `end` to the record's. A gap within a file is filled with pre-blank units;
 * otherwise (an earlier queue of the same name, a gap across files) the queue is restarted at that offset. No batch is
 * open. */
static rp_status bridge(rp_dispatch *dispatch, rp_queue *queue, uint64_t end, uint64_t offset) {
    uint8_t blanks[BLANK_UNITS * RP_CQ_UNIT_SIZE];
    rp_status status = RP_OK;
    if (offset < end || end == 0 || offset / dispatch->units_per_file != (end - 1) / dispatch->units_per_file) {
        dispatch->counts.resets += end != 0;
        return end ? rp_dispatch_drop_queue(dispatch, queue) : RP_OK;
    }
    for (uint32_t i = 0; i < BLANK_UNITS; i++) fill_unit(blanks + i * RP_CQ_UNIT_SIZE, 0, INT32_MAX, 0);
    while (end < offset && status == RP_OK) {
        uint32_t count = offset - end < BLANK_UNITS ? (uint32_t)(offset - end) : BLANK_UNITS;
        status = rp_cq_write(dispatch->writer, queue, end, count, blanks);
        end += count;
    }
    if (status == RP_OK) rp_store_release(&queue->max_offset, offset);
    return status;
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
        uint64_t next = queue->max_offset ? queue->max_offset : queue->min_offset;
        if (record->queue_offset == next && rp_cq_holds(dispatch->writer, queue, next, phy_offset, record->size))
            rp_store_release(&queue->max_offset, next + 1);
        tell_again(dispatch, index);
        return RP_OK;
    }
    if (record->queue_offset != end && !(end == 0 && !is_open)) {
        if (rp_unit_batch_runs(dispatch->batch) || dispatch->keyed_count) return RP_FULL;
        rp_status status = bridge(dispatch, queue, end, record->queue_offset);
        if (status != RP_OK) return status;
    }
    uint8_t *unit = rp_unit_batch_add(dispatch->batch, queue, record->queue_offset, phy_offset + record->size,
                                      record->store_timestamp_ms);
    if (!unit) return RP_FULL;
    fill_unit(unit, phy_offset, record->size,
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
    if (dispatch->index && (record->sys_flag & RP_TRANSACTION_MASK) != RP_SYS_FLAG_TRANSACTION_ROLLBACK &&
        record->properties_size)
        dispatch->keyed[dispatch->keyed_count++] = (struct keyed){.topic = record->topic,
                                                                  .topic_size = record->topic_size,
                                                                  .properties = record->properties,
                                                                  .properties_size = record->properties_size,
                                                                  .phy_offset = phy_offset,
                                                                  .store_timestamp_ms = record->store_timestamp_ms};
    return RP_OK;
}

/* Collect the records of [position, end), which is in one file and mapped at `image`, until a record begins at or after
 * `stop` and the batch is not thin; *reached is set to the end. */
static rp_status dispatch_span(rp_dispatch *dispatch, const uint8_t *image, uint64_t position, uint64_t end,
                               uint64_t stop, uint64_t *reached) {
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
    return status == RP_OK ? RP_OK
                           : RP_CORRUPT; /* zeros or half a record below the published position are damage, too */
}

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
    uint64_t end = rp_load_acquire(&control->published_phy_offset), file_size = control->commitlog_file_size;
    if (dispatch->arrivals.count && rp_arrivals_send(&dispatch->arrivals) != RP_OK) return RP_FULL;
    if (position < min) position = min;
    uint64_t stop = budget < end - position ? position + budget : end;
    while (position < stop) {
        uint64_t file_end = position - position % file_size + file_size, to = file_end < end ? file_end : end;
        const uint8_t *image = rp_log_view_acquire(dispatch->view, position, to - position);
        if (!image) return errno == ENOENT ? RP_NOT_FOUND : RP_IO_ERROR;
        uint64_t reached = position;
        rp_status status = dispatch_span(dispatch, image, position, to, stop, &reached);
        rp_log_view_release(dispatch->view, position);
        if (status != RP_OK && dispatch->ext_enable)
            rp_cq_ext_forget(dispatch->ext); /* what was collected comes again */
        if (status != RP_OK) return status;
        position = reached;
        give_pages_back(dispatch, position);
        if (dispatch->arrivals.count) return RP_FULL;
    }
    rp_log_view_trim(dispatch->view, min);
    return position < rp_load_acquire(&control->published_phy_offset) ? RP_OK : RP_EMPTY;
}

uint64_t rp_dispatch_skip(rp_dispatch *dispatch) {
    rp_control *control = dispatch->control;
    uint64_t position = rp_load_acquire(&control->dispatched_phy_offset), file_size = control->commitlog_file_size;
    uint64_t end = rp_load_acquire(&control->published_phy_offset), to = position - position % file_size + file_size;
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
    rp_cq_writer_release(dispatch->writer);
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
    if (status == RP_OK) status = rp_cq_writer_sync(dispatch->writer);
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
