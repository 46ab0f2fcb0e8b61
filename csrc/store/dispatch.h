#ifndef ROCKETPY_DISPATCH_H
#define ROCKETPY_DISPATCH_H
/* From the log to the consume queues and the index, behind the published position (ReputMessageService). */
#include <stdint.h>
#include "store/control_block.h"
#include "store/flush.h"
#include "ipc/ring.h"
#include "base/status.h"

typedef struct rp_dispatch rp_dispatch;
typedef struct rp_dispatch_config {
    const char *commitlog_directory;
    const char *consume_queue_directory;
    const char *index_directory;
    uint64_t consume_queue_file_size;
    uint32_t consume_queue_files_max; /* descriptors kept open */
    uint32_t consume_queue_ext_enable; /* units hold addresses of extension units (consume_queue_ext.h) */
    uint64_t consume_queue_ext_file_size; /* 0: there are no extension files, not even old ones */
    uint32_t index_enable;
    uint32_t hash_slot_num;
    uint32_t index_num;
    uint32_t delay_level_count;       /* delay_level_ms[0] is level 1 */
    const int64_t *delay_level_ms;
} rp_dispatch_config;

rp_dispatch *rp_dispatch_open(rp_control_block *block, const rp_dispatch_config *config);
void rp_dispatch_close(rp_dispatch *dispatch);
/* Tell suspended pulls through this writer (ARRIVAL records); NULL: nobody waits. */
void rp_dispatch_notify(rp_dispatch *dispatch, rp_ring_writer *pull);
/* Move this heartbeat (CLOCK_MONOTONIC) while a batch is written: a large one may take seconds. */
void rp_dispatch_beat(rp_dispatch *dispatch, uint64_t *heartbeat_ns);
/* Poke `flush` (NULL: none) while a batch is collected and written, as often as a few milliseconds pass: what is
 * published meanwhile is waited for under sync flush. */
void rp_dispatch_poke(rp_dispatch *dispatch, rp_flush *flush);
/* Work through what is published, about `budget` bytes of log (more while many queues have few units each); writes
 * units in batches, publishes max_offset, then the dispatched position. RP_OK more is there, RP_EMPTY caught up,
 * RP_CORRUPT at the dispatched position, RP_NOT_FOUND: the log's file is not there, RP_FULL: the ring of suspended
 * pulls is full; RP_NO_SPACE, RP_IO_ERROR: retry later. */
rp_status rp_dispatch_run(rp_dispatch *dispatch, uint64_t budget);
/* After RP_CORRUPT: go on at the next record that knows its own offset, or at the next file; returns how many bytes
 * were passed over. (The reference passes over the rest of the file.) */
uint64_t rp_dispatch_skip(rp_dispatch *dispatch);
/* Drop the queue's units and start it again at 0: for damage, and logs of other brokers. */
rp_status rp_dispatch_drop_queue(rp_dispatch *dispatch, rp_queue *queue);
/* Hide all units of the queue, then remove its files: its records have left the log, or its topic was deleted. Its
 * offsets go on from where they are. RP_IO_ERROR with errno: some files are left; the units are hidden all the same. */
rp_status rp_dispatch_expire_queue(rp_dispatch *dispatch, rp_queue *queue);
/* Close queue files that were removed, so that their disk space is free; about once a second. */
void rp_dispatch_release(rp_dispatch *dispatch);
/* Bring units to the disk, then move control->units_durable_phy_offset; full index files likewise, with
 * control->index_timestamp_ms. RP_IO_ERROR: it failed, now or before (units_lost): what is not durable by now is made
 * again when the broker is opened the next time. The only call that a second thread may make meanwhile. */
rp_status rp_dispatch_sync(rp_dispatch *dispatch);
/* Bring the index to the disk as well; at a clean stop. */
rp_status rp_dispatch_sync_index(rp_dispatch *dispatch);
typedef struct rp_dispatch_counts {
    uint64_t records;
    uint64_t units;
    uint64_t keys;     /* entered in the index */
    uint64_t unplaced; /* records without a place in any queue: a topic or queue offset that can be none, or the table
                          is full */
    uint64_t plain;    /* units with the plain tags code because the extension unit could not be written */
    uint64_t resets;   /* queues begun anew because the log jumped in their offsets */
    uint64_t cut_short; /* records with more keys than the index takes (RP_INDEX_KEYS_MAX) */
} rp_dispatch_counts;
void rp_dispatch_read_counts(const rp_dispatch *dispatch, rp_dispatch_counts *counts);
#endif
