/* An op message is stored after the half message that it names. So all op messages of the window are after the half
 * message at its base, wherever the stored progress of the op queue is.
 *
 * An op message follows its committed message at once, and a power failure may cut the log between the two. Then the
 * committed message is the last record of the log, dispatched or not. (A Java broker stores them one by one: others may
 * be in between.) */
#include "store/transactions/half_recovery.h"
#include <stdint.h>
#include <string.h>
#include "base/map.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "store/control/control_block.h"
#include "store/log/log_view.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/unit.h"
#include "store/recovery/recovery.h"
#include "store/transactions/half_states.h"

/* Half messages that were stored again: a Java broker does so for each check, and in the immunity time. A copy has the
 * body, the times, the sender and the properties of its original. A producer may send one message object in two
 * transactions: the born times of these differ. Another sender cannot take the born host, which the broker writes. */

/* 1 if `copy` may be a copy of another half message; *original: its offset in the half queue, if the copy names it,
 * else UINT64_MAX. Clients can write both properties, so the two messages have to be compared. */
static int may_be_copy(const rp_record_view *copy, uint64_t *original) {
    const uint8_t *value;
    int64_t named;
    uint32_t size = rp_property_find(copy->properties, copy->properties_size, RP_PREPARED_QUEUE_OFFSET, &value);
    int has_name = size && rp_parse_int64(value, size, &named) == RP_OK && named >= 0;
    *original = has_name ? (uint64_t)named : UINT64_MAX;
    return has_name || rp_property_find(copy->properties, copy->properties_size, RP_CHECK_TIMES, &value) > 0;
}

/* 1 if both have the property, with one value. */
static int has_same(const rp_record_view *one, const rp_record_view *other, const char *name) {
    const uint8_t *a, *b;
    uint32_t size = rp_property_find(one->properties, one->properties_size, name, &a);
    return size && size == rp_property_find(other->properties, other->properties_size, name, &b) &&
           memcmp(a, b, size) == 0;
}

/* 1 if both are one message of one transaction. */
static int is_same_message(const rp_record_view *one, const rp_record_view *other) {
    return one->born_timestamp_ms == other->born_timestamp_ms && one->body_size == other->body_size &&
           one->body_crc == other->body_crc && memcmp(&one->born_host, &other->born_host, sizeof one->born_host) == 0 &&
           has_same(one, other, "UNIQ_KEY") && has_same(one, other, RP_REAL_TOPIC) && has_same(one, other, "PGROUP") &&
           (!one->body_size || memcmp(one->body, other->body, one->body_size) == 0);
}

/* Records whose op message follows them at once: committed messages, and half messages that were stored again
 * (renewed); and the half messages that they were made of. */

/* A committed message names its half message in preparedTransactionOffset. No request of a client carries that field,
 * but a client can set the flag of a committed message in sysFlag: then the record names place 0, where another
 * message's half message may be. So the two messages are compared. */

/* No client can send to the half topic, or write that property. The first message of a log has place 0. */
static int is_renewed(const rp_record_view *record) {
    const uint8_t *value;
    return rp_text_is(record->topic, record->topic_size, RP_HALF_TOPIC) &&
           (record->prepared_transaction_offset != 0 ||
            rp_property_find(record->properties, record->properties_size, RP_FIRST_STORED, &value));
}

static int has_op(const rp_record_view *record) {
    return (record->sys_flag & RP_TRANSACTION_MASK) == RP_SYS_FLAG_TRANSACTION_COMMIT || is_renewed(record);
}

/* 1 if `message` was made of `half`. */
static int is_of(const rp_record_view *message, const rp_record_view *half) {
    const uint8_t *topic, *key, *half_key;
    if (!rp_text_is(half->topic, half->topic_size, RP_HALF_TOPIC)) return 0;
    uint32_t topic_size = rp_property_find(half->properties, half->properties_size, RP_REAL_TOPIC, &topic),
             key_size = rp_property_find(message->properties, message->properties_size, "UNIQ_KEY", &key);
    if (!is_renewed(message) &&
        (!topic_size || topic_size != message->topic_size || memcmp(topic, message->topic, topic_size) != 0))
        return 0;
    if (key_size != rp_property_find(half->properties, half->properties_size, "UNIQ_KEY", &half_key)) return 0;
    if (key_size && memcmp(key, half_key, key_size) != 0) return 0;
    return half->born_timestamp_ms == message->born_timestamp_ms && half->body_size == message->body_size &&
           (!half->body_size || memcmp(half->body, message->body, half->body_size) == 0);
}

/* 1 with the place (*half_phy_offset) and the queue offset of the half message that the record at `phy_offset` was made
 * of; 0: it is no such record, or its half message cannot be read. */
static int half_of_committed(rp_log_view *log, uint64_t end, uint64_t phy_offset, uint64_t *half_phy_offset,
                             uint64_t *half_offset) {
    rp_record_view message, half;
    int is_found = 0;
    if (!rp_log_view_record(log, phy_offset, end, &message)) return 0;
    uint64_t at = (uint64_t)message.prepared_transaction_offset;
    if (has_op(&message) && at < phy_offset && rp_log_view_record(log, at, end, &half)) {
        is_found = is_of(&message, &half);
        *half_phy_offset = at;
        *half_offset = half.queue_offset;
        rp_log_view_release(log, at);
    }
    rp_log_view_release(log, phy_offset);
    return is_found;
}

enum {
    UNITS = 512,
    FILES = 4,
    MAPPINGS = 4,
    RENEWALS_MAX = 16, /* of one half message, whose places are known after a start */
    LOOKED_AT = RP_HALF_WINDOW - RP_HALF_WINDOW / 16 /* half messages, where the progress is not known */
};

struct recovery {
    rp_half_states *states;
    rp_control_block *block;
    const rp_control *control;
    rp_cq_reader *units;
    rp_log_view *log;
    rp_map below; /* half offsets below the window that have an op message */
    rp_map keys; /* UNIQ_KEY -> offset + 1 of the last open half message with it */
    const rp_queue *halves;
    uint64_t committed[RP_HALF_OPS_MISSING_MAX]; /* places of the last committed messages that were found */
    uint32_t committed_count; /* of all; the latest are kept */
    rp_half_recovery *found;
};

static rp_queue *queue_of(const struct recovery *recovery, const char *topic) {
    rp_queue *queue = rp_control_find(recovery->block, (const uint8_t *)topic, (uint32_t)strlen(topic), 0);
    return queue && queue->state == RP_QUEUE_LIVE ? queue : NULL;
}

static rp_status put_key(rp_map *map, const void *key, uint32_t size, uint64_t value) {
    int failed = 0;
    rp_map_put(map, key, size, (void *)(uintptr_t)value, &failed);
    return failed ? RP_NO_MEMORY : RP_OK;
}

/* `record` is an op message: the half message that its body names has ended. */
static rp_status take_op(struct recovery *recovery, const rp_record_view *record) {
    int64_t offset;
    if (rp_parse_int64(record->body, record->body_size, &offset) != RP_OK || offset < 0) return RP_OK;
    recovery->found->ops++;
    if ((uint64_t)offset < rp_half_states_base(recovery->states))
        return put_key(&recovery->below, &offset, sizeof offset, 1);
    rp_half_states_set(recovery->states, (uint64_t)offset, RP_HALF_ENDED);
    return RP_OK;
}

static void take_committed(struct recovery *recovery, uint64_t phy_offset) {
    recovery->committed[recovery->committed_count++ % RP_HALF_OPS_MISSING_MAX] = phy_offset;
}

typedef rp_status (*visit_function)(struct recovery *, uint64_t offset, const rp_record_view *);

/* Read the record of a unit, unless that is a blank. 1: the caller releases the log at the unit's position. */
static int read_record(const struct recovery *recovery, rp_unit unit, rp_record_view *record) {
    return unit.size && unit.size != INT32_MAX &&
           rp_log_view_record(recovery->log, unit.phy_offset, recovery->control->published_phy_offset, record);
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
            if (!read_record(recovery, unit, &record)) continue;
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

static rp_status visit_tail(void *context, const rp_record_view *record, uint64_t phy_offset) {
    struct recovery *recovery = context;
    if (has_op(record)) take_committed(recovery, phy_offset);
    return rp_text_is(record->topic, record->topic_size, RP_OP_TOPIC) ? take_op(recovery, record) : RP_OK;
}

/* What is not dispatched yet: op messages, and committed messages. */
static rp_status read_tail(struct recovery *recovery) {
    const rp_control *control = recovery->control;
    uint64_t from = control->dispatched_phy_offset;
    if (from < control->min_phy_offset) from = control->min_phy_offset;
    return rp_recovery_walk(recovery->log, control->commitlog_file_size, from, control->published_phy_offset,
                            visit_tail, recovery);
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
    uint64_t end = recovery->control->published_phy_offset;
    if (!half_of_committed(recovery->log, end, phy_offset, &half_at, &offset)) return;
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

/* 1 if the half message at `offset` is the one of `record`, stored before. */
static int is_same(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    uint8_t bytes[RP_CQ_UNIT_SIZE];
    rp_record_view other;
    if (rp_cq_read(recovery->units, recovery->halves, offset, 1, bytes) != 1) return 0;
    rp_unit unit = rp_unit_read(bytes);
    if (!read_record(recovery, unit, &other)) return 0;
    int same = unit.phy_offset < record->phy_offset && rp_text_is(other.topic, other.topic_size, RP_HALF_TOPIC) &&
               is_same_message(&other, record);
    rp_log_view_release(recovery->log, unit.phy_offset);
    return same;
}

/* The earlier half message that a copy stands for: the one that it names, or an open one with its key. 0: none. */
static int original_of(struct recovery *recovery, const rp_record_view *copy, uint64_t *original) {
    const uint8_t *key;
    if (!may_be_copy(copy, original)) return 0;
    if (is_same(recovery, *original, copy)) return 1;
    uint32_t size = rp_property_find(copy->properties, copy->properties_size, "UNIQ_KEY", &key);
    uint64_t found = size ? (uint64_t)(uintptr_t)rp_map_get(&recovery->keys, key, size) : 0;
    *original = found - 1;
    return found && is_same(recovery, *original, copy);
}

static void end_copy(struct recovery *recovery, uint64_t offset) {
    rp_half_states_set(recovery->states, offset, RP_HALF_ENDED);
    recovery->found->copies++;
}

/* 1 if the half message has ended because it is a copy. If both are open, the first one is kept; if one of them has
 * ended, the other one has, too. */
static int ends_as_copy(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    uint64_t original;
    int is_open = rp_half_states_of(recovery->states, offset) == RP_HALF_OPEN;
    if (!original_of(recovery, record, &original)) return 0;
    int is_below = original < rp_half_states_base(recovery->states);
    if (is_open) {
        if (is_below && !rp_map_get(&recovery->below, &original, sizeof original)) return 0;
        end_copy(recovery, offset);
    } else if (!is_below && rp_half_states_of(recovery->states, original) == RP_HALF_OPEN) {
        end_copy(recovery, original);
        recovery->found->open--;
    }
    return is_open;
}

/* The producer of a half message that was stored again knows its first place. */
static void remember_renewals(struct recovery *recovery, const rp_record_view *renewed) {
    uint64_t at = renewed->phy_offset, end = recovery->control->published_phy_offset, before, offset;
    for (uint32_t hops = 0; hops < RENEWALS_MAX; hops++, at = before) {
        if (!half_of_committed(recovery->log, end, at, &before, &offset)) return;
        rp_half_states_renew(recovery->states, &(rp_half_renewal){offset, before, renewed->queue_offset,
                                                                  renewed->phy_offset, renewed->phy_offset + 1});
    }
}

static rp_status visit_half(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    const uint8_t *key;
    if (ends_as_copy(recovery, offset, record) || rp_half_states_of(recovery->states, offset) != RP_HALF_OPEN)
        return RP_OK;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "UNIQ_KEY", &key);
    recovery->found->open++;
    if (is_renewed(record)) remember_renewals(recovery, record);
    return size ? put_key(&recovery->keys, key, size, offset + 1) : RP_OK;
}

/* A Java broker stores no op message for a half message that it discards. */
static rp_status visit_discarded(struct recovery *recovery, uint64_t offset, const rp_record_view *record) {
    const uint8_t *key;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "UNIQ_KEY", &key);
    uint64_t found = size ? (uint64_t)(uintptr_t)rp_map_get(&recovery->keys, key, size) : 0;
    if (found && rp_half_states_of(recovery->states, found - 1) == RP_HALF_OPEN &&
        is_same(recovery, found - 1, record)) {
        rp_half_states_set(recovery->states, found - 1, RP_HALF_ENDED);
        recovery->found->open--;
    }
    return RP_OK;
}

/* Look at all half messages from the first open one on: one that has ended may be a copy of one that is open. */
static rp_status read_halves(struct recovery *recovery, uint64_t base) {
    const rp_queue *halves = recovery->halves, *discarded = queue_of(recovery, RP_DISCARD_TOPIC);
    uint64_t first = rp_half_states_next_open(recovery->states, base, halves->max_offset), phy_offset;
    rp_status status = visit(recovery, halves, first, halves->max_offset, visit_half);
    if (status != RP_OK || !recovery->found->open || !discarded) return status;
    uint64_t from = place_of(recovery, halves, first, &phy_offset) ? first_behind(recovery, discarded, phy_offset)
                                                                   : discarded->min_offset;
    return visit(recovery, discarded, from, discarded->max_offset, visit_discarded);
}

static rp_status recover(struct recovery *recovery, uint64_t base) {
    const rp_queue *halves = queue_of(recovery, RP_HALF_TOPIC), *ops = queue_of(recovery, RP_OP_TOPIC);
    if (!halves) return RP_OK;
    recovery->halves = halves;
    if (base > halves->next_offset) base = 0; /* it is of another log */
    if (base > halves->max_offset) base = halves->max_offset; /* read_tail ends the rest */
    if (halves->max_offset > LOOKED_AT && base < halves->max_offset - LOOKED_AT) base = halves->max_offset - LOOKED_AT;
    if (base < halves->min_offset) base = halves->min_offset;
    rp_half_states_move_base(recovery->states, base);
    rp_status status = RP_OK;
    if (ops) status = visit(recovery, ops, first_op(recovery, halves, ops, base), ops->max_offset, visit_op);
    if (status == RP_OK) status = read_tail(recovery);
    if (status == RP_OK) end_committed_messages(recovery, halves);
    if (status == RP_OK) status = read_halves(recovery, base);
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
    rp_log_view_close(recovery.log);
    rp_cq_close(recovery.units);
    return status;
}
