/* What the fuzzers of the store found, one case each: damage that was trusted, and what came of it. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include "store/dispatch/dispatch.h"
#include "store/index/index_file.h"
#include "store/log/commitlog.h"
#include "store/queues/consume_queue.h"
#include "store/recovery/recovery.h"
#include "workers/pull/fetch.h"
#include "fuzz_store.h"

enum { UNIT = RP_CQ_UNIT_SIZE, QUEUE_FILE_SIZE = 20 * UNIT, BODY = 10 };
static const uint8_t T[] = "T";

/* A store as it is after a kill: `count` messages of T/0 in its log, all dispatched. */
static rp_control_block *make_store(const fuzz_paths *here, uint32_t count, uint64_t first_queue_offset) {
    uint8_t body[BODY] = {0}, *at;
    remove_tree(here->log), remove_tree(here->queues), remove_tree(here->index), unlink(here->control);
    rp_control_block *block = rp_control_open(here->control, LOG_FILE_SIZE);
    CHECK(block);
    rp_control_mark_boot(block);
    rp_commitlog *log = rp_commitlog_open(here->log, rp_control_header(block));
    CHECK(log && rp_control_add(block, T, 1, 0));
    for (uint32_t i = 0; i < count; i++) {
        rp_record record = {.queue_offset = first_queue_offset + i,
                            .body = body,
                            .body_size = BODY,
                            .topic = T,
                            .topic_size = 1,
                            .properties = (const uint8_t *)"KEYS\001k",
                            .properties_size = 6,
                            .store_timestamp_ms = 1700000000000,
                            .born_host = {.family = 4},
                            .store_host = {.family = 4}};
        uint32_t size = rp_record_size(&record);
        CHECK(rp_commitlog_reserve(log, size, &at, &record.phy_offset) == RP_OK &&
              rp_record_encode(&record, at) == size);
        rp_commitlog_publish(log, size, record.store_timestamp_ms);
    }
    rp_commitlog_close(log);
    return block;
}

static void dispatch_all(rp_control_block *block, const fuzz_paths *here, rp_dispatch_counts *counts) {
    rp_dispatch_config config = {.commitlog_directory = here->log,
                                 .consume_queue_directory = here->queues,
                                 .index_directory = here->index,
                                 .consume_queue_file_size = QUEUE_FILE_SIZE,
                                 .consume_queue_files_max = 16,
                                 .index_enable = 1,
                                 .hash_slot_num = 504,
                                 .index_num = 102};
    rp_dispatch *dispatch = rp_dispatch_open(block, &config);
    CHECK(dispatch && rp_dispatch_run(dispatch, 1 << 20) == RP_EMPTY);
    rp_dispatch_read_counts(dispatch, counts);
    rp_dispatch_close(dispatch);
}

static void spoil(const char *path, uint64_t at, uint32_t value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, &value, sizeof value, (off_t)at) == sizeof value);
    close(fd);
}

static uint64_t first_slot_of(const char *path) {
    const uint64_t slots_at = 4096 + RP_CONTROL_QUEUES_MAX * sizeof(rp_queue) + RP_CONTROL_TOPICS_MAX * 128ull;
    uint32_t page[PAGE_SIZE / 4];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (uint64_t at = slots_at;; at += PAGE_SIZE) {
        CHECK(pread(fd, page, sizeof page, (off_t)at) == sizeof page);
        for (uint32_t i = 0; i < PAGE_SIZE / 4; i++) {
            if (!page[i]) continue;
            close(fd);
            return at + i * 4ull;
        }
    }
}

/* A slot, a topic index, or a name that leads out of the mapping: the block is made anew, and recovery has the files.
 * Fault: A damaged slot, topic index or name of the control block led lookups out of the mapping or round for ever. */
static void check_control_block(const fuzz_paths *here) {
    enum { QUEUE_TOPIC_AT = 4096 + 32, QUEUE_STATE_AT = 4096 + 44, CLEAN_AT = 96 };
    rp_control_block *block = make_store(here, 1, 0);
    rp_control_close(block);
    uint64_t slot_at = first_slot_of(here->control), name_at = 4096 + RP_CONTROL_QUEUES_MAX * sizeof(rp_queue);
    struct {
        uint64_t at;
        uint32_t value;
    } damages[] = {{slot_at, UINT32_MAX},
                   {slot_at, 2},
                   {slot_at, 0x01000000},
                   {slot_at + 4, 1},
                   {QUEUE_TOPIC_AT, UINT32_MAX},
                   {QUEUE_TOPIC_AT, 1},
                   {QUEUE_STATE_AT, 77},
                   {name_at, 0xFF},
                   {name_at, 0x2F01},
                   {CLEAN_AT, 2}};
    _Static_assert(offsetof(rp_control, clean) == CLEAN_AT && offsetof(rp_queue, topic) == 32, "places of the damage");
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        rp_control_close(make_store(here, 1, 0));
        spoil(here->control, damages[i].at, damages[i].value);
        CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
        CHECK(rp_control_header(block)->queue_count == 0 && !rp_control_is_same_boot(block));
        CHECK(rp_control_find(block, T, 1, 0) == NULL && rp_control_add(block, T, 1, 0));
        rp_control_close(block);
    }
    rp_control_close(make_store(here, 1, 0)); /* the same without damage */
    CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    CHECK(rp_control_find(block, T, 1, 0) == rp_control_queue(block, 0) &&
          rp_control_header(block)->published_phy_offset > 0);
    rp_control_close(block);
}

/* After a power failure pages of several moments make up the tables: the positions stay, and no lookup walks off. */
static void check_torn_control_block(const fuzz_paths *here) {
    rp_control_block *block = make_store(here, 1, 0);
    uint64_t published = rp_control_header(block)->published_phy_offset;
    rp_control_header(block)->boot_id[0] ^= 1;
    rp_control_queue(block, 0)->topic = UINT32_MAX;
    rp_control_close(block);
    CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    CHECK(rp_control_header(block)->published_phy_offset == published && rp_control_header(block)->queue_count == 1);
    CHECK(!rp_control_find(block, T, 1, 0) && rp_control_next_of_topic(block, T, 1, 0) <= 1);
    rp_control_close(block);
}

/* A unit of which nothing can be sent is passed over: its slice would end the connection at each attempt.
 * Fault: A queue unit with a wrong offset or size closed the connection of every consumer that reached it. */
static void check_damaged_unit(const fuzz_paths *here) {
    static const struct {
        uint64_t phy_offset;
        uint32_t size;
    } units[] = {{0, 0},          {0, LOG_FILE_SIZE + 1}, {1ull << 62, 108},
                 {UINT64_MAX, 2}, {0, 1u << 31},          {LOG_FILE_SIZE - 50, 108}};
    rp_dispatch_counts counts;
    rp_control_block *block = make_store(here, 60, 0);
    rp_control *control = rp_control_header(block);
    rp_queue *queue = rp_control_queue(block, 0);
    dispatch_all(block, here, &counts);
    CHECK(counts.units == 60 && queue->max_offset == 60 && control->published_phy_offset > LOG_FILE_SIZE);
    rp_cq_writer *writer = rp_cq_writer_open(block, here->queues, QUEUE_FILE_SIZE, 4);
    rp_cq_reader *reader = rp_cq_reader_open(block, here->queues, QUEUE_FILE_SIZE, 4);
    rp_fetch_limits limits = {.bytes_in_memory = 1 << 20,
                              .count_in_memory = 32,
                              .bytes_on_disk = 1 << 20,
                              .count_on_disk = 32,
                              .slices_on_disk = RP_SLICES_MAX,
                              .memory_bytes = 1 << 20};
    rp_tags tags;
    CHECK(rp_tags_parse(T, 0, NULL, &tags) == RP_OK);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint8_t unit[UNIT] = {0};
        rp_fetch fetch;
        rp_store64(unit, units[i].phy_offset);
        rp_store32(unit + 8, units[i].size);
        CHECK(rp_cq_write(writer, queue, 5, 1, unit) == RP_OK);
        rp_fetch_messages(reader, &(rp_selection){0}, control, queue, 5, 1, &tags, &limits, &fetch);
        CHECK(fetch.status == RP_FOUND && fetch.message_count == 1 && fetch.next_begin_offset == 7);
        rp_fetch_messages(reader, &(rp_selection){0}, control, queue, 4, 3, &tags, &limits, &fetch);
        CHECK(fetch.message_count == 3 && fetch.next_begin_offset == 8 && fetch.body_size == 3 * (91 + 1 + 6 + BODY));
    }
    rp_cq_close(reader);
    rp_cq_close(writer);
    rp_control_close(block);
}

/* The last unit says that its record goes on far behind the log's end: new records below that would get no units.
 * Fault: A last unit or queue entry that reached beyond the log's end kept new records from getting units. */
static void check_end_of_units(const fuzz_paths *here) {
    uint8_t units[2 * UNIT] = {0};
    uint64_t end;
    rp_dispatch_counts counts;
    rp_store32(units + 8, 100);
    rp_store64(units + UNIT, 100);
    rp_store32(units + UNIT + 8, INT32_MAX - 1);
    CHECK(rp_recovery_count_units(units, sizeof units, 200, &end) == 1 && end == 100);
    rp_control_block *block = make_store(here, 3, 0);
    rp_queue *queue = rp_control_queue(block, 0);
    dispatch_all(block, here, &counts);
    CHECK(rp_recovery_check_queues(block, here->queues, QUEUE_FILE_SIZE) == 0);
    queue->min_offset = 4; /* behind the last message: the queue would look empty */
    CHECK(rp_recovery_check_queues(block, here->queues, QUEUE_FILE_SIZE) == 1 && queue->max_offset == 0);
    queue->max_phy_offset = UINT64_MAX;
    CHECK(rp_recovery_check_queues(block, here->queues, QUEUE_FILE_SIZE) == 1 && queue->max_phy_offset == 0);
    rp_control_header(block)->dispatched_phy_offset = 0;
    dispatch_all(block, here, &counts);
    CHECK(counts.units == 3 && queue->max_offset == 3 && queue->min_offset == 0);
    rp_control_close(block);
}

/* An index file that claims to know the log beyond its end, or begins before time did.
 * Fault: An index file whose end lay beyond the log's, or below zero, accepted no more keys. */
static void check_index(const fuzz_paths *here) {
    char path[PATH_MAX];
    uint8_t header[40] = {0};
    rp_dispatch_counts counts;
    rp_control_block *block = make_store(here, 3, 0);
    CHECK(mkdir(here->index, 0755) == 0);
    snprintf(path, sizeof path, "%s/20200101000000000", here->index);
    rp_store64(header + 24, UINT64_MAX);
    rp_store32(header + 36, 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, header, sizeof header) == sizeof header);
    close(fd);
    rp_control_header(block)->dispatched_phy_offset = 0;
    dispatch_all(block, here, &counts);
    CHECK(counts.keys == 3);
    rp_control_close(block);
    rp_index *index = rp_index_open(here->index, 504, 102);
    CHECK(index && rp_index_end(index) < LOG_FILE_SIZE);
    CHECK(rp_index_put(index, 7, 1000, 1, 0) == RP_OK && rp_index_put(index, 7, 2000, INT64_MIN, 0) == RP_OK);
    rp_index_close(index);
}

/* A queue offset that no queue can have: no unit, and the numbers of the queue stay.
 * Fault: A damaged queue offset of 2^58 or more reset a queue's next offset and wrapped file names. */
static void check_queue_offset(const fuzz_paths *here) {
    static const uint64_t offsets[] = {UINT64_MAX, INT64_MAX, 1ull << 58};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        rp_dispatch_counts counts;
        rp_log_scan scan;
        rp_control_block *block = make_store(here, 1, offsets[i]);
        rp_queue *queue = rp_control_queue(block, 0);
        CHECK(rp_recovery_next_offsets(block, here->log) == RP_OK && queue->next_offset == 0);
        dispatch_all(block, here, &counts);
        CHECK(counts.unplaced == 1 && counts.units == 0 && queue->max_offset == 0 && queue->min_offset == 0);
        CHECK(rp_recovery_scan_log(here->log, LOG_FILE_SIZE, 0, LOG_FILE_SIZE, 0, NULL, block, &scan) == RP_OK);
        CHECK(scan.records == 1 && scan.missing == UINT64_MAX);
        rp_control_close(block);
    }
}

/* Killed between two stores: the end of the records is shown, that of the units not. Nothing may be overwritten.
 * Fault: A store worker killed between two stores overwrote a queue's last units with blanks. */
static void check_half_shown(const fuzz_paths *here, uint64_t first, uint64_t shown) {
    rp_dispatch_counts counts;
    rp_control_block *block = make_store(here, 8, first);
    rp_queue *queue = rp_control_queue(block, 0);
    dispatch_all(block, here, &counts);
    uint64_t end = queue->max_offset;
    CHECK(end == first + 8);
    queue->max_offset = shown ? first + shown : 0;
    rp_control_header(block)->dispatched_phy_offset = shown * (91 + 1 + 6 + BODY);
    dispatch_all(block, here, &counts);
    CHECK(queue->max_offset == end && queue->min_offset == first && counts.units == 0 && counts.resets == 0);
    rp_control_close(block);
}

/* The record of 5.x has room for a topic that, with a long key, needs more room than any of 4.x where keys are put
 * together. */
static void check_long_topic(const fuzz_paths *here) {
    enum {
        FILE_SIZE = 1 << 17,
        TOPIC = INT16_MAX,
        PROPERTIES = RP_PROPERTIES_SIZE_MAX,
        SIZE = 92 + TOPIC + PROPERTIES
    };
    rp_dispatch_counts counts;
    uint8_t *at;
    uint64_t phy_offset;
    remove_tree(here->log), remove_tree(here->queues), remove_tree(here->index), unlink(here->control);
    rp_control_block *block = rp_control_open(here->control, FILE_SIZE);
    CHECK(block);
    rp_commitlog *log = rp_commitlog_open(here->log, rp_control_header(block));
    CHECK(log && rp_commitlog_reserve(log, SIZE, &at, &phy_offset) == RP_OK);
    rp_store32(at, SIZE);
    rp_store32(at + 4, (uint32_t)RP_MESSAGE_MAGIC_V2);
    rp_store16(at + 88, TOPIC);
    memset(at + 90, 'T', TOPIC);
    rp_store16(at + 90 + TOPIC, PROPERTIES);
    memset(at + 92 + TOPIC, 'k', PROPERTIES);
    memcpy(at + 92 + TOPIC, "KEYS\001", 5);
    rp_commitlog_publish(log, SIZE, 1);
    rp_commitlog_close(log);
    dispatch_all(block, here, &counts);
    CHECK(counts.records == 1 && counts.unplaced == 1 && counts.keys == 1);
    rp_control_close(block);
}

int main(void) {
    const fuzz_paths *here = fuzz_here();
    check_control_block(here);
    check_torn_control_block(here);
    check_damaged_unit(here);
    check_end_of_units(here);
    check_index(here);
    check_queue_offset(here);
    check_half_shown(here, 0, 0);
    check_half_shown(here, 0, 3);
    check_half_shown(here, 30, 0);
    check_long_topic(here);
    puts("driver_damage: ok");
    return 0;
}
