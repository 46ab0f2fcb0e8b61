#include "store/recovery/verify.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/endian.h"
#include "base/map.h"
#include "store/index/index_file.h"
#include "store/index/index_layout.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/consume_queue_ext.h"
#include "store/queues/unit.h"

enum { TALLIES_FIRST = 64 };
#define NO_DAMAGE UINT64_MAX

rp_verify *rp_verify_open(void) {
    rp_verify *verify = calloc(1, sizeof *verify);
    if (!verify) return NULL;
    verify->damage_at = NO_DAMAGE;
    verify->totals.first_store_timestamp_ms = verify->totals.last_store_timestamp_ms = -1;
    verify->by_name = calloc(1, sizeof *verify->by_name);
    if (verify->by_name && rp_map_init(verify->by_name, TALLIES_FIRST) == 0) return verify;
    free(verify->by_name);
    free(verify);
    errno = ENOMEM;
    return NULL;
}

void rp_verify_close(rp_verify *verify) {
    if (!verify) return;
    rp_map_destroy(verify->by_name, free);
    free(verify->by_name);
    free(verify->tallies);
    free(verify);
}

/* --- the log --- */

static rp_tally *new_tally(rp_verify *verify, const rp_record_view *record, uint64_t at, const uint8_t *key,
                           uint32_t key_size) {
    if (verify->totals.tallies == verify->tally_room) {
        uint32_t room = verify->tally_room ? verify->tally_room * 2 : TALLIES_FIRST;
        rp_tally **grown = realloc(verify->tallies, room * sizeof *grown);
        if (!grown) return NULL;
        verify->tallies = grown;
        verify->tally_room = room;
    }
    rp_tally *tally = malloc(sizeof *tally + record->topic_size); /* with its topic behind it */
    int failed = 0;
    if (!tally) return NULL;
    memcpy(tally + 1, record->topic, record->topic_size);
    *tally = (rp_tally){.topic = (const uint8_t *)(tally + 1),
                        .topic_size = record->topic_size,
                        .queue_id = record->queue_id,
                        .index = verify->totals.tallies,
                        .first_offset = record->queue_offset,
                        .next_offset = record->queue_offset,
                        .entry_offset = record->queue_offset,
                        .entry_phy_offset = at};
    rp_map_put(verify->by_name, key, key_size, tally, &failed);
    if (failed) {
        free(tally);
        return NULL;
    }
    verify->tallies[verify->totals.tallies++] = tally;
    return tally;
}

static rp_tally *tally_of(rp_verify *verify, const rp_record_view *record, uint64_t at) {
    uint8_t key[RP_TOPIC_SIZE_V2_MAX + 4];
    memcpy(key, record->topic, record->topic_size);
    rp_store32(key + record->topic_size, (uint32_t)record->queue_id);
    rp_tally *tally = rp_map_get(verify->by_name, key, record->topic_size + 4);
    return tally ? tally : new_tally(verify, record, at, key, record->topic_size + 4);
}

static void find_fault(rp_verify *verify, uint32_t kind, uint64_t phy_offset, uint64_t expected, uint64_t found,
                       uint32_t tally) {
    if (verify->totals.findings < RP_FINDINGS_MAX)
        verify->findings[verify->totals.findings] =
            (rp_finding){.phy_offset = phy_offset, .expected = expected, .found = found, .kind = kind, .tally = tally};
    verify->totals.findings++;
}

static void add_unit(uint64_t offset, uint64_t phy_offset, uint32_t size, int64_t code, uint64_t *units_sum,
                     uint64_t *places_sum) {
    uint64_t unit[4] = {offset, phy_offset, size, (uint64_t)code};
    *units_sum += rp_hash_bytes(unit, sizeof unit, 1);
    *places_sum += rp_hash_bytes(unit, 24, 2);
}

static int64_t tags_code(const rp_record_view *record) {
    const uint8_t *value;
    uint32_t size = rp_property_find(record->properties, record->properties_size, "TAGS", &value);
    return size ? rp_string_hash(value, size) : 0;
}

/* Add the record, which must have a unit, to the tally of its queue. */
static rp_status tally_record(rp_verify *verify, const rp_record_view *record, uint64_t at, uint64_t units_limit) {
    rp_tally *tally = tally_of(verify, record, at);
    if (!tally) return RP_NO_MEMORY;
    if (record->queue_offset != tally->next_offset) {
        int over_damage =
            verify->damage_at != NO_DAMAGE && tally->max_phy_offset <= verify->damage_at && verify->damage_at < at;
        if (record->queue_offset == 0) { /* the topic was deleted and created again */
            tally->first_offset = tally->units = tally->units_end = tally->units_sum = tally->places_sum = 0;
        } else if (!over_damage || record->queue_offset < tally->next_offset) {
            find_fault(verify, RP_FOUND_QUEUE_OFFSET, at, tally->next_offset, record->queue_offset, tally->index);
        }
    }
    tally->next_offset = record->queue_offset + 1;
    tally->records++;
    tally->bytes += record->size;
    tally->max_phy_offset = at + record->size;
    if (at < units_limit) {
        tally->units++;
        tally->units_end = record->queue_offset + 1;
        add_unit(record->queue_offset, at, record->size, tags_code(record), &tally->units_sum, &tally->places_sum);
    }
    return RP_OK;
}

static rp_status count_record(rp_verify *verify, const rp_record_view *record, uint64_t at, uint64_t units_limit) {
    rp_verify_totals *totals = &verify->totals;
    totals->records++;
    totals->body_bytes += record->body_size;
    if (totals->first_store_timestamp_ms < 0) totals->first_store_timestamp_ms = record->store_timestamp_ms;
    totals->last_store_timestamp_ms = record->store_timestamp_ms;
    if (record->phy_offset != at) find_fault(verify, RP_FOUND_OWN_OFFSET, at, at, record->phy_offset, UINT32_MAX);
    return rp_has_unit(record->sys_flag) ? tally_record(verify, record, at, units_limit) : RP_OK;
}

rp_status rp_verify_log(rp_verify *verify, const uint8_t *image, uint64_t size, uint64_t start, uint64_t *position,
                        uint64_t stop, uint64_t units_limit, int check_crc) {
    while (*position < stop && *position < start + size) {
        rp_record_view record;
        uint64_t at = *position - start;
        rp_status status = rp_record_decode(image + at, size - at, check_crc, &record);
        if (status == RP_END_OF_FILE && record.size == size - at) {
            *position = start + size;
            return RP_END_OF_FILE;
        }
        if (status != RP_OK) return status == RP_END_OF_FILE ? RP_CORRUPT : status;
        status = count_record(verify, &record, *position, units_limit);
        if (status != RP_OK) return status;
        *position += record.size;
    }
    return RP_OK;
}

/* --- queues --- */

uint32_t rp_verify_units(const uint8_t *units, uint32_t count, uint64_t offset, uint64_t first_offset,
                         uint64_t end_offset, uint64_t log_begin, rp_units *sum) {
    for (uint32_t i = 0; i < count; i++, offset++) {
        rp_unit unit = rp_unit_read(units + i * (uint64_t)RP_CQ_UNIT_SIZE);
        if (unit.size == 0 || unit.size > INT32_MAX || unit.phy_offset > INT64_MAX) return i;
        if (unit.size == INT32_MAX)
            sum->blanks++;
        else if (offset >= end_offset)
            sum->beyond++;
        else if (offset < first_offset)
            sum->stray += unit.phy_offset >= log_begin;
        else {
            sum->units++;
            sum->extended += (uint64_t)rp_cq_ext_is_address(unit.tags_code);
            add_unit(offset, unit.phy_offset, unit.size, unit.tags_code, &sum->units_sum, &sum->places_sum);
        }
    }
    return count;
}

/* --- the index --- */

static void fault(rp_index_check *check, uint32_t reason, uint32_t at, int64_t expected, int64_t found) {
    if (check->faults++ == 0) {
        check->reason = reason;
        check->at = at;
        check->expected = expected;
        check->found = found;
    }
}

static void follow_units(const uint8_t *units, uint32_t count, uint32_t slot_num, uint32_t *newest,
                         rp_index_check *check) {
    for (uint32_t i = 1; i < count; i++) {
        rp_index_unit unit = rp_index_unit_read(units + i * (uint64_t)RP_INDEX_UNIT_SIZE);
        if (unit.hash > INT32_MAX) {
            fault(check, RP_INDEX_HASH, i, 0, (int32_t)unit.hash);
            continue;
        }
        uint32_t *head = &newest[unit.hash % slot_num];
        if (unit.previous != *head) fault(check, RP_INDEX_PREVIOUS, i, *head, (int32_t)unit.previous);
        *head = i;
    }
}

rp_status rp_verify_index(const uint8_t *image, uint64_t size, uint32_t slot_num, uint32_t index_num,
                          rp_index_check *check) {
    uint64_t units_at = RP_INDEX_HEADER_SIZE + (uint64_t)slot_num * RP_INDEX_SLOT_SIZE;
    *check = (rp_index_check){0};
    if (slot_num == 0 || size < units_at + (uint64_t)index_num * RP_INDEX_UNIT_SIZE) return RP_INVALID;
    int32_t count = (int32_t)rp_load32(image + INDEX_COUNT);
    if (count <= 0) count = 1;
    if ((uint32_t)count > index_num) {
        fault(check, RP_INDEX_COUNT, 0, index_num, count);
        return RP_OK;
    }
    uint32_t *newest = calloc(slot_num, sizeof *newest);
    if (!newest) return RP_NO_MEMORY;
    check->units = (uint32_t)count - 1;
    follow_units(image + units_at, (uint32_t)count, slot_num, newest, check);
    for (uint32_t slot = 0; slot < slot_num; slot++) {
        uint32_t shown = rp_load32(image + RP_INDEX_HEADER_SIZE + slot * (uint64_t)RP_INDEX_SLOT_SIZE);
        if (shown != newest[slot] && shown != (uint32_t)count)
            fault(check, RP_INDEX_SLOT, slot, newest[slot], (int32_t)shown);
    }
    free(newest);
    return RP_OK;
}

static int has_key(const rp_record_view *record, int32_t wanted) {
    rp_key_hashes hashes;
    int32_t hash;
    rp_key_hashes_begin(&hashes, record->topic, record->topic_size, record->properties, record->properties_size);
    hashes.room = UINT32_MAX; /* any of its keys: a Java broker indexes all of them */
    while (rp_key_hashes_next(&hashes, &hash))
        if (hash == wanted) return 1;
    return 0;
}

rp_status rp_verify_keys(const uint8_t *units_image, uint32_t *unit, uint32_t end, uint64_t log_begin,
                         const uint8_t *log_image, uint64_t log_size, uint64_t log_start) {
    for (; *unit < end; ++*unit) {
        rp_index_unit entry = rp_index_unit_read(units_image + *unit * (uint64_t)RP_INDEX_UNIT_SIZE);
        rp_record_view record;
        if (entry.phy_offset < log_begin) continue;
        if (entry.phy_offset < log_start || entry.phy_offset >= log_start + log_size) return RP_END_OF_FILE;
        uint64_t position = entry.phy_offset - log_start;
        if (rp_record_decode(log_image + position, log_size - position, 0, &record) != RP_OK) return RP_NOT_FOUND;
        if (!has_key(&record, (int32_t)entry.hash)) return RP_CORRUPT;
    }
    return RP_OK;
}
