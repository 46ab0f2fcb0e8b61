/* A damaged store validated: the log's files, units and index entries as `rocketpy store verify` walks them, and
 * what the repair of an index file keeps. Input: HEAD, an index file of PAGE_SIZE bytes, then the log; the log's bytes
 * serve as units, too.
 *
 *   0  1 compare CRCs    2  units limit   4  offset of the first unit   6  first   8  end
 *   10  log begin   12  index unit to begin with */
#define _GNU_SOURCE
#include "store/index/index_file.h"
#include "store/recovery/verify.h"
#include "fuzz_store.h"

enum {
    SLOTS = 504,
    UNITS = 102,
    UNITS_AT = RP_INDEX_HEADER_SIZE + SLOTS * RP_INDEX_SLOT_SIZE,
    LOG_AT = HEAD + PAGE_SIZE
};

static void check_log(const uint8_t *data, const uint8_t *log, size_t size) {
    rp_verify_totals totals;
    rp_verify *verify = rp_verify_open();
    CHECK(verify);
    for (size_t start = 0; start < size; start += LOG_FILE_SIZE) {
        size_t part = size - start < LOG_FILE_SIZE ? size - start : LOG_FILE_SIZE;
        uint8_t *copy = exact_copy(log + start, part);
        uint64_t position = start, before = start;
        while (position < start + part) {
            rp_status status =
                rp_verify_log(verify, copy, part, start, &position, start + part, head16(data, 2), data[0] & 1);
            CHECK(position >= before && position <= start + part);
            if (status == RP_OK || status == RP_END_OF_FILE)
                CHECK(position == start + part);
            else
                CHECK(status == RP_EMPTY || status == RP_CORRUPT || status == RP_INCOMPLETE);
            if (status == RP_OK || status == RP_END_OF_FILE || status == RP_EMPTY) break;
            verify->damage_at = position;
            before = ++position;
        }
        free(copy);
    }
    totals = verify->totals;
    for (uint32_t i = 0; i < totals.findings && i < RP_FINDINGS_MAX; i++) {
        const rp_finding *finding = &verify->findings[i];
        CHECK(finding->kind == RP_FOUND_OWN_OFFSET || finding->tally < totals.tallies);
    }
    uint64_t records = 0;
    for (uint32_t i = 0; i < totals.tallies; i++) records += verify->tallies[i]->records;
    CHECK(records <= totals.records);
    rp_verify_close(verify);
}

static void check_units(const uint8_t *data, const uint8_t *bytes, size_t size) {
    rp_units sum = {0};
    uint8_t *copy = exact_copy(bytes, size);
    uint32_t count = (uint32_t)size / 20;
    uint32_t found =
        rp_verify_units(copy, count, head16(data, 4), head16(data, 6), head16(data, 8), head16(data, 10), &sum);
    CHECK(found <= count && sum.units + sum.blanks + sum.stray + sum.beyond <= found && sum.extended <= sum.units);
    free(copy);
}

/* What is kept is sound. */
static void check_index(const uint8_t *data, const uint8_t *log, size_t log_size) {
    uint8_t *file = exact_copy(data + HEAD, PAGE_SIZE);
    rp_index_check check;
    uint32_t unit = data[12] % UNITS;
    CHECK(rp_verify_index(file, PAGE_SIZE - 1, SLOTS, UNITS, &check) == RP_INVALID);
    CHECK(rp_verify_index(file, PAGE_SIZE, SLOTS, UNITS, &check) == RP_OK && check.units < UNITS);
    uint8_t *copy = exact_copy(log, log_size);
    while (unit < check.units + 1) {
        rp_status status = rp_verify_keys(file + UNITS_AT, &unit, check.units + 1, head16(data, 10), copy, log_size, 0);
        CHECK(status == RP_OK ? unit >= check.units + 1 : unit < check.units + 1);
        unit += status != RP_OK;
    }
    free(copy);
    uint8_t newest[4 * SLOTS] = {0};
    uint32_t kept = rp_index_follow(file, SLOTS, UNITS, UINT64_MAX, newest);
    CHECK(kept >= 1 && kept <= UNITS);
    rp_store32(file + 36, kept);
    memcpy(file + 40, newest, sizeof newest);
    CHECK(rp_verify_index(file, PAGE_SIZE, SLOTS, UNITS, &check) == RP_OK && check.faults == 0);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < LOG_AT) return 0;
    size_t log_size = size - LOG_AT < LOG_SIZE ? size - LOG_AT : LOG_SIZE;
    check_log(data, data + LOG_AT, log_size);
    check_units(data, data + LOG_AT, log_size);
    check_index(data, data + LOG_AT, log_size);
    return 0;
}

/* The index of the log's records, as its writer makes it: damage starts from there. */
static void enter_records(uint8_t *data, size_t size) {
    uint8_t *file = data + HEAD;
    const uint8_t *log = data + LOG_AT;
    size_t at = 0, log_size = size - LOG_AT;
    uint32_t number = 1;
    memset(file, 0, PAGE_SIZE);
    for (rp_record_view view; number < UNITS && at < log_size; at += view.size, number++) {
        if (rp_record_decode(log + at, log_size - at, 0, &view) != RP_OK) break;
        uint32_t hash = (uint32_t)rp_index_hash(view.topic, view.topic_size);
        uint8_t *slot = file + RP_INDEX_HEADER_SIZE + hash % SLOTS * RP_INDEX_SLOT_SIZE,
                *unit = file + UNITS_AT + number * 20;
        rp_store32(unit, hash);
        rp_store64(unit + 4, at);
        rp_store32(unit + 16, rp_load32(slot));
        rp_store32(slot, number);
        rp_store64(file + 24, at);
    }
    rp_store32(file + 36, number);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static const uint32_t values[] = {0, 1, 2, UNITS - 1, UNITS, UNITS + 1, INT32_MAX, 1u << 31, UINT32_MAX};
    random_source source = {seed * 0x9E3779B97F4A7C15ull + 1};
    uint32_t choice = random_below(&source, 6);
    size = mutate_log(data, size, max_size, seed, LOG_AT);
    if (size < LOG_AT) return size;
    if (choice == 0) enter_records(data, size);
    if (choice == 1 || choice == 2) {
        uint32_t at = choice == 1 ? random_below(&source, 10) * 4 : random_below(&source, PAGE_SIZE / 4) * 4;
        rp_store32(data + HEAD + at, values[random_below(&source, sizeof values / sizeof *values)]);
    }
    return size;
}
