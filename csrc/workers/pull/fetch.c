/* Units are examined in chunks, not beyond the end of their file. As in the reference, as many are examined as messages
 * are requested, but at least RP_EXAMINED_MIN, and at most RP_EXAMINED_MAX because a client can request any number.
 * Adjacent records of one file become one slice. */
#include "workers/pull/fetch.h"
#include <errno.h>
#include <string.h>
#include "base/atomic.h"
#include "store/log/record.h"
#include "store/queues/unit.h"

/* 0: the tags code excludes the message. `code` is the third field of its unit. A unit whose extension is lost is
 * selected: the client compares the tags. */
static int selected_by_tags(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags, int64_t code) {
    rp_cq_ext_unit unit;
    if (tags->flags & RP_SUBSCRIPTION_ALL || !rp_cq_ext_is_address(code)) return rp_tags_match(tags, code);
    if (!selection->ext || rp_cq_ext_read(selection->ext, queue, code, &unit) != RP_OK) return 1;
    return rp_tags_match(tags, unit.tags_code);
}

/* With filter bits: how many of `count` units, from the first one on, are excluded by their filter bits. Behind them
 * the caller asks again: 0 means that the bits do not exclude the first unit. */
static uint32_t count_excluded_by_bits(const rp_selection *selection, const rp_queue *queue, const rp_tags *tags,
                                       const uint8_t *units, uint32_t count) {
    const rp_filter_place *place = &tags->place;
    uint64_t begin = rp_filter_marks_begin(selection->marks, place->mark, place->id);
    return begin == UINT64_MAX ? 0 : rp_cq_ext_count_lacking(selection->ext, queue, place, begin, units, count);
}

void rp_selection_of_retries(rp_selection *selection, const rp_map *subscriptions, const uint8_t *names,
                             uint32_t group_size, uint32_t topic_size) {
    static const char PREFIX[] = "%RETRY%";
    int is_retry = topic_size >= sizeof PREFIX && memcmp(names + group_size, PREFIX, sizeof PREFIX - 1) == 0;
    selection->subscriptions = is_retry ? subscriptions : NULL;
    selection->group = names;
    selection->group_size = group_size;
}

/* The expression for a message of a retry topic: that of its group for the topic that it was first in. */
static const rp_filter *filter_of_retry(const rp_selection *selection, const rp_record_view *record) {
    const uint8_t *topic;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "RETRY_TOPIC", &topic);
    if (!size) return NULL;
    const rp_tags *tags =
        rp_subscriptions_find(selection->subscriptions, selection->group, selection->group_size, topic, size);
    return tags ? tags->filter : NULL;
}

/* 1: the record of `size` bytes at `phy_offset`, which is below the end of the log, is selected. 0: it is not, or its
 * log file was deleted. -1 with errno: the log file is there, but cannot be read now. */
static int selected_by_record(const rp_selection *selection, const rp_tags *tags, uint64_t phy_offset, uint32_t size,
                              uint64_t *work) {
    rp_record_view record;
    if (!selection->log) return 0;
    const uint8_t *image = rp_log_view_acquire(selection->log, phy_offset, size);
    if (!image) return errno == ENOENT ? 0 : -1;
    int is_selected = 0;
    *work += RP_SELECTION_RECORD_WORK;
    if (rp_record_decode(image, size, 0, &record) == RP_OK) {
        const rp_filter *filter = selection->subscriptions ? filter_of_retry(selection, &record) : tags->filter;
        is_selected =
            !filter || rp_filter_evaluate(filter, record.properties, record.properties_size, work) == RP_FILTER_TRUE;
    }
    rp_log_view_release(selection->log, phy_offset);
    return is_selected;
}

enum { CHUNK = 256 };

const char *rp_fetch_status_name(rp_fetch_status status) {
    static const char *const names[] = {"FOUND",
                                        "NO_MATCHED_MESSAGE",
                                        "MESSAGE_WAS_REMOVING",
                                        "OFFSET_FOUND_NULL",
                                        "OFFSET_OVERFLOW_BADLY",
                                        "OFFSET_OVERFLOW_ONE",
                                        "OFFSET_TOO_SMALL",
                                        "NO_MESSAGE_IN_QUEUE",
                                        "LOG_UNREADABLE"};
    return names[status];
}

static int is_full(const rp_fetch *out, uint32_t size, int is_far, uint32_t max, const rp_fetch_limits *limits) {
    if (out->message_count == 0) return 0;
    uint32_t bytes_max = is_far ? limits->bytes_on_disk : limits->bytes_in_memory;
    uint32_t count_max = is_far ? limits->count_on_disk : limits->count_in_memory;
    return out->message_count >= max || out->message_count >= count_max || out->body_size + size > bytes_max;
}

/* Returns 0 if there is no slice left for it. The first one is never refused. */
static int add(rp_fetch *out, uint64_t phy_offset, uint32_t size, uint64_t file_size, uint32_t slices_max) {
    rp_slice *last = out->slice_count ? &out->slices[out->slice_count - 1] : NULL;
    if (last && last->phy_offset + last->size == phy_offset && phy_offset % file_size != 0) {
        last->size += size;
    } else {
        if (out->slice_count && out->slice_count >= slices_max) return 0;
        out->slices[out->slice_count++] = (rp_slice){phy_offset, size};
    }
    out->message_count++;
    out->body_size += size;
    return 1;
}

/* 1 if the unit names bytes that can be sent: in one file, below the log's end. The bytes of a damaged unit cannot
 * be mapped, and the selector would close the connection at each attempt. */
static int is_sound(uint64_t phy_offset, uint32_t size, uint64_t log_end, uint64_t file_size) {
    return size > 0 && phy_offset < log_end && size <= log_end - phy_offset &&
           size <= file_size - phy_offset % file_size;
}

/* One examination of units, with the begin of the log at its start, and the end of the log after its last read. */
struct look {
    const rp_control *control;
    uint64_t log_min;
    uint64_t log_end;
    uint64_t begin; /* queue offset of the first unit */
    uint32_t max;
    const rp_fetch_limits *limits;
    const rp_selection *selection;
    const rp_queue *queue;
    const rp_tags *tags;
    int uses_bits;
};

static int is_there(const struct look *look, uint64_t phy_offset, uint32_t size) {
    return phy_offset >= look->log_min && is_sound(phy_offset, size, look->log_end, look->control->commitlog_file_size);
}

/* 1 if the record is selected; -1 with errno: it cannot be read now. Records that are probably on the disk alone
 * count as work with all their bytes. */
static int selects(const struct look *look, uint64_t phy_offset, uint32_t size, int is_far, rp_fetch *out) {
    if (!rp_selection_reads_records(look->selection, look->tags)) return 1;
    if (is_far) out->work += size;
    return selected_by_record(look->selection, look->tags, phy_offset, size, &out->work);
}

/* 1 if the record is probably not in memory. */
static int is_far_behind(const struct look *look, uint64_t phy_offset) {
    return look->log_end > phy_offset && look->log_end - phy_offset > look->limits->memory_bytes;
}

/* Pass over the units, from the first one on, that filter bits exclude; returns their number. */
static uint32_t pass_over(const struct look *look, const uint8_t *units, uint32_t count, rp_fetch *out) {
    uint32_t passed = count_excluded_by_bits(look->selection, look->queue, look->tags, units, count);
    if (!passed) return 0;
    out->is_far_behind = is_far_behind(look, rp_unit_read(units + (passed - 1) * RP_CQ_UNIT_SIZE).phy_offset);
    out->next_begin_offset += passed;
    if (!out->message_count) out->status = RP_NO_MATCHED_MESSAGE;
    return passed;
}

/* A record that cannot be read now ends the look. A later pull begins with it: passed over, it would be lost to its
 * consumer. */
static int end_unreadable(uint64_t begin, rp_fetch *out) {
    out->error = errno;
    if (out->next_begin_offset == begin) out->status = RP_LOG_UNREADABLE;
    return 0;
}

/* Examine one unit that its filter bits do not exclude; 0 if it must wait for the next pull. */
static int examine(const struct look *look, rp_unit unit, rp_fetch *out) {
    uint64_t phy_offset = unit.phy_offset;
    uint32_t size = unit.size;
    int is_far = is_far_behind(look, phy_offset);
    out->is_far_behind = is_far;
    if (is_full(out, size, is_far, look->max, look->limits) && is_there(look, phy_offset, size)) return 0;
    int is_excluded = !selected_by_tags(look->selection, look->queue, look->tags, unit.tags_code);
    int has_record = !is_excluded && is_there(look, phy_offset, size); /* asked late: it divides */
    int is_selected = has_record ? selects(look, phy_offset, size, is_far, out) : 0;
    if (is_selected < 0) return end_unreadable(look->begin, out);
    if (is_excluded || (has_record && !is_selected)) {
        if (!out->message_count) out->status = RP_NO_MATCHED_MESSAGE;
    } else if (!has_record) { /* deleted, pre-blank, or damage */
        if (!out->message_count) out->status = RP_MESSAGE_WAS_REMOVING;
    } else {
        uint32_t slices_max = is_far ? look->limits->slices_on_disk : RP_SLICES_MAX;
        if (!add(out, phy_offset, size, look->control->commitlog_file_size, slices_max)) return 0;
        out->status = RP_FOUND;
        out->behind_bytes = look->log_end - phy_offset;
    }
    return 1;
}

/* Examine `count` units; 0 if one must wait for the next pull. */
static int examine_all(const struct look *look, const uint8_t *units, uint32_t count, rp_fetch *out) {
    for (uint32_t i = 0; i < count;) {
        const uint8_t *unit = units + i * RP_CQ_UNIT_SIZE;
        uint32_t passed = look->uses_bits ? pass_over(look, unit, count - i, out) : 0;
        i += passed;
        if (passed) continue;
        if (out->work > RP_FETCH_WORK_MAX || !examine(look, rp_unit_read(unit), out)) return 0;
        out->next_begin_offset++;
        i++;
    }
    return 1;
}

/* Largest number of units to examine. */
static uint64_t units_max(uint32_t max) {
    return max < RP_EXAMINED_MIN ? RP_EXAMINED_MIN : max > RP_EXAMINED_MAX ? RP_EXAMINED_MAX : max;
}

static void scan(rp_cq_reader *reader, const rp_selection *selection, const rp_control *control, const rp_queue *queue,
                 uint32_t max, const rp_tags *tags, const rp_fetch_limits *limits, rp_fetch *out) {
    uint8_t units[CHUNK * RP_CQ_UNIT_SIZE];
    struct look look = {.control = control,
                        .log_min = rp_load_acquire(&control->min_phy_offset),
                        .begin = out->next_begin_offset,
                        .max = max,
                        .limits = limits,
                        .selection = selection,
                        .queue = queue,
                        .tags = tags,
                        .uses_bits = rp_selection_uses_bits(selection, tags)};
    uint64_t begin = out->next_begin_offset, per_file = rp_cq_units_per_file(reader);
    uint64_t file_end = begin - begin % per_file + per_file;
    uint64_t end = begin + units_max(max);
    if (end > file_end) end = file_end;
    out->status = RP_NO_MATCHED_MESSAGE;
    while (out->next_begin_offset < end && out->next_begin_offset < out->max_offset) {
        uint64_t want = rp_tags_take_all(tags) ? max - out->message_count + 1ull : CHUNK;
        if (want > end - out->next_begin_offset) want = end - out->next_begin_offset;
        int32_t count = rp_cq_read(reader, queue, out->next_begin_offset, want < CHUNK ? (uint32_t)want : CHUNK, units);
        if (count <= 0) {
            if (out->next_begin_offset > begin) return;
            out->status = RP_OFFSET_FOUND_NULL;
            if (count == 0) out->next_begin_offset = file_end; /* else it may be read another time */
            return;
        }
        /* Read after the units, so that no unit can point past this end. */
        look.log_end = rp_load_acquire(&control->published_phy_offset);
        out->examined += (uint32_t)count;
        if (!examine_all(&look, units, (uint32_t)count, out)) return;
    }
}

/* Status and next offset if there is nothing to read at `offset`; 0 if there is. */
static int place(const rp_queue *queue, int64_t offset, rp_fetch *out) {
    out->min_offset = queue ? rp_load_acquire(&queue->min_offset) : 0;
    out->max_offset = queue ? rp_load_acquire(&queue->max_offset) : 0;
    if (out->max_offset == 0) {
        out->status = RP_NO_MESSAGE_IN_QUEUE;
        out->next_begin_offset = 0;
    } else if (offset < (int64_t)out->min_offset) {
        out->status = RP_OFFSET_TOO_SMALL;
        out->next_begin_offset = out->min_offset;
    } else if ((uint64_t)offset == out->max_offset) {
        out->status = RP_OFFSET_OVERFLOW_ONE;
        out->next_begin_offset = (uint64_t)offset;
    } else if ((uint64_t)offset > out->max_offset) {
        out->status = RP_OFFSET_OVERFLOW_BADLY;
        out->next_begin_offset = out->max_offset;
    } else {
        return 0;
    }
    return 1;
}

void rp_fetch_messages(rp_cq_reader *reader, const rp_selection *selection, const rp_control *control,
                       const rp_queue *queue, int64_t offset, int32_t max_msg_nums, const rp_tags *tags,
                       const rp_fetch_limits *limits, rp_fetch *out) {
    out->message_count = out->body_size = out->slice_count = out->examined = 0;
    out->work = 0;
    out->is_far_behind = 0;
    if (place(queue, offset, out)) return;
    out->next_begin_offset = (uint64_t)offset;
    scan(reader, selection, control, queue, max_msg_nums > 0 ? (uint32_t)max_msg_nums : 1, tags, limits, out);
    /* Cleaned or removed meanwhile: skip nothing. */
    if (out->status == RP_OFFSET_FOUND_NULL) place(queue, offset, out);
}
