/* Damaged extension files, and a queue whose units hold any addresses: each is read or not found; what is extended then
 * reads back, at addresses behind all that the queue holds, and again at the same ones after a failed batch.
 * Input: HEAD, UNITS * 2 bytes that say what the units hold, then the extension files.
 *
 *   0  1 the first extension file is missing, 2 the last one, 4 the last one has another size, 8 all are missing
 *   1  max offset   2  min offset   3  units to extend
 *
 * Fault: On a disk that refused queue units, each retry left 20 bytes per message in the extension files. */
#define _GNU_SOURCE
#include "store/control/control_block.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"
#include "fuzz_store.h"

enum {
    UNIT = RP_CQ_UNIT_SIZE,
    QUEUE_FILES = 3,
    UNITS_PER_FILE = 20,
    QUEUE_FILE_SIZE = UNITS_PER_FILE * UNIT,
    UNITS = QUEUE_FILES * UNITS_PER_FILE,
    EXT_FILES = 3,
    EXT_FILE_SIZE = 512,
    EXT_AT = HEAD + 2 * UNITS,
    EXTENDED_MAX = 150
};
static const int64_t STORED_MS = 1700000000000;

static void make_directory(char *path, const char *parent, const char *more) {
    snprintf(path, PATH_MAX, "%s/T", parent);
    mkdir(parent, 0755);
    mkdir(path, 0755);
    snprintf(path, PATH_MAX, "%s/T/%s", parent, more);
    remove_tree(path);
    CHECK(mkdir(path, 0755) == 0);
}

/* A plain tags code, an address, or the last address there is. */
static int64_t third_field(uint32_t said) {
    if (said == 0xFFFF) return (int64_t)INT32_MIN - 1;
    return said >= 0xF000 ? (int32_t)said : INT64_MIN + said;
}

static void make_unit(uint8_t *unit, uint32_t number, const uint8_t *data) {
    rp_store64(unit, number * 100);
    rp_store32(unit + 8, 100);
    rp_store64(unit + 12, (uint64_t)third_field(head16(data, HEAD + 2 * number)));
}

static void put_queue(const fuzz_paths *here, const uint8_t *data) {
    char directory[PATH_MAX];
    uint8_t units[QUEUE_FILE_SIZE];
    make_directory(directory, here->queues, "0");
    for (uint32_t i = 0; i < UNITS; i++) {
        make_unit(units + i % UNITS_PER_FILE * UNIT, i, data);
        if ((i + 1) % UNITS_PER_FILE == 0)
            put_file(directory, i / UNITS_PER_FILE * QUEUE_FILE_SIZE, units, sizeof units, sizeof units);
    }
}

static void put_extensions(const fuzz_paths *here, char *directory, const uint8_t *data, size_t size) {
    char parent[160];
    snprintf(parent, sizeof parent, "%s_ext", here->queues);
    make_directory(directory, parent, "0");
    for (size_t i = 0; i < EXT_FILES; i++) {
        size_t at = i * EXT_FILE_SIZE, rest = size > at ? size - at : 0;
        if (!rest || data[0] & 8 || (i == 0 && data[0] & 1) || (i == EXT_FILES - 1 && data[0] & 2)) continue;
        size_t full = i == EXT_FILES - 1 && data[0] & 4 ? EXT_FILE_SIZE / 2 : EXT_FILE_SIZE;
        put_file(directory, at, data + EXT_AT + at, rest < full ? rest : full, full);
    }
}

/* Whether the extension of the unit, read alone, lacks a bit of the place. */
static int lacks(rp_cq_ext *ext, const rp_queue *queue, const rp_filter_place *place, const uint8_t *queue_unit) {
    rp_cq_ext_unit unit;
    uint32_t bitmap_size = place->bit_count / 8;
    if (rp_cq_ext_read(ext, queue, (int64_t)rp_load64(queue_unit + 12), &unit) != RP_OK) return 0;
    if (unit.bitmap_size != bitmap_size || unit.size != RP_CQ_EXT_UNIT_SIZE + bitmap_size) return 0;
    for (uint32_t i = 0; i < place->count; i++)
        if (!(unit.bitmap[place->positions[i] / 8] & 1u << place->positions[i] % 8)) return 1;
    return 0;
}

static uint64_t file_of(const uint8_t *unit) { return (rp_load64(unit + 12) ^ 1ull << 63) / EXT_FILE_SIZE; }

/* Units that lack bits are counted as if each were read alone, up to the first that does not, or is in another file. */
static void check_counts(rp_cq_ext *ext, const rp_queue *queue, const uint8_t *data) {
    static const rp_filter_place PLACES[] = {{.bit_count = 8, .count = 2, .positions = {0, 7}},
                                             {.bit_count = 112, .count = 3, .positions = {1, 60, 111}}};
    uint8_t units[UNITS * UNIT];
    for (uint32_t i = 0; i < UNITS; i++) make_unit(units + i * UNIT, i, data);
    for (size_t p = 0; p < sizeof PLACES / sizeof PLACES[0]; p++)
        for (uint32_t i = 0; i < UNITS; i++) {
            const uint8_t *first = units + i * UNIT;
            uint64_t phy_offset_min = data[2] % 2 ? 500 : 0;
            uint32_t count = rp_cq_ext_count_lacking(ext, queue, &PLACES[p], phy_offset_min, first, UNITS - i);
            CHECK(count <= UNITS - i);
            for (uint32_t k = 0; k <= count && i + k < UNITS; k++) {
                const uint8_t *unit = first + k * UNIT;
                int is_counted = file_of(unit) == file_of(first) && rp_load64(unit) >= phy_offset_min &&
                                 lacks(ext, queue, &PLACES[p], unit);
                CHECK(is_counted == (k < count));
            }
        }
}

static int64_t check_reads(const fuzz_paths *here, rp_control_block *block, const rp_queue *queue,
                           const uint8_t *data) {
    int64_t last = 0;
    rp_cq_ext *ext = rp_cq_ext_open(block, here->queues, EXT_FILE_SIZE);
    CHECK(ext);
    for (uint32_t i = 0; i < queue->max_offset; i++) {
        rp_cq_ext_unit unit;
        int64_t field = third_field(head16(data, HEAD + 2 * i));
        memset(&unit, 0, sizeof unit);
        rp_status status = rp_cq_ext_read(ext, queue, field, &unit);
        CHECK(status == RP_NOT_FOUND || (status == RP_OK && rp_cq_ext_is_address(field)));
        if (status == RP_OK) CHECK(unit.size >= RP_CQ_EXT_UNIT_SIZE + unit.bitmap_size && unit.size <= EXT_FILE_SIZE);
        if (i >= queue->min_offset && rp_cq_ext_is_address(field)) last = field;
    }
    check_counts(ext, queue, data);
    rp_cq_ext_close(ext);
    return last;
}

/* Extend `count` units that hold their own number; returns the first address, or 0 if all stay plain. */
static int64_t extend(const fuzz_paths *here, rp_control_block *block, const rp_queue *queue, rp_cq_ext_writer *writer,
                      uint32_t count) {
    uint8_t units[EXTENDED_MAX * UNIT] = {0};
    rp_cq_extension extensions[EXTENDED_MAX] = {0};
    int64_t before = 0, first = 0;
    for (uint32_t i = 0; i < count; i++) {
        extensions[i] = (rp_cq_extension){.store_timestamp_ms = STORED_MS + i, .bitmap_size = i % 3 * 14};
        memset(extensions[i].bitmap, (int)i, extensions[i].bitmap_size);
        rp_store64(units + i * UNIT + 12, i);
    }
    uint32_t plain = rp_cq_ext_extend(writer, queue, count, units, extensions);
    CHECK(plain == 0 || plain == count);
    CHECK(rp_cq_ext_sync(writer) == RP_OK);
    rp_cq_ext *ext = rp_cq_ext_open(block, here->queues, EXT_FILE_SIZE);
    CHECK(ext);
    for (uint32_t i = 0; i < count - plain; i++) {
        rp_cq_ext_unit unit;
        int64_t address = (int64_t)rp_load64(units + i * UNIT + 12);
        CHECK(rp_cq_ext_read(ext, queue, address, &unit) == RP_OK);
        CHECK(unit.tags_code == i && unit.store_timestamp_ms == STORED_MS + i);
        CHECK(unit.bitmap_size == extensions[i].bitmap_size);
        CHECK(memcmp(unit.bitmap, extensions[i].bitmap, unit.bitmap_size) == 0);
        CHECK(!i || address > before);
        if (!i) first = address;
        before = address;
    }
    rp_cq_ext_close(ext);
    return first;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rp_control_block *block;
    const fuzz_paths *here = fuzz_here();
    char directory[PATH_MAX];
    if (size < EXT_AT) return 0;
    if (!block) CHECK(block = rp_control_open(here->control, LOG_FILE_SIZE));
    rp_queue *queue = rp_control_add(block, (const uint8_t *)"T", 1, 0);
    CHECK(queue);
    queue->generation++;
    queue->max_offset = data[1] % (UNITS + 1);
    queue->min_offset = queue->max_offset ? data[2] % queue->max_offset : 0;
    put_queue(here, data);
    put_extensions(here, directory, data, size - EXT_AT);
    int64_t last = check_reads(here, block, queue, data);
    rp_cq_ext_writer *writer = rp_cq_ext_writer_open(block, here->queues, QUEUE_FILE_SIZE, EXT_FILE_SIZE);
    CHECK(writer);
    uint32_t count = data[3] % EXTENDED_MAX + 1;
    int64_t first = extend(here, block, queue, writer, count);
    if (first) {
        CHECK(!last || first > last);
        rp_cq_ext_forget(writer); /* the batch failed: again, from the same place */
        CHECK(extend(here, block, queue, writer, count) == first);
    } else {
        CHECK(last == (int64_t)INT32_MIN - 1 || data[0] & 4); /* no addresses are left, or files of another size */
    }
    CHECK(rp_cq_ext_remove(writer, queue) == RP_OK && access(directory, F_OK) < 0);
    rp_cq_ext_writer_close(writer);
    return 0;
}
