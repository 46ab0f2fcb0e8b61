/* An op message is stored after the half message that it names. So all op messages of the window are after the half
 * message at its base, wherever the stored progress of the op queue is.
 *
 * An op message follows its committed message at once, and a power failure may cut the log between the two. Then the
 * committed message is the last record of the log, dispatched or not. (A Java broker stores them one by one: others may
 * be in between.) */
#include "store/half_recovery.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/map.h"
#include "base/numbers.h"
#include "store/consume_queue.h"
#include "store/half_committed.h"
#include "store/log_view.h"
#include "store/record.h"
#include "store/recovery.h"
#include "store/transaction_names.h"
#include "store/unit.h"

enum { UNITS = 512, FILES = 4, MAPPINGS = 4 };

struct recovery {
    rp_half_states *states;
    rp_control_block *block;
    const rp_control *control;
    rp_cq_reader *units;
    rp_log_view *log;
    rp_map below; /* half offsets below the window that have an op message */
    rp_map keys; /* UNIQ_KEY of open half messages */
    uint64_t committed[RP_HALF_OPS_MISSING_MAX]; /* places of the last committed messages that were found */
    uint32_t committed_count; /* of all; the latest are kept */
    rp_half_recovery *found;
};

static const uint8_t *text(const char *string) { return (const uint8_t *)string; }

static rp_queue *queue_of(const struct recovery *recovery, const char *topic) {
    rp_queue *queue = rp_control_find(recovery->block, text(topic), (uint32_t)strlen(topic), 0);
    return queue && queue->state == RP_QUEUE_LIVE ? queue : NULL;
}

static int is_topic(const rp_record_view *record, const char *topic) {
    return record->topic_size == strlen(topic) && memcmp(record->topic, topic, record->topic_size) == 0;
}

static rp_status put_key(rp_map *map, const uint8_t *key, uint32_t size) {
    int failed = 0;
    rp_map_put(map, key, size, map, &failed);
    return failed ? RP_NO_MEMORY : RP_OK;
}

/* `record` is an op message: the half message that its body names has ended. */
static rp_status take_op(struct recovery *recovery, const rp_record_view *record) {
    int64_t offset;
    if (rp_parse_int64(record->body, record->body_size, &offset) != RP_OK || offset < 0) return RP_OK;
    recovery->found->ops++;
    if ((uint64_t)offset < rp_half_states_base(recovery->states))
        return put_key(&recovery->below, (const uint8_t *)&offset, sizeof offset);
    rp_half_states_set(recovery->states, (uint64_t)offset, RP_HALF_ENDED);
    return RP_OK;
}

static void take_committed(struct recovery *recovery, uint64_t phy_offset) {
    recovery->committed[recovery->committed_count++ % RP_HALF_OPS_MISSING_MAX] = phy_offset;
}

typedef rp_status (*visit_function)(struct recovery *, uint64_t offset, const rp_record_view *);

/* Read the record of a unit. RP_NOT_FOUND: it cannot be read. The caller releases the log at the unit's position. */
static rp_status read_record(struct recovery *recovery, rp_unit unit, rp_record_view *record) {
    if (unit.phy_offset >= recovery->control->published_phy_offset) return RP_NOT_FOUND;
    const uint8_t *image = rp_log_view_acquire(recovery->log, unit.phy_offset, unit.size);
    if (!image) return RP_NOT_FOUND;
    if (rp_record_decode(image, unit.size, 0, record) == RP_OK) return RP_OK;
    rp_log_view_release(recovery->log, unit.phy_offset);
    return RP_NOT_FOUND;
}

static rp_status visit(struct recovery *recovery, const rp_queue *queue, uint64_t from, uint64_t to,
                       visit_function function) {
    uint8_t units[UNITS * RP_CQ_UNIT_SIZE];
    rp_status status = RP_OK;
    while (from < to && status == RP_OK) {
        uint32_t wanted = to - from < UNITS ? (uint32_t)(to - from) : (uint32_t)UNITS;
        int32_t count = rp_cq_read(recovery->units, queue, from, wanted, units);
        if (count < 0) return RP_IO_ERROR;
        if (count == 0) { /* a lost file: its messages cannot be read at all */
            uint64_t per_file = rp_cq_units_per_file(recovery->units);
            from += per_file - from % per_file;
            continue;
        }
        for (int32_t i = 0; i < count && status == RP_OK; i++) {
            rp_record_view record;
            rp_unit unit = rp_unit_read(units + i * RP_CQ_UNIT_SIZE);
            if (read_record(recovery, unit, &record) != RP_OK) continue;
            status = function(recovery, from + (uint64_t)i, &record);
            rp_log_view_release(recovery->log, unit.phy_offset);
        }
        from += (uint64_t)count;
    }
    return status;
}

static rp_status visit_op(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    return take_op(recovery, record);
}

/* 1 with the place in the log of the record at a queue offset; 0: its unit cannot be read, or is of no message. */
static int place_of(struct recovery *recovery, const rp_queue *queue, uint64_t offset, uint64_t *phy_offset) {
    uint8_t bytes[RP_CQ_UNIT_SIZE];
    if (offset >= queue->max_offset || rp_cq_read(recovery->units, queue, offset, 1, bytes) != 1) return 0;
    rp_unit unit = rp_unit_read(bytes);
    *phy_offset = unit.phy_offset;
    return unit.size != 0 && unit.size <= recovery->control->commitlog_file_size;
}

/* The first offset of the queue whose record is at or after `phy_offset`. */
static uint64_t first_behind(struct recovery *recovery, const rp_queue *queue, uint64_t phy_offset) {
    uint64_t low = queue->min_offset, high = queue->max_offset;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, found;
        if (place_of(recovery, queue, middle, &found) && found < phy_offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the op messages of the half messages from `base` on begin. If the unit of `base` cannot be read, an earlier
 * half message stands for it: then some op messages are read in vain. */
static uint64_t first_op(struct recovery *recovery, const rp_queue *halves, const rp_queue *ops, uint64_t base) {
    uint64_t phy_offset;
    if (base >= halves->max_offset) return first_behind(recovery, ops, recovery->control->dispatched_phy_offset);
    for (uint64_t back = 0; back <= base - halves->min_offset; back = back ? 2 * back : 1)
        if (place_of(recovery, halves, base - back, &phy_offset)) return first_behind(recovery, ops, phy_offset);
    return ops->min_offset;
}

/* What is not dispatched yet: op messages, and committed messages. */
static rp_status read_tail(struct recovery *recovery) {
    uint64_t end = recovery->control->published_phy_offset, file_size = recovery->control->commitlog_file_size;
    uint64_t at = recovery->control->dispatched_phy_offset;
    rp_status status = RP_OK;
    if (at < recovery->control->min_phy_offset) at = recovery->control->min_phy_offset;
    while (at < end && status == RP_OK) {
        uint64_t start = at, size = file_size - at % file_size;
        if (size > end - at) size = end - at;
        const uint8_t *image = rp_log_view_acquire(recovery->log, start, size);
        if (!image && errno != ENOENT) return RP_IO_ERROR;
        while (image && at < start + size && status == RP_OK) {
            rp_record_view record;
            rp_status read = rp_record_decode(image + (at - start), start + size - at, 0, &record);
            if (read == RP_END_OF_FILE) break;
            if (read == RP_OK) {
                if (is_topic(&record, RP_OP_TOPIC)) status = take_op(recovery, &record);
                if (rp_half_is_committed(&record)) take_committed(recovery, at);
                at += record.size;
            } else {
                at += rp_recovery_resync(image + (at - start), start + size - at, at);
            }
        }
        if (image) rp_log_view_release(recovery->log, start);
        if (at < start + size) at = start + size;
    }
    return status;
}

/* The last record of the log, if it is dispatched. */
static void look_at_last_record(struct recovery *recovery) {
    uint64_t end = recovery->control->published_phy_offset, phy_offset;
    if (!end || recovery->control->dispatched_phy_offset < end) return; /* read_tail has seen it */
    for (uint32_t i = 0; i < recovery->control->queue_count; i++) {
        const rp_queue *queue = rp_control_queue(recovery->block, i);
        if (queue->state != RP_QUEUE_LIVE || queue->max_phy_offset != end || !queue->max_offset) continue;
        if (place_of(recovery, queue, queue->max_offset - 1, &phy_offset)) take_committed(recovery, phy_offset);
        return;
    }
}

/* End the half message of the committed message at `phy_offset`, if no op message does. Where the half
 * message is dispatched, its unit must name the same place. */
static void end_committed(struct recovery *recovery, const rp_queue *halves, uint64_t phy_offset) {
    uint64_t half_at, offset, place;
    if (!rp_half_of_committed(recovery->log, recovery->control, phy_offset, &half_at, &offset)) return;
    int has_unit = offset < halves->max_offset; /* else it is not dispatched yet */
    if (has_unit && (!place_of(recovery, halves, offset, &place) || place != half_at)) return;
    if (!rp_half_states_has_room(recovery->states, offset) ||
        rp_half_states_of(recovery->states, offset) != RP_HALF_OPEN)
        return;
    rp_half_states_commit_without_op(recovery->states, offset);
    recovery->found->ops_missing++;
}

static void end_committed_messages(struct recovery *recovery, const rp_queue *halves) {
    look_at_last_record(recovery);
    uint32_t count = recovery->committed_count < RP_HALF_OPS_MISSING_MAX ? recovery->committed_count
                                                                         : (uint32_t)RP_HALF_OPS_MISSING_MAX;
    for (uint32_t i = 0; i < count; i++) end_committed(recovery, halves, recovery->committed[i]);
}

/* 1 if the open half message is a copy of one that has ended, or of one that is open as well. */
static int is_copy(const struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    const uint8_t *value;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "TRAN_PREPARED_QUEUE_OFFSET", &value);
    int64_t original;
    if (!size || rp_parse_int64(value, size, &original) != RP_OK || original < 0 || (uint64_t)original == offset)
        return 0;
    if ((uint64_t)original >= rp_half_states_base(recovery->states)) return (uint64_t)original < offset;
    return rp_map_get(&recovery->below, &original, sizeof original) != NULL;
}

static rp_status visit_half(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    const uint8_t *key, *times;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "UNIQ_KEY", &key);
    int is_renewed =
        rp_property_find(record->properties, record->properties_size, "TRANSACTION_CHECK_TIMES", &times) > 0;
    if (is_copy(recovery, offset, record) || (is_renewed && size && rp_map_get(&recovery->keys, key, size))) {
        rp_half_states_set(recovery->states, offset, RP_HALF_ENDED);
        recovery->found->copies++;
        return RP_OK;
    }
    recovery->found->open++;
    return size ? put_key(&recovery->keys, key, size) : RP_OK;
}

static rp_status recover(struct recovery *recovery, uint64_t base) {
    const rp_queue *halves = queue_of(recovery, RP_HALF_TOPIC), *ops = queue_of(recovery, RP_OP_TOPIC);
    if (!halves) return RP_OK;
    if (base > halves->max_offset) base = halves->max_offset;
    if (base < halves->min_offset) base = halves->min_offset;
    rp_half_states_move_base(recovery->states, base);
    rp_status status = RP_OK;
    if (ops) status = visit(recovery, ops, first_op(recovery, halves, ops, base), ops->max_offset, visit_op);
    if (status == RP_OK) status = read_tail(recovery);
    if (status == RP_OK) end_committed_messages(recovery, halves);
    for (uint64_t at = base; status == RP_OK;) {
        at = rp_half_states_next_open(recovery->states, at, halves->max_offset);
        if (at >= halves->max_offset) break;
        status = visit(recovery, halves, at, at + 1, visit_half);
        at++;
    }
    return status;
}

rp_status rp_half_recover(rp_half_states *states, uint64_t progress, rp_control_block *block,
                          const char *commitlog_directory, const char *consume_queue_directory,
                          uint64_t consume_queue_file_size, rp_half_recovery *found) {
    struct recovery recovery = {.states = states, .block = block, .control = rp_control_header(block), .found = found};
    *found = (rp_half_recovery){0};
    rp_status status = RP_NO_MEMORY;
    recovery.units = rp_cq_reader_open(block, consume_queue_directory, consume_queue_file_size, FILES);
    recovery.log = rp_log_view_open(commitlog_directory, recovery.control->commitlog_file_size, MAPPINGS);
    if (recovery.units && recovery.log && rp_map_init(&recovery.below, 16) == 0 && rp_map_init(&recovery.keys, 16) == 0)
        status = recover(&recovery, progress);
    rp_map_destroy(&recovery.below, NULL);
    rp_map_destroy(&recovery.keys, NULL);
    if (recovery.log) rp_log_view_close(recovery.log);
    if (recovery.units) rp_cq_reader_close(recovery.units);
    return status;
}
