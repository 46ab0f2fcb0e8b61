/* See recovery.h. */
#define _GNU_SOURCE
#include "recovery.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "atomic.h"
#include "consume_queue.h"
#include "crash_point.h"
#include "endian.h"
#include "mapped_file.h"
#include "record.h"

static int gets_unit(const rp_record_view *record) {
    int32_t transaction = record->sys_flag & 0xC; /* none, or commit */
    return transaction == 0 || transaction == 0x8;
}

/* A record whose body is sound may still have lost the page of its properties when the power went. */
static int is_torn(const rp_record_view *record, uint64_t phy_offset) {
    if (record->phy_offset != phy_offset || memchr(record->topic, 0, record->topic_size)) return 1;
    return record->properties_size && record->properties[record->properties_size - 1] == 0;
}

static int lacks_unit(rp_control_block *block, const rp_record_view *record, uint64_t phy_offset) {
    if (!gets_unit(record)) return 0;
    const rp_queue *queue = rp_control_find(block, record->topic, record->topic_size, (uint32_t)record->queue_id);
    return !queue || queue->max_phy_offset < phy_offset + record->size;
}

/* The part of the walk that lies in the file at `image`, which starts at `start`. */
static void scan_file(const uint8_t *image, uint64_t start, uint64_t file_size, uint64_t limit, uint32_t flags,
                      rp_control_block *block, rp_log_scan *scan) {
    scan->reason = RP_OK;
    while (scan->end < limit && scan->end < start + file_size) {
        rp_record_view record;
        uint64_t at = scan->end - start;
        rp_status status = rp_record_decode(image + at, file_size - at, flags & RP_SCAN_CRC, &record);
        if (status == RP_OK && (flags & RP_SCAN_STRICT) && is_torn(&record, scan->end)) status = RP_CORRUPT;
        if (status == RP_END_OF_FILE) {
            scan->end = start + file_size;
            return;
        }
        if (status != RP_OK) {
            scan->reason = status;
            return;
        }
        if (block && scan->missing == UINT64_MAX && lacks_unit(block, &record, scan->end)) scan->missing = scan->end;
        scan->end += record.size;
        scan->records++;
        scan->last_store_timestamp_ms = record.store_timestamp_ms;
    }
}

rp_status rp_recovery_scan_log(const char *commitlog_directory, uint64_t file_size, uint64_t from, uint64_t limit,
                               uint32_t flags, rp_control_block *block, rp_log_scan *scan) {
    *scan = (rp_log_scan){.end = from, .missing = UINT64_MAX, .reason = RP_OK};
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
        scan_file(image, start, file_size, limit, flags, block, scan);
        munmap(image, file_size);
    }
    return RP_OK;
}

uint64_t rp_recovery_resync(const uint8_t *image, uint64_t size, uint64_t phy_offset) {
    enum { OWN_OFFSET_AT = 28, HEAD = 40 };
    for (uint64_t at = 1; at + HEAD <= size; at++) {
        rp_record_view record;
        if (rp_load32(image + at + 4) != (uint32_t)RP_MESSAGE_MAGIC_V1 ||
            rp_load64(image + at + OWN_OFFSET_AT) != phy_offset + at)
            continue;
        if (rp_record_decode(image + at, size - at, 1, &record) == RP_OK) return at;
    }
    return size;
}

/* Move next_offset past the published records from `position` on. */
static rp_status follow_log(rp_control_block *block, const char *directory, uint64_t position) {
    const rp_control *control = rp_control_header(block);
    uint64_t end = rp_load_acquire(&control->published_phy_offset), file_size = control->commitlog_file_size;
    while (position < end) {
        uint8_t *image;
        uint64_t start = position - position % file_size, stop = end < start + file_size ? end : start + file_size;
        rp_status status = rp_mapped_file_map(directory, start, file_size, 0, &image);
        if (status == RP_NOT_FOUND) { /* dispatch passes over it, too */
            position = stop;
            continue;
        }
        if (status != RP_OK) return status;
        while (position < stop) {
            rp_record_view record;
            status = rp_record_decode(image + (position - start), stop - position, 0, &record);
            if (status == RP_END_OF_FILE) {
                position = stop;
                break;
            }
            if (status != RP_OK) { /* dispatch passes over the same bytes */
                position += rp_recovery_resync(image + (position - start), stop - position, position);
                continue;
            }
            position += record.size;
            if (!gets_unit(&record)) continue;
            rp_queue *queue = rp_control_find(block, record.topic, record.topic_size, (uint32_t)record.queue_id);
            if (queue && queue->next_offset <= record.queue_offset) rp_store_release(&queue->next_offset, record.queue_offset + 1);
        }
        munmap(image, file_size);
    }
    return RP_OK;
}

rp_status rp_recovery_next_offsets(rp_control_block *block, const char *commitlog_directory) {
    const rp_control *control = rp_control_header(block);
    /* First the position, then the maxima: dispatch moves the maxima first, so none is older than the position. */
    uint64_t dispatched = rp_load_acquire(&control->dispatched_phy_offset), min = rp_load_acquire(&control->min_phy_offset);
    uint32_t count = rp_load_acquire32(&control->queue_count);
    for (uint32_t i = 0; i < count; i++) {
        rp_queue *queue = rp_control_queue(block, i);
        rp_store_release(&queue->next_offset, rp_load_acquire(&queue->max_offset));
    }
    return follow_log(block, commitlog_directory, dispatched > min ? dispatched : min);
}

uint32_t rp_recovery_count_units(const uint8_t *units, uint32_t size, uint64_t phy_limit, uint64_t *max_phy_offset) {
    uint32_t count = 0;
    *max_phy_offset = 0;
    for (; (count + 1) * (uint64_t)RP_CQ_UNIT_SIZE <= size; count++) {
        const uint8_t *unit = units + count * (uint64_t)RP_CQ_UNIT_SIZE;
        uint64_t phy_offset = rp_load64(unit);
        int32_t record_size = (int32_t)rp_load32(unit + 8);
        if (phy_offset > INT64_MAX || phy_offset >= phy_limit || record_size <= 0) break;
        if (record_size != INT32_MAX) *max_phy_offset = phy_offset + (uint64_t)record_size;
    }
    return count;
}

int64_t rp_recovery_check_queues(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size) {
    rp_control *control = rp_control_header(block);
    int64_t lost = 0;
    rp_cq_reader *reader = rp_cq_reader_open(block, consume_queue_directory, file_size, 4);
    rp_cq_writer *writer = rp_cq_writer_open(block, consume_queue_directory, file_size, 4);
    if (!reader || !writer) lost = -1;
    for (uint32_t i = 0; lost >= 0 && i < control->queue_count; i++) {
        uint8_t unit[RP_CQ_UNIT_SIZE];
        rp_queue *queue = rp_control_queue(block, i);
        if (queue->state != RP_QUEUE_LIVE || queue->max_offset <= queue->min_offset) continue;
        if (rp_cq_read(reader, queue, queue->max_offset - 1, 1, unit) == 1 &&
            rp_load64(unit) + rp_load32(unit + 8) == queue->max_phy_offset)
            continue;
        RP_CRASH_POINT("recovery.queue_lost");
        queue->max_offset = queue->min_offset = queue->max_phy_offset = 0;
        queue->generation++;
        if (rp_cq_remove(writer, queue) != RP_OK) lost = -1;
        else lost++;
    }
    int error = errno;
    rp_cq_reader_close(reader);
    rp_cq_writer_close(writer);
    errno = error;
    return lost;
}
