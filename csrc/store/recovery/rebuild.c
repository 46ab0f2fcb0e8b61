/* See rebuild.h. Units are kept in the order of the log, each with the number of its run, and are grouped by run when
 * the batch is taken: two passes over a batch that fits the processor's cache, instead of an array that grows for each
 * queue. With many queues the batch goes on, so that runs stay longer than what describes them (docs/adr/0121). */
#include "store/recovery/rebuild.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/endian.h"
#include "base/map.h"
#include "store/control/control_block.h"
#include "store/log/record.h"
#include "store/queues/consume_queue.h"
#include "store/queues/unit.h"

enum {
    KEYS_ROOM = RP_INDEX_KEYS_MAX + 1, /* of one record */
    QUEUES_FIRST = 64,
    BATCH_UNITS = 1 << 15, /* 2 MB with their keys and grouped */
    RUN_UNITS = 64,        /* on average, or the batch goes on up to RP_REBUILD_UNITS_MAX */
    NO_RUN = UINT32_MAX
};

struct rp_rebuild_unit {
    uint32_t run;
    uint8_t bytes[RP_CQ_UNIT_SIZE];
};

rp_rebuild *rp_rebuild_open(const int64_t *delay_level_ms, uint32_t delay_level_count, int with_keys) {
    rp_rebuild *rebuild = calloc(1, sizeof *rebuild);
    if (!rebuild) return NULL;
    rebuild->with_keys = with_keys;
    rebuild->delay_level_count = delay_level_count;
    rebuild->delay_level_ms = delay_level_ms;
    rebuild->by_name = calloc(1, sizeof *rebuild->by_name);
    rebuild->units = malloc(RP_REBUILD_UNITS_MAX * sizeof *rebuild->units);
    rebuild->runs = malloc(RP_REBUILD_UNITS_MAX * sizeof *rebuild->runs);
    rebuild->places = malloc(RP_REBUILD_UNITS_MAX * sizeof *rebuild->places);
    rebuild->grouped = malloc((uint64_t)RP_REBUILD_UNITS_MAX * RP_CQ_UNIT_SIZE);
    rebuild->keys = malloc((RP_REBUILD_KEYS_MAX + KEYS_ROOM) * sizeof *rebuild->keys);
    if (!rebuild->by_name || rp_map_init(rebuild->by_name, QUEUES_FIRST) < 0 || !rebuild->units || !rebuild->runs ||
        !rebuild->places || !rebuild->grouped || !rebuild->keys) {
        rp_rebuild_close(rebuild);
        errno = ENOMEM;
        return NULL;
    }
    return rebuild;
}

void rp_rebuild_close(rp_rebuild *rebuild) {
    if (!rebuild) return;
    if (rebuild->by_name) rp_map_destroy(rebuild->by_name, free);
    free(rebuild->by_name);
    free(rebuild->queues);
    free(rebuild->units);
    free(rebuild->runs);
    free(rebuild->places);
    free(rebuild->grouped);
    free(rebuild->keys);
    free(rebuild);
}

/* NULL with errno: EINVAL if its name is none for a queue, EOVERFLOW beyond the queues that a broker has, ENOMEM. */
static rp_rebuild_queue *add_queue(rp_rebuild *rebuild, const rp_record_view *record, const uint8_t *key,
                                   uint32_t key_size) {
    uint32_t count = rebuild->totals.queues;
    int failed = 0;
    errno = EINVAL;
    if (!rp_control_is_name(record->topic, record->topic_size) || record->queue_id < 0) return NULL;
    errno = EOVERFLOW;
    if (count == RP_CONTROL_QUEUES_MAX) return NULL;
    errno = ENOMEM;
    if (count == rebuild->queue_room) {
        uint32_t room = count ? 2 * count : QUEUES_FIRST;
        rp_rebuild_queue **grown = realloc(rebuild->queues, room * sizeof *grown);
        if (!grown) return NULL;
        rebuild->queues = grown;
        rebuild->queue_room = room;
    }
    rp_rebuild_queue *queue = calloc(1, sizeof *queue);
    if (!queue) return NULL;
    queue->number = count;
    queue->run = NO_RUN;
    queue->queue_id = record->queue_id;
    queue->topic_size = record->topic_size;
    memcpy(queue->topic, record->topic, record->topic_size);
    rp_map_put(rebuild->by_name, key, key_size, queue, &failed);
    if (failed) {
        free(queue);
        return NULL;
    }
    rebuild->queues[rebuild->totals.queues++] = queue;
    return queue;
}

static rp_rebuild_queue *queue_of(rp_rebuild *rebuild, const rp_record_view *record) {
    uint8_t key[RP_TOPIC_SIZE_MAX + 4];
    memcpy(key, record->topic, record->topic_size);
    rp_store32(key + record->topic_size, (uint32_t)record->queue_id);
    rp_rebuild_queue *queue = rp_map_get(rebuild->by_name, key, record->topic_size + 4);
    return queue ? queue : add_queue(rebuild, record, key, record->topic_size + 4);
}

static rp_status add_unit(rp_rebuild *rebuild, const rp_record_view *record, uint64_t phy_offset) {
    rp_rebuild_totals *totals = &rebuild->totals;
    rp_rebuild_queue *queue = NULL;
    int is_possible = record->topic_size <= RP_TOPIC_SIZE_MAX && rp_cq_is_offset(record->queue_offset);
    if (is_possible) queue = queue_of(rebuild, record);
    if (is_possible && !queue && errno == ENOMEM) return RP_NO_MEMORY;
    if (!queue) {
        totals->unplaced++;
        return RP_OK;
    }
    if (queue->run == NO_RUN || queue->next_offset != record->queue_offset) {
        queue->run = totals->batch_runs++;
        rebuild->runs[queue->run] =
            (rp_rebuild_run){.queue_offset = record->queue_offset, .phy_offset = phy_offset, .queue = queue->number};
    }
    rp_rebuild_run *run = &rebuild->runs[queue->run];
    run->count++;
    run->phy_end = phy_offset + record->size;
    queue->next_offset = record->queue_offset + 1;
    struct rp_rebuild_unit *unit = &rebuild->units[totals->batch_units++];
    unit->run = queue->run;
    rp_unit_fill(unit->bytes, phy_offset, record->size,
                 rp_unit_tags_code(record, rebuild->delay_level_ms, rebuild->delay_level_count));
    totals->units++;
    return RP_OK;
}

static void add_keys(rp_rebuild *rebuild, const rp_record_view *record, uint64_t phy_offset) {
    rp_rebuild_totals *totals = &rebuild->totals;
    int32_t hash;
    rp_key_hashes_begin(&rebuild->hashes, record->topic, record->topic_size, record->properties,
                        record->properties_size);
    while (rp_key_hashes_next(&rebuild->hashes, &hash)) {
        rebuild->keys[totals->batch_keys++] =
            (rp_index_key){.phy_offset = phy_offset, .store_timestamp_ms = record->store_timestamp_ms, .hash = hash};
        totals->keys++;
    }
    totals->cut_short += (uint64_t)rebuild->hashes.is_cut_short;
}

static int is_batch_full(const rp_rebuild_totals *totals) {
    if (totals->batch_units == RP_REBUILD_UNITS_MAX || totals->batch_keys >= RP_REBUILD_KEYS_MAX) return 1;
    return totals->batch_units >= BATCH_UNITS && totals->batch_units / RUN_UNITS >= totals->batch_runs;
}

rp_status rp_rebuild_log(rp_rebuild *rebuild, const uint8_t *image, uint64_t size, uint64_t start, uint64_t *position,
                         uint64_t stop) {
    rp_rebuild_totals *totals = &rebuild->totals;
    rp_record_view record;
    while (*position < stop) {
        if (is_batch_full(totals)) return RP_FULL;
        uint64_t at = *position - start;
        rp_status status = rp_record_decode(image + at, size - at, 0, &record);
        if (status == RP_END_OF_FILE) *position = start + size;
        if (status != RP_OK) return status;
        if (rp_has_unit(record.sys_flag)) status = add_unit(rebuild, &record, *position);
        if (status != RP_OK) return status;
        if (rebuild->with_keys && rp_key_hashes_wants(record.sys_flag, record.properties_size))
            add_keys(rebuild, &record, *position);
        totals->records++;
        totals->last_phy_offset = *position;
        totals->last_store_timestamp_ms = record.store_timestamp_ms;
        *position += record.size;
    }
    return RP_OK;
}

const uint8_t *rp_rebuild_units(rp_rebuild *rebuild) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < rebuild->totals.batch_runs; i++) {
        rebuild->places[i] = at;
        at += rebuild->runs[i].count;
    }
    for (uint32_t i = 0; i < rebuild->totals.batch_units; i++) {
        const struct rp_rebuild_unit *unit = &rebuild->units[i];
        uint32_t place = rebuild->places[unit->run]++;
        memcpy(rebuild->grouped + (uint64_t)place * RP_CQ_UNIT_SIZE, unit->bytes, RP_CQ_UNIT_SIZE);
    }
    return rebuild->grouped;
}

void rp_rebuild_clear(rp_rebuild *rebuild) {
    rebuild->totals.batch_runs = rebuild->totals.batch_units = rebuild->totals.batch_keys = 0;
    for (uint32_t i = 0; i < rebuild->totals.queues; i++) rebuild->queues[i]->run = NO_RUN;
}
