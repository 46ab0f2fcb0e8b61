/* See consume_queue.h. Files: "<directory>/<topic>/<queue id>/<20 digits: start in bytes>", full size from creation,
 * sparse, zero after the last unit (queue_files.h).
 *
 * An empty file, or one with nothing but pre-blank units, would make a Java broker count units that are not there:
 * a file is therefore linked into its directory only after its first real units are in it. */
#define _GNU_SOURCE
#include "store/queues/consume_queue.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/crash_point.h"
#include "base/numbers.h"
#include "base/utf8.h"
#include "store/log/timer_properties.h"
#include "store/queues/queue_files.h"
#include "store/queues/unit.h"

#define OFFSET_MAX ((uint64_t)1 << 58) /* times 20 is below 2^63, with room for a file */
enum { READ_AROUND = 32768 /* bytes */ };
enum { BLANKS_PER_WRITE = 256, UNKNOWN_LEVEL_DELAY_MS = 1000 };

int rp_cq_is_offset(uint64_t offset) { return offset < OFFSET_MAX; }

static uint32_t property(const rp_record_view *record, const char *name, const uint8_t **value) {
    return rp_property_find(record->properties, record->properties_size, name, value);
}

int64_t rp_unit_tags_code(const rp_record_view *record, const int64_t *delay_level_ms, uint32_t delay_level_count) {
    const uint8_t *value;
    uint32_t size;
    if (rp_text_is(record->topic, record->topic_size, RP_SCHEDULE_TOPIC)) {
        int64_t level = rp_delay_level(record->properties, record->properties_size);
        int64_t known = level < delay_level_count ? level : delay_level_count;
        if (level > 0) return record->store_timestamp_ms + (known ? delay_level_ms[known - 1] : UNKNOWN_LEVEL_DELAY_MS);
    }
    int64_t due_ms;
    if (rp_timer_is_timer(record) && (size = property(record, RP_TIMER_OUT_MS, &value)) &&
        rp_parse_int64(value, size, &due_ms) == RP_OK)
        return due_ms;
    return (size = property(record, "TAGS", &value)) ? rp_string_hash(value, size) : 0;
}

rp_cq_reader *rp_cq_reader_open(rp_control_block *block, const char *directory, uint64_t file_size,
                                uint32_t files_max) {
    return rp_queue_files_open(block, directory, file_size, files_max, 0);
}

rp_cq_writer *rp_cq_writer_open(rp_control_block *block, const char *directory, uint64_t file_size,
                                uint32_t files_max) {
    return rp_queue_files_open(block, directory, file_size, files_max, 1);
}

void rp_cq_close(rp_cq_reader *reader) { rp_queue_files_close(reader); }
void rp_cq_release(rp_cq_reader *reader) { rp_queue_files_release(reader); }

uint64_t rp_cq_units_per_file(const rp_cq_reader *reader) { return rp_queue_files_size(reader) / RP_CQ_UNIT_SIZE; }

/* Units that are not in memory are read with those around them. A lone page would leave most random reads of old
 * messages to wait for the disk twice, and pulls wait for units one after the other. */
static int64_t read_units(int fd, uint8_t *units, uint64_t size, uint64_t at) {
    uint8_t around[READ_AROUND];
    struct iovec piece = {units, size};
    ssize_t n = preadv2(fd, &piece, 1, (off_t)at, RWF_NOWAIT);
    if (n == (ssize_t)size) return n;
    if (n < 0 && errno == EAGAIN) (void)!pread(fd, around, sizeof around, (off_t)(at & ~(READ_AROUND - 1ull)));
    return rp_read_at(fd, units, size, at);
}

int32_t rp_cq_read(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset, uint32_t count, uint8_t *units) {
    uint64_t max = rp_load_acquire(&queue->max_offset), min = rp_load_acquire(&queue->min_offset);
    uint64_t per_file = rp_cq_units_per_file(reader), at = offset % per_file;
    if (offset < min || offset >= max) return 0;
    if (count > max - offset) count = (uint32_t)(max - offset);
    if (count > per_file - at) count = (uint32_t)(per_file - at);
    int fd = rp_queue_files_find(reader, queue, offset / per_file);
    if (fd < 0) return errno == ENOENT ? 0 : -1;
    int64_t size = read_units(fd, units, (uint64_t)count * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    return size < 0 ? -1 : (int32_t)(size / RP_CQ_UNIT_SIZE);
}

int rp_cq_in_memory(rp_cq_reader *reader, const rp_queue *queue, uint64_t offset) {
    uint64_t per_file = rp_cq_units_per_file(reader);
    uint8_t unit[RP_CQ_UNIT_SIZE];
    struct iovec piece = {unit, sizeof unit};
    if (offset < rp_load_acquire(&queue->min_offset) || offset >= rp_load_acquire(&queue->max_offset)) return 1;
    int fd = rp_queue_files_find(reader, queue, offset / per_file);
    return fd < 0 || preadv2(fd, &piece, 1, (off_t)(offset % per_file * RP_CQ_UNIT_SIZE), RWF_NOWAIT) >= 0 ||
           errno != EAGAIN;
}

/* Pre-blank units in the first `count` places. */
static rp_status write_blanks(int fd, uint64_t count) {
    uint8_t blanks[BLANKS_PER_WRITE * RP_CQ_UNIT_SIZE];
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < BLANKS_PER_WRITE; i++) rp_unit_fill(blanks + i * RP_CQ_UNIT_SIZE, 0, INT32_MAX, 0);
    for (uint64_t at = 0; at < count && status == RP_OK; at += BLANKS_PER_WRITE) {
        uint64_t n = count - at < BLANKS_PER_WRITE ? count - at : BLANKS_PER_WRITE;
        status = rp_write_at(fd, blanks, n * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    }
    return status;
}

/* Create the file with its first units, beginning at place `at`. */
static rp_status create_file(rp_cq_writer *writer, const rp_queue *queue, uint64_t number, uint64_t at, uint32_t count,
                             const uint8_t *units) {
    rp_new_file file;
    rp_status status = rp_queue_files_begin(writer, queue, &file);
    if (status != RP_OK) return status;
    status = write_blanks(file.fd, at);
    if (status == RP_OK) status = rp_write_at(file.fd, units, (uint64_t)count * RP_CQ_UNIT_SIZE, at * RP_CQ_UNIT_SIZE);
    return rp_queue_files_finish(writer, queue, number, &file, status);
}

/* Write the part of the units that is in one file. */
static rp_status write_in_file(rp_cq_writer *writer, const rp_queue *queue, uint64_t number, uint64_t at,
                               uint32_t count, const uint8_t *units) {
    uint64_t size = (uint64_t)count * RP_CQ_UNIT_SIZE, place = at * RP_CQ_UNIT_SIZE;
    if (rp_queue_files_write_mapped(writer, queue, number, units, size, place)) return RP_OK;
    int fd = rp_queue_files_find(writer, queue, number);
    if (fd < 0) return errno == ENOENT ? create_file(writer, queue, number, at, count, units) : rp_status_of_errno();
    rp_status status = rp_queue_files_write(writer, queue, number, fd, units, size, place);
    if (status == RP_OK) rp_queue_files_map_next(writer, queue, number, fd, size, place);
    return status;
}

rp_status rp_cq_write(rp_cq_writer *writer, const rp_queue *queue, uint64_t offset, uint32_t count,
                      const uint8_t *units) {
    uint64_t per_file = rp_cq_units_per_file(writer);
    rp_status status = RP_OK;
    while (count && status == RP_OK) {
        uint64_t at = offset % per_file;
        uint32_t n = count < per_file - at ? count : (uint32_t)(per_file - at);
        RP_CRASH_POINT("queue.write");
        status = write_in_file(writer, queue, offset / per_file, at, n, units);
        offset += n;
        count -= n;
        units += (uint64_t)n * RP_CQ_UNIT_SIZE;
    }
    return status;
}

int rp_cq_holds(rp_cq_writer *writer, const rp_queue *queue, uint64_t offset, uint64_t phy_offset, uint32_t size) {
    uint8_t bytes[RP_CQ_UNIT_SIZE];
    uint64_t per_file = rp_cq_units_per_file(writer);
    int fd = rp_queue_files_find(writer, queue, offset / per_file);
    if (fd < 0 || pread(fd, bytes, sizeof bytes, (off_t)(offset % per_file * RP_CQ_UNIT_SIZE)) != sizeof bytes)
        return 0;
    rp_unit unit = rp_unit_read(bytes);
    return unit.phy_offset == phy_offset && unit.size == size;
}
