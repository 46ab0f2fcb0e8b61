/* Damaged consume queue files and the log behind them, read as a pull does; then written on. Input: HEAD, UNITS_SIZE
 * bytes of units in QUEUE_FILES files, then the log.
 *
 *   0  1 the first file is missing, 2 the last one ends early, 4 max_offset is far beyond, 8 tags are asked for
 *   1  max offset   2  min offset   3  offset asked for   4  messages asked for (2)   6  min phy offset (2)
 *   8  units to write   9  where   10  published (2)   12  files kept open   13  limit of bytes / 16
 *
 * Fault: A queue unit with a wrong offset or size closed the connection of every consumer that reached it. */
#define _GNU_SOURCE
#include "store/log/log_view.h"
#include "store/queues/consume_queue.h"
#include "store/queues/queue_files.h"
#include "workers/pull/fetch.h"
#include "workers/pull/subscription.h"
#include "fuzz_store.h"

enum {
    UNIT = RP_CQ_UNIT_SIZE,
    QUEUE_FILES = 3,
    UNITS_PER_FILE = 20,
    QUEUE_FILE_SIZE = UNITS_PER_FILE * UNIT,
    UNITS = QUEUE_FILES * UNITS_PER_FILE,
    UNITS_SIZE = UNITS * UNIT,
    LOG_AT = HEAD + UNITS_SIZE
};

static void put_queue(const fuzz_paths *here, const uint8_t *data) {
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/T", here->queues);
    mkdir(directory, 0755);
    snprintf(directory, sizeof directory, "%s/T/0", here->queues);
    remove_tree(directory);
    CHECK(mkdir(directory, 0755) == 0);
    for (size_t i = data[0] & 1; i < QUEUE_FILES; i++) {
        int is_short = i == QUEUE_FILES - 1 && data[0] & 2;
        put_file(directory, i * QUEUE_FILE_SIZE, data + HEAD + i * QUEUE_FILE_SIZE, is_short ? 50 : QUEUE_FILE_SIZE,
                 is_short ? 50 : QUEUE_FILE_SIZE);
    }
}

/* Every slice can be written to a consumer as it stands: it lies in one file, below the log's end. */
static void check_slices(const char *log, const rp_control *control, const rp_fetch *fetch) {
    volatile uint8_t sum = 0;
    uint64_t bytes = 0;
    rp_log_view *view = rp_log_view_open(log, LOG_FILE_SIZE, 2);
    CHECK(view);
    CHECK((fetch->status == RP_FOUND) == (fetch->message_count > 0) && fetch->slice_count <= fetch->message_count);
    for (uint32_t i = 0; i < fetch->slice_count; i++) {
        rp_slice slice = fetch->slices[i];
        bytes += slice.size;
        CHECK(slice.size > 0 && slice.phy_offset >= control->min_phy_offset);
        CHECK(slice.phy_offset + slice.size <= control->published_phy_offset);
        const uint8_t *image = rp_log_view_acquire(view, slice.phy_offset, slice.size);
        CHECK(image);
        for (uint64_t at = 0; at < slice.size; at++) sum = (uint8_t)(sum + image[at]);
        rp_log_view_release(view, slice.phy_offset);
    }
    CHECK(bytes == fetch->body_size);
    rp_log_view_trim(view, control->published_phy_offset);
    rp_log_view_close(view);
}

/* Read on from wherever the answer says: it must come to the queue's end. */
static void check_fetches(const fuzz_paths *here, rp_cq_reader *reader, const rp_control *control,
                          const rp_queue *queue, const uint8_t *data) {
    static const uint8_t some[] = "A || B";
    rp_tags tags;
    int32_t hashes[RP_TAGS_MAX];
    rp_fetch fetch;
    CHECK(rp_tags_parse(some, data[0] & 8 ? sizeof some - 1 : 0, hashes, &tags) == RP_OK);
    rp_fetch_limits limits = {.bytes_in_memory = data[13] * 16u,
                              .count_in_memory = 32,
                              .bytes_on_disk = data[13] * 8u,
                              .count_on_disk = 8,
                              .slices_on_disk = data[13] % 8u,
                              .memory_bytes = 2000};
    int64_t offset = data[3] == 255 ? INT64_MAX : data[3] == 254 ? -1 : data[3];
    for (int turn = 0; turn < 2 * UNITS + 4; turn++) {
        rp_fetch_messages(reader, &(rp_selection){0}, control, queue, offset, (int32_t)head16(data, 4) - 8, &tags,
                          &limits, &fetch);
        check_slices(here->log, control, &fetch);
        CHECK(fetch.min_offset == queue->min_offset && fetch.max_offset == queue->max_offset);
        if (fetch.status != RP_FOUND && fetch.status != RP_NO_MATCHED_MESSAGE &&
            fetch.status != RP_MESSAGE_WAS_REMOVING)
            break;
        CHECK(fetch.next_begin_offset > (uint64_t)offset);
        offset = (int64_t)fetch.next_begin_offset;
    }
    CHECK(fetch.status != RP_FOUND && fetch.status != RP_NO_MATCHED_MESSAGE && fetch.status != RP_MESSAGE_WAS_REMOVING);
}

/* What is written can be read, whatever was there. */
static void check_writes(const fuzz_paths *here, rp_control_block *block, rp_queue *queue, const uint8_t *data) {
    uint8_t back[UNITS_SIZE];
    uint64_t at = data[9] % UNITS;
    uint32_t count = data[8] % (UNITS + 1);
    rp_cq_writer *writer = rp_cq_writer_open(block, here->queues, QUEUE_FILE_SIZE, data[12]);
    rp_cq_reader *reader = rp_cq_reader_open(block, here->queues, QUEUE_FILE_SIZE, data[12]);
    CHECK(writer && reader);
    CHECK(rp_cq_write(writer, queue, at, count, data + HEAD) == RP_OK && rp_queue_files_sync(writer) == RP_OK);
    queue->min_offset = at;
    queue->max_offset = at + count;
    for (uint32_t done = 0; done < count;) {
        int32_t found = rp_cq_read(reader, queue, at + done, count - done, back);
        CHECK(found > 0 && memcmp(back, data + HEAD + done * UNIT, (size_t)found * UNIT) == 0);
        done += (uint32_t)found;
    }
    queue->max_offset = 0;
    queue->generation++;
    CHECK(rp_queue_files_remove(writer, queue) == RP_OK && rp_queue_files_remove(writer, queue) == RP_OK);
    rp_cq_close(reader);
    rp_cq_close(writer);
}

/* The cache against an array: what was put and not pushed out is found, and no descriptor is left open or closed twice.
 */
static void check_cache(const uint8_t *operations, size_t size) {
    enum { KEYS = 16 };
    int here[KEYS], fd;
    rp_file_cache *cache = rp_file_cache_open(4);
    CHECK(cache);
    memset(here, -1, sizeof here);
    for (size_t i = 0; i < size; i++) {
        uint32_t number = operations[i] & 15;
        rp_file_key key = {.queue = number & 3, .generation = number >> 2 & 1, .number = number >> 3};
        switch (operations[i] >> 6) {
            case 0:
                rp_file_cache_drop(cache, key);
                here[number] = -1;
                break;
            case 1:
                CHECK((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
                rp_file_cache_put(cache, key, fd);
                for (int other = 0; other < KEYS; other++)
                    if (here[other] == fd) here[other] = -1; /* it was pushed out and its number given again */
                here[number] = fd;
                CHECK(rp_file_cache_find(cache, key) == fd);
                break;
            default:
                fd = rp_file_cache_find(cache, key);
                CHECK(fd == -1 || (fd == here[number] && fcntl(fd, F_GETFD) >= 0));
        }
    }
    rp_file_cache_close(cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rp_control_block *block;
    const fuzz_paths *here = fuzz_here();
    uint8_t units[UNITS_SIZE];
    if (size < LOG_AT) return 0;
    if (!block) CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    rp_control *control = rp_control_header(block);
    rp_queue *queue = rp_control_add(block, (const uint8_t *)"T", 1, 0);
    CHECK(queue);
    queue->generation++;
    queue->max_offset = data[0] & 4 ? UINT64_MAX - data[1] : data[1];
    queue->min_offset = data[2];
    put_queue(here, data);
    uint64_t log_size = put_log(here->log, data + LOG_AT, size - LOG_AT, 0);
    control->published_phy_offset = head16(data, 10) < log_size ? head16(data, 10) : log_size;
    control->min_phy_offset =
        head16(data, 6) < control->published_phy_offset ? head16(data, 6) : control->published_phy_offset;
    rp_cq_reader *reader = rp_cq_reader_open(block, here->queues, QUEUE_FILE_SIZE, data[12]);
    CHECK(reader);
    for (uint64_t at = 0; at < UNITS + 2; at++) CHECK(rp_cq_read(reader, queue, at, UNITS, units) <= UNITS_PER_FILE);
    if (!(data[0] & 4)) check_fetches(here, reader, control, queue, data);
    rp_cq_close(reader);
    check_writes(here, block, queue, data);
    check_cache(data, size < 200 ? size : 200);
    return 0;
}

/* Units that name the records of the log, and then some that do not. */
static void name_records(uint8_t *data, size_t size) {
    const uint8_t *log = data + LOG_AT;
    rp_record_view view;
    size_t at = 0, log_size = size - LOG_AT;
    for (uint32_t unit = 0; unit < UNITS && at < log_size; unit++) {
        if (rp_record_decode(log + at, log_size - at, 0, &view) != RP_OK) break;
        rp_store64(data + HEAD + unit * UNIT, at);
        rp_store32(data + HEAD + unit * UNIT + 8, view.size);
        at += view.size;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static const uint32_t sizes[] = {0, 1, 90, 91, LOG_FILE_SIZE, LOG_FILE_SIZE + 1, INT32_MAX, 1u << 31, UINT32_MAX};
    static const uint64_t offsets[] = {0, LOG_FILE_SIZE - 1, LOG_SIZE, INT64_MAX, UINT64_MAX, UINT64_MAX - 90};
    random_source source = {seed * 0x9E3779B97F4A7C15ull + 1};
    uint32_t choice = random_below(&source, 6);
    size = mutate_log(data, size, max_size, seed, LOG_AT);
    if (size < LOG_AT) return size;
    uint8_t *unit = data + HEAD + random_below(&source, UNITS) * UNIT;
    if (choice == 0) name_records(data, size);
    if (choice == 1) rp_store32(unit + 8, sizes[random_below(&source, sizeof sizes / sizeof *sizes)]);
    if (choice == 2) rp_store64(unit, offsets[random_below(&source, sizeof offsets / sizeof *offsets)]);
    return size;
}
