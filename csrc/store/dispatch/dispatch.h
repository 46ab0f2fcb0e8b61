#ifndef ROCKETPY_DISPATCH_H
#define ROCKETPY_DISPATCH_H
/* Dispatch: builds consume queues and index from the log, up to the published position (ReputMessageService), or the
 * confirmed one, if the control block says so when it is opened. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/ring.h"
#include "store/control/control_block.h"
#include "store/filters/filter_marks.h"
#include "store/log/flush.h"

typedef struct rp_dispatch rp_dispatch;
typedef struct rp_dispatch_config {
    const char *commitlog_directory;
    const char *consume_queue_directory;
    const char *index_directory;
    uint64_t consume_queue_file_size;
    uint32_t consume_queue_files_max; /* descriptors kept open */
    uint32_t consume_queue_ext_enable; /* write extension units (consume_queue_ext.h) */
    uint64_t consume_queue_ext_file_size; /* 0: there are no extension files, not even old ones */
    uint32_t index_enable;
    uint32_t hash_slot_num;
    uint32_t index_num;
    uint32_t delay_level_count;       /* delay_level_ms[0] is level 1 */
    const int64_t *delay_level_ms;    /* borrowed until close */
    rp_filter_marks *filter_marks;    /* NULL: no filter bits are written */
} rp_dispatch_config;

rp_dispatch *rp_dispatch_open(rp_control_block *block, const rp_dispatch_config *config);
void rp_dispatch_close(rp_dispatch *dispatch);
/* Send ARRIVAL messages for suspended pulls through these writers, one per pull worker in the order of ipc/worker.h;
 * 0: none. The writers are borrowed, the array is copied. count <= RP_PULL_WORKERS_MAX. */
void rp_dispatch_set_pulls(rp_dispatch *dispatch, rp_ring_writer *const *pulls, uint32_t count);
/* Every few milliseconds while a batch is collected and written, which may take seconds: update this heartbeat
 * (CLOCK_MONOTONIC), and wake `flush`, because under sync flush senders wait for records that are published meanwhile.
 * NULL: nothing. */
void rp_dispatch_set_watchers(rp_dispatch *dispatch, uint64_t *heartbeat_ns, rp_flush *flush);
/* Take a FILTER message (worker_messages.h), between two batches. RP_OK, RP_INVALID, RP_NO_MEMORY: none of its topic's
 * messages gets filter bits from now on. */
rp_status rp_dispatch_take_filter(rp_dispatch *dispatch, const uint8_t *data, uint32_t size);
/* Every filter is known: messages of topics with filters get their bits from now on. */
void rp_dispatch_filters_are_whole(rp_dispatch *dispatch);
/* Dispatch published records, about `budget` bytes of log (more while many queues have few units each). Writes units in
 * batches, then publishes max_offset, then the dispatched position. RP_OK: more is published; RP_EMPTY: caught up;
 * RP_CORRUPT: damage at the dispatched position; RP_NOT_FOUND: the log file is missing; RP_FULL: the ring of the
 * only pull worker is full; RP_NO_SPACE, RP_IO_ERROR: retry later. */
rp_status rp_dispatch_run(rp_dispatch *dispatch, uint64_t budget);
/* 1 if there is something to dispatch. */
int rp_dispatch_is_behind(const rp_dispatch *dispatch);
/* After RP_CORRUPT: continue at the next record that carries its own offset, or at the next file. Returns the number of
 * skipped bytes. (The reference skips the rest of the file.) */
uint64_t rp_dispatch_skip(rp_dispatch *dispatch);
/* Remove the queue's units and start it again at 0: after damage, and for logs of other brokers. */
rp_status rp_dispatch_drop_queue(rp_dispatch *dispatch, rp_queue *queue);
/* Hide all units of the queue, then remove its files: its records were deleted from the log, or its topic was deleted.
 * Its offsets continue. RP_IO_ERROR with errno: some files are left; the units are hidden all the same. */
rp_status rp_dispatch_expire_queue(rp_dispatch *dispatch, rp_queue *queue);
/* Close removed queue files, so that their disk space becomes free; call about once a second. */
void rp_dispatch_release(rp_dispatch *dispatch);
/* Sync units, then update control->units_durable_phy_offset; sync full index files, then update
 * control->index_timestamp_ms. RP_IO_ERROR: it failed, now or before (units_lost): units that are not durable are
 * rebuilt at the next start. The only call that a second thread may make. */
rp_status rp_dispatch_sync(rp_dispatch *dispatch);
/* Sync the index as well; at a clean stop. */
rp_status rp_dispatch_sync_index(rp_dispatch *dispatch);
typedef struct rp_dispatch_counts {
    uint64_t records;
    uint64_t units;
    uint64_t keys;     /* added to the index */
    uint64_t unplaced; /* records without a place in any queue: a topic or queue offset that can be none, or the table
                          is full */
    uint64_t plain;    /* units with the plain tags code because the extension unit could not be written */
    uint64_t resets;   /* queues restarted because of a gap in the offsets of the log */
    uint64_t cut_short; /* records with more keys than the index takes (RP_INDEX_KEYS_MAX) */
} rp_dispatch_counts;
void rp_dispatch_read_counts(const rp_dispatch *dispatch, rp_dispatch_counts *counts);
#endif
