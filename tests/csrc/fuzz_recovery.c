/* The scans of recovery over a damaged log and damaged queues. Input: HEAD, then the log; its first half serves as the
 * units of queue T/0, too.
 *
 *   0  1 CRC, 2 the power failed, 4 with a control block, 8 one file has another size, 16 half of the log was durable
 *   1  files that are missing (bits)
 *   2  from   4  limit   6  min offset of the queue   8  max offset   10  end of its last record   12  dispatched
 *
 * Fault: A last unit or queue entry that reached beyond the log's end kept new records from getting units. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include "store/recovery/recovery.h"
#include "fuzz_store.h"

enum { UNIT = 20, QUEUE_FILE_SIZE = 20 * UNIT, QUEUE_FILES = 3 };

static void check_scan(const char *directory, uint64_t from, uint64_t limit, uint32_t flags,
                       const rp_log_durable *durable, rp_control_block *block) {
    rp_log_scan scan, again;
    rp_status status = rp_recovery_scan_log(directory, LOG_FILE_SIZE, from, limit, flags, durable, block, &scan);
    CHECK(status == RP_OK || status == RP_CORRUPT); /* the second: a file of another size */
    if (status != RP_OK) return;
    CHECK(scan.end >= from && scan.end <= (from > LOG_SIZE ? from : LOG_SIZE));
    CHECK(scan.records <= (scan.end - from) / 91);
    CHECK(scan.missing == UINT64_MAX || (block && scan.missing >= from && scan.missing < scan.end));
    if (scan.reason == RP_OK)
        CHECK(scan.end >= limit);
    else
        CHECK(scan.end < limit);
    CHECK(rp_recovery_scan_log(directory, LOG_FILE_SIZE, from, scan.end, flags, durable, block, &again) == RP_OK);
    CHECK(again.end == scan.end && again.reason == RP_OK && again.records == scan.records);
    CHECK(again.last_store_timestamp_ms == scan.last_store_timestamp_ms && again.missing == scan.missing);
}

static void check_resync(const uint8_t *log, size_t size, uint64_t phy_offset) {
    uint8_t *copy = exact_copy(log, size);
    uint64_t found = rp_recovery_resync(copy, size, phy_offset);
    CHECK(found <= size && (found > 0 || size == 0));
    if (found < size) {
        rp_record_view view;
        CHECK(rp_record_decode(copy + found, size - found, 1, &view) == RP_OK && view.phy_offset == phy_offset + found);
    }
    free(copy);
}

static void check_units(const uint8_t *units, size_t size, uint64_t limit) {
    uint8_t *copy = exact_copy(units, size);
    uint64_t end, found_end = 0;
    uint32_t count = rp_recovery_count_units(copy, (uint32_t)size, limit, &end);
    CHECK(count <= size / UNIT);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t phy_offset = rp_load64(copy + i * UNIT);
        uint32_t record_size = rp_load32(copy + i * UNIT + 8);
        CHECK(record_size > 0 && (record_size == INT32_MAX || phy_offset + record_size <= limit));
        if (record_size != INT32_MAX) found_end = phy_offset + record_size;
    }
    CHECK(end == found_end && end <= limit);
    free(copy);
}

static void put_queue(const char *queues, const uint8_t *units, size_t size) {
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/T", queues);
    mkdir(directory, 0755);
    snprintf(directory, sizeof directory, "%s/T/0", queues);
    mkdir(directory, 0755);
    for (size_t i = 0; i < QUEUE_FILES; i++) {
        size_t at = i * QUEUE_FILE_SIZE, rest = size > at ? size - at : 0;
        if (rest)
            put_file(directory, at, units + at, rest < QUEUE_FILE_SIZE ? rest : QUEUE_FILE_SIZE, QUEUE_FILE_SIZE);
        else
            drop_file(directory, at);
    }
}

/* Queues that pass the check end with a unit that names their last record; the others begin anew. */
static void check_queues(rp_control_block *block, const fuzz_paths *here, const uint8_t *data, const uint8_t *log,
                         size_t size) {
    rp_control *control = rp_control_header(block);
    rp_queue *queue = rp_control_add(block, (const uint8_t *)"T", 1, 0);
    CHECK(queue);
    put_queue(here->queues, log, size / 2);
    queue->min_offset = data[6] == 255 ? UINT64_MAX - data[7] : head16(data, 6);
    queue->max_offset = data[8] == 255 ? UINT64_MAX - data[9] : head16(data, 8);
    queue->max_phy_offset = data[10] == 255 ? UINT64_MAX - data[11] : head16(data, 10);
    uint64_t generation = queue->generation, max_offset = queue->max_offset;
    int64_t lost = rp_recovery_check_queues(block, here->queues, QUEUE_FILE_SIZE);
    CHECK(lost == 0 || lost == 1);
    CHECK(queue->generation == generation + (uint64_t)lost && queue->max_offset == (lost ? 0 : max_offset));
    CHECK(queue->max_phy_offset <= control->published_phy_offset);
    CHECK(queue->max_offset == 0 || queue->min_offset <= queue->max_offset);
    CHECK(rp_recovery_check_queues(block, here->queues, QUEUE_FILE_SIZE) == 0);
}

static void check_next_offsets(rp_control_block *block, const char *log) {
    CHECK(rp_recovery_next_offsets(block, log) == RP_OK);
    for (uint32_t i = 0; i < rp_control_header(block)->queue_count; i++) {
        const rp_queue *queue = rp_control_queue(block, i);
        CHECK(queue->next_offset >= queue->max_offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rp_control_block *block;
    const fuzz_paths *here = fuzz_here();
    if (size < HEAD) return 0;
    if (!block) CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    rp_control *control = rp_control_header(block);
    const uint8_t *log = data + HEAD;
    uint64_t log_size = put_log(here->log, log, size - HEAD, data[1] & 6);
    uint64_t from = head16(data, 2), limit = data[4] == 255 ? UINT64_MAX : head16(data, 4);
    if (from > log_size) from = log_size;
    if (control->queue_count > 200) CHECK(rp_control_reset(block) == RP_OK);
    for (uint32_t i = 0; i < control->queue_count; i++) {
        rp_queue *queue = rp_control_queue(block, i);
        queue->max_offset = queue->min_offset = queue->max_phy_offset = queue->next_offset = 0;
    }
    control->published_phy_offset = log_size;
    control->dispatched_phy_offset = head16(data, 12) < log_size ? head16(data, 12) : log_size;
    check_queues(block, here, data, log, log_size);
    if (data[0] & 8) put_file(here->log, LOG_FILE_SIZE, log, 0, LOG_FILE_SIZE / 2);
    rp_log_durable durable = {.phy_offset = data[0] & 16 ? log_size / 2 : 0,
                              .before_ms = data[0] & 16 ? INT64_MAX / 2 : 0};
    check_scan(here->log, from, limit, data[0] & 1, data[0] & 2 ? &durable : NULL, data[0] & 4 ? block : NULL);
    if (!(data[0] & 8)) check_next_offsets(block, here->log);
    check_resync(log + from, log_size - from, from);
    check_units(log, log_size, limit);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return mutate_log(data, size, max_size, seed, HEAD);
}
