#ifndef ROCKETPY_REBUILD_H
#define ROCKETPY_REBUILD_H
/* `rocketpy pipeline rebuild`: the units and index keys of a piece of the log, collected in memory.
 *
 * Dispatch writes them where they belong, record by record. Here many workers read pieces of the log at a time, so no
 * worker knows where a queue or the index stands: it collects runs of units and keys in the order of the log, and
 * rocketpy/store/rebuilding joins them. unit.h and index_file.h define unit and key for both.
 * Nothing here opens a file. Not thread-safe. */
#include <stdint.h>
#include "base/status.h"
#include "store/index/index_file.h"

enum { RP_REBUILD_UNITS_MAX = 1 << 20, RP_REBUILD_KEYS_MAX = 1 << 20 }; /* collected at a time: 120 MB at most */

/* Consecutive units of one queue. */
typedef struct rp_rebuild_run {
    uint64_t queue_offset; /* of the first */
    uint64_t phy_offset;   /* of the record of the first */
    uint64_t phy_end;      /* end of the record of the last */
    uint32_t count;
    uint32_t queue;
} rp_rebuild_run;

typedef struct rp_rebuild_totals {
    uint64_t records;
    uint64_t units;     /* of all batches */
    uint64_t keys;      /* ditto */
    uint64_t unplaced;  /* as in rp_dispatch_counts */
    uint64_t cut_short; /* ditto */
    uint64_t last_phy_offset; /* of the newest record */
    int64_t last_store_timestamp_ms;
    uint32_t queues;
    uint32_t batch_runs; /* of the batch */
    uint32_t batch_units;
    uint32_t batch_keys;
} rp_rebuild_totals;

typedef struct rp_rebuild_queue {
    uint32_t number;
    uint32_t run; /* of the batch, or ~0 */
    uint64_t next_offset;
    int32_t queue_id;
    uint32_t topic_size;
    uint8_t topic[RP_TOPIC_SIZE_MAX];
} rp_rebuild_queue;

typedef struct rp_rebuild {
    rp_rebuild_totals totals;
    rp_rebuild_queue **queues; /* totals.queues of them */
    struct rp_map *by_name; /* topic, then the queue id in 4 bytes -> queue; owned */
    uint32_t queue_room;
    int with_keys;
    const int64_t *delay_level_ms;
    uint32_t delay_level_count;
    /* The batch, valid until the next rp_rebuild_log or rp_rebuild_clear: runs in the order of their first records,
     * keys in the order of the log, units (rp_rebuild_units). */
    rp_rebuild_run *runs;
    rp_index_key *keys;
    struct rp_rebuild_unit *units;
    uint32_t *places; /* of each run's next unit, while units are grouped */
    uint8_t *grouped;
    rp_key_hashes hashes;
} rp_rebuild;

/* `delay_level_ms` is borrowed until close; its first is level 1. `with_keys`: collect keys as well. NULL with errno.
 */
rp_rebuild *rp_rebuild_open(const int64_t *delay_level_ms, uint32_t delay_level_count, int with_keys);
void rp_rebuild_close(rp_rebuild *rebuild);
/* Collect the records that start from *position on and before `stop`. `image` is one file of the log; it has `size`
 * bytes and starts at `start` of the log. RP_OK: *position reached `stop`; RP_FULL: take the batch, then call again;
 * RP_END_OF_FILE: past the blank, *position is the end of the file; RP_EMPTY, RP_CORRUPT, RP_INCOMPLETE: no record at
 * *position; RP_NO_MEMORY. */
rp_status rp_rebuild_log(rp_rebuild *rebuild, const uint8_t *image, uint64_t size, uint64_t start, uint64_t *position,
                         uint64_t stop);
/* The units of the batch, run by run (RP_CQ_UNIT_SIZE bytes each). */
const uint8_t *rp_rebuild_units(rp_rebuild *rebuild);
/* Begin the next batch. */
void rp_rebuild_clear(rp_rebuild *rebuild);
#endif
