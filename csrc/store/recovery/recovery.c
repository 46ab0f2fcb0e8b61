#define _GNU_SOURCE
#include "store/recovery/recovery.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/endian.h"
#include "store/log/mapped_file.h"
#include "store/log/new_file.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/queue_files.h"
#include "store/queues/unit.h"

/* 1 if dispatch writes a unit for the record. One with an impossible queue or offset is damaged: it gets none. */
static int gets_unit(const rp_record_view *record) {
    return rp_has_unit(record->sys_flag) && record->queue_id >= 0 && rp_cq_is_offset(record->queue_offset);
}

/* A record with a valid body may have lost sectors of its properties in a power failure. The end of a sector is lost
 * (sectors are written from the front): zeros before its boundary, or at the end of the record. A durable record may
 * have such zeros from its sender: Java brokers store them. Valid records after it prove nothing, because later pages
 * may reach the disk before earlier ones. */
static int is_torn(const rp_record_view *record, uint64_t phy_offset, const rp_log_durable *durable) {
    enum { SECTOR = 512 };
    if (record->phy_offset != phy_offset) return 1;
    if (phy_offset + record->size <= durable->phy_offset) return 0;
    if (record->store_timestamp_ms > 0 && record->store_timestamp_ms < durable->before_ms) return 0;
    if (memchr(record->topic, 0, record->topic_size)) return 1;
    if (!record->properties_size) return 0;
    uint64_t end = phy_offset + record->size, start = end - record->properties_size;
    for (uint64_t at = start + SECTOR - start % SECTOR; at < end; at += SECTOR)
        if (record->properties[at - 1 - start] == 0) return 1;
    return record->properties[record->properties_size - 1] == 0;
}

static void look_up_unit(rp_control_block *block, const rp_record_view *record, rp_log_scan *scan) {
    if (!gets_unit(record) || !rp_control_is_name(record->topic, record->topic_size)) return;
    rp_queue *queue = rp_control_find(block, record->topic, record->topic_size, (uint32_t)record->queue_id);
    if (scan->missing == UINT64_MAX && (!queue || queue->max_phy_offset < scan->end + record->size))
        scan->missing = scan->end;
    if (!queue && !record->queue_offset) /* a new queue: added here as dispatch will do */
        queue = rp_control_add(block, record->topic, record->topic_size, (uint32_t)record->queue_id);
    if (scan->gap == UINT64_MAX && record->queue_offset > (queue ? queue->next_offset : 0)) scan->gap = scan->end;
    if (queue && queue->next_offset <= record->queue_offset) queue->next_offset = record->queue_offset + 1;
}

/* Walk the records of one file, mapped at `image`, which starts at `start`. */
static void scan_file(const uint8_t *image, uint64_t start, uint64_t file_size, uint64_t limit, uint32_t flags,
                      const rp_log_durable *durable, rp_control_block *block, rp_log_scan *scan) {
    scan->reason = RP_OK;
    while (scan->end < limit && scan->end < start + file_size) {
        rp_record_view record;
        uint64_t at = scan->end - start;
        rp_status status = rp_record_decode(image + at, file_size - at, flags & RP_SCAN_CRC, &record);
        if (status == RP_OK && durable && is_torn(&record, scan->end, durable)) status = RP_CORRUPT;
        if (status == RP_END_OF_FILE) {
            scan->end = start + file_size;
            return;
        }
        if (status != RP_OK) {
            scan->reason = status;
            return;
        }
        if (block) look_up_unit(block, &record, scan);
        scan->end += record.size;
        scan->records++;
        scan->last_store_timestamp_ms = record.store_timestamp_ms;
    }
}

rp_status rp_recovery_scan_log(const char *commitlog_directory, uint64_t file_size, uint64_t from, uint64_t limit,
                               uint32_t flags, const rp_log_durable *durable, rp_control_block *block,
                               rp_log_scan *scan) {
    *scan = (rp_log_scan){.end = from, .missing = UINT64_MAX, .gap = UINT64_MAX, .reason = RP_OK};
    while (scan->end < limit && scan->reason == RP_OK) {
        uint8_t *image;
        uint64_t start = scan->end - scan->end % file_size;
        rp_status status = rp_mapped_file_map(commitlog_directory, start, file_size, 0, &image);
        if (status == RP_NOT_FOUND) {
            scan->reason = RP_NOT_FOUND;
            break;
        }
        if (status != RP_OK) return status;
        madvise(image, file_size, MADV_SEQUENTIAL);
        scan_file(image, start, file_size, limit, flags, durable, block, scan);
        munmap(image, file_size);
    }
    return RP_OK;
}

uint64_t rp_recovery_resync(const uint8_t *image, uint64_t size, uint64_t phy_offset) {
    enum { OWN_OFFSET_AT = 28, HEAD = 40 };
    for (uint64_t at = 1; at + HEAD <= size; at++) {
        rp_record_view record;
        uint32_t magic = rp_load32(image + at + 4);
        if ((magic != (uint32_t)RP_MESSAGE_MAGIC_V1 && magic != (uint32_t)RP_MESSAGE_MAGIC_V2) ||
            rp_load64(image + at + OWN_OFFSET_AT) != phy_offset + at)
            continue;
        if (rp_record_decode(image + at, size - at, 1, &record) == RP_OK) return at;
    }
    return size;
}

/* The part of the walk that is in one file. */
static rp_status walk_file(const uint8_t *image, uint64_t from, uint64_t to, rp_recovery_visit visit, void *context) {
    for (uint64_t at = from; at < to;) {
        rp_record_view record;
        rp_status status = rp_record_decode(image + (at - from), to - at, 0, &record);
        if (status == RP_END_OF_FILE) return RP_OK;
        if (status != RP_OK) {
            at += rp_recovery_resync(image + (at - from), to - at, at);
            continue;
        }
        if ((status = visit(context, &record, at)) != RP_OK) return status;
        at += record.size;
    }
    return RP_OK;
}

rp_status rp_recovery_walk(rp_log_view *view, uint64_t file_size, uint64_t from, uint64_t to, rp_recovery_visit visit,
                           void *context) {
    rp_status status = RP_OK;
    while (from < to && status == RP_OK) {
        uint64_t file_end = from - from % file_size + file_size, end = file_end < to ? file_end : to;
        const uint8_t *image = rp_log_view_acquire(view, from, end - from);
        if (!image && errno != ENOENT) return rp_status_of_errno();
        if (image) {
            status = walk_file(image, from, end, visit, context);
            rp_log_view_release(view, from);
        }
        from = file_end;
    }
    return status;
}

/* The next offsets that are being found, by queue; a queue from `count` on was added since, and keeps its own. */
struct next_offsets {
    rp_control_block *block;
    uint64_t *next;
    uint32_t count;
};

/* Move the next offset of a record's queue past it. A queue that is not in the block is added, as dispatch will do.
 * RP_OK; an error of the disk: to continue would lose the queue's end. */
static rp_status follow_record(void *context, const rp_record_view *record, uint64_t position) {
    const struct next_offsets *found = context;
    if (!gets_unit(record)) return RP_OK;
    rp_queue *queue = rp_control_find(found->block, record->topic, record->topic_size, (uint32_t)record->queue_id);
    if (!queue) queue = rp_control_add(found->block, record->topic, record->topic_size, (uint32_t)record->queue_id);
    if (!queue) /* if no directory can have its name, or the table is full, it gets no units either */
        return rp_control_refuses(errno) ? RP_OK : rp_status_of_errno();
    uint32_t index = rp_control_queue_index(found->block, queue);
    uint64_t *at = index < found->count ? &found->next[index] : &queue->next_offset;
    if (*at <= record->queue_offset) rp_store_release(at, record->queue_offset + 1);
    return RP_OK;
}

rp_status rp_recovery_next_offsets(rp_control_block *block, const char *commitlog_directory) {
    const rp_control *control = rp_control_header(block);
    uint32_t count = rp_load_acquire32(&control->queue_count);
    uint64_t *next = malloc((count + 1ull) * sizeof *next), from;
    struct next_offsets found = {block, next, count};
    rp_log_view *view = rp_log_view_open(commitlog_directory, control->commitlog_file_size, 1);
    rp_status status = next && view ? RP_OK : RP_NO_MEMORY;
    do {
        /* Read the position first, then the maxima: dispatch moves the maxima first, so none is older than the
         * position. */
        uint64_t dispatched = rp_load_acquire(&control->dispatched_phy_offset),
                 min = rp_load_acquire(&control->min_phy_offset);
        from = dispatched > min ? dispatched : min;
        for (uint32_t i = 0; i < count && status == RP_OK; i++)
            next[i] = rp_load_acquire(&rp_control_queue(block, i)->max_offset);
        if (status == RP_OK)
            status = rp_recovery_walk(view, control->commitlog_file_size, from,
                                      rp_load_acquire(&control->published_phy_offset), follow_record, &found);
        /* Cleaning follows dispatch: if it has deleted a file that was to be read here, the maxima are newer by now.
         */
    } while (status == RP_OK && rp_load_acquire(&control->min_phy_offset) > from);
    for (uint32_t i = 0; i < count && status == RP_OK; i++)
        rp_store_release(&rp_control_queue(block, i)->next_offset, next[i]);
    rp_log_view_close(view);
    free(next);
    return status;
}

void rp_recovery_clear_watched(rp_control_block *block) {
    uint32_t count = rp_load_acquire32(&rp_control_header(block)->queue_count);
    for (uint32_t i = 0; i < count; i++) rp_store_release32(&rp_control_queue(block, i)->watched, 0);
}

uint32_t rp_recovery_count_units(const uint8_t *units, uint32_t size, uint64_t phy_limit, uint64_t *max_phy_offset) {
    uint32_t count = 0;
    *max_phy_offset = 0;
    for (; (count + 1) * (uint64_t)RP_CQ_UNIT_SIZE <= size; count++) {
        rp_unit unit = rp_unit_read(units + count * (uint64_t)RP_CQ_UNIT_SIZE);
        if (unit.phy_offset > INT64_MAX || unit.phy_offset >= phy_limit || !unit.size || unit.size > INT32_MAX) break;
        if (unit.size == INT32_MAX) continue;
        if (unit.size > phy_limit - unit.phy_offset) break;
        *max_phy_offset = unit.phy_offset + unit.size;
    }
    return count;
}

/* 1 if the queue's last unit is in its file and points to the queue's last record; 0 if not, or if it cannot be read
 * (then the queue is rebuilt); -1 with errno for errors that are not about the file. */
static int has_last_unit(rp_cq_reader *reader, const rp_queue *queue) {
    uint8_t bytes[RP_CQ_UNIT_SIZE];
    int32_t count = rp_cq_read(reader, queue, queue->max_offset - 1, 1, bytes);
    if (count < 1) return count < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ? -1 : 0;
    rp_unit unit = rp_unit_read(bytes);
    return unit.phy_offset + unit.size == queue->max_phy_offset;
}

/* 1 if the entry is consistent with itself and the log, and the last unit exists; 0 if not; -1 with errno. */
static int is_trustworthy(rp_cq_reader *reader, const rp_queue *queue, uint64_t log_end) {
    if (queue->max_phy_offset > log_end) return 0;
    if (queue->max_offset == 0) return 1; /* whatever min_offset says: it is set before the first units are shown */
    if (!rp_cq_is_offset(queue->max_offset) || queue->min_offset > queue->max_offset) return 0;
    if (queue->min_offset == queue->max_offset) return 1; /* all were deleted */
    return has_last_unit(reader, queue);
}

/* Empty a queue whose units are lost: dispatch builds them again. 0; -1 with errno. */
static int reset_queue(rp_control_block *block, rp_cq_writer *writer, rp_queue *queue) {
    rp_control *control = rp_control_header(block);
    if (!control->rebuilding) { /* before a queue is reset: its units are no longer certain */
        rp_store_release(&control->units_durable_phy_offset, 0);
        rp_store_release(&control->rebuilding, 1);
        if (rp_control_sync(block) != RP_OK) return -1;
    }
    RP_CRASH_POINT("recovery.queue_lost");
    queue->max_offset = queue->min_offset = queue->max_phy_offset = 0;
    queue->generation++;
    return rp_queue_files_remove(writer, queue) == RP_OK ? 0 : -1;
}

int64_t rp_recovery_check_queues(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size) {
    rp_control *control = rp_control_header(block);
    int64_t lost = 0;
    rp_cq_reader *reader = rp_cq_reader_open(block, consume_queue_directory, file_size, 4);
    rp_cq_writer *writer = rp_cq_writer_open(block, consume_queue_directory, file_size, 4);
    if (!reader || !writer) lost = -1;
    for (uint32_t i = 0; lost >= 0 && i < control->queue_count; i++) {
        rp_queue *queue = rp_control_queue(block, i);
        if (queue->state != RP_QUEUE_LIVE) continue;
        int is_sound = is_trustworthy(reader, queue, control->published_phy_offset);
        if (is_sound < 0) lost = -1;
        if (!is_sound) lost = reset_queue(block, writer, queue) == 0 ? lost + 1 : -1;
    }
    int error = errno;
    rp_cq_close(reader);
    rp_cq_close(writer);
    errno = error;
    return lost;
}
