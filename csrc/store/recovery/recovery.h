#ifndef ROCKETPY_RECOVERY_H
#define ROCKETPY_RECOVERY_H
/* The scans of recovery, which must be fast. rocketpy/store/recovery/positions.py decides what to do with their
 * results. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/log/log_view.h"
#include "store/log/record.h"

typedef struct rp_log_scan {
    uint64_t end; /* the first offset that is not the start of a valid record, or the limit of the scan */
    uint64_t records;
    uint64_t missing; /* offset of the first record without its unit; UINT64_MAX: none (only with a block) */
    uint64_t gap; /* of the first record whose queue lacks units before its own; UINT64_MAX: none (ditto) */
    int64_t last_store_timestamp_ms;
    int32_t reason; /* why it ended: RP_OK at `limit`; RP_EMPTY zeros; RP_NOT_FOUND no next file; RP_INCOMPLETE,
                     * RP_CORRUPT: half a record, or damage */
} rp_log_scan;

enum { RP_SCAN_CRC = 1 /* compare bodies with their CRC */ };

/* The records that are certainly complete on the disk; others may be torn after a power failure. */
typedef struct rp_log_durable {
    uint64_t phy_offset; /* records below it */
    int64_t before_ms; /* records stored before it */
} rp_log_durable;

/* Walk the records of the log from `from` (the start of one) up to `limit`. `durable` is given after a power failure:
 * then the walk also ends at a record with a wrong own offset, and at a record that is not durable and has NULs where a
 * torn one would have them. With NULL, NULs are data of the sender. `block`: also find each record's queue, add it if
 * it is new, and update its next_offset; NULL: do not. RP_OK; RP_IO_ERROR, RP_NO_MEMORY: a file cannot be mapped. */
rp_status rp_recovery_scan_log(const char *commitlog_directory, uint64_t file_size, uint64_t from, uint64_t limit,
                               uint32_t flags, const rp_log_durable *durable, rp_control_block *block,
                               rp_log_scan *scan);

/* `image` begins with damage, at `phy_offset` of the log. Returns the distance in bytes to the next valid record that
 * carries its own offset; `size` if there is none. */
uint64_t rp_recovery_resync(const uint8_t *image, uint64_t size, uint64_t phy_offset);

/* `position`: of the record in the log. Another status than RP_OK ends the walk. */
typedef rp_status (*rp_recovery_visit)(void *context, const rp_record_view *record, uint64_t position);
/* Visit the records of [from, to) of the log; `from` is the start of one. Damage and files that are gone are passed
 * over as dispatch does. RP_OK; RP_IO_ERROR, RP_NO_MEMORY with errno: a file cannot be mapped; what `visit` returns. */
rp_status rp_recovery_walk(rp_log_view *view, uint64_t file_size, uint64_t from, uint64_t to, rp_recovery_visit visit,
                           void *context);

/* Set next_offset of every queue: max_offset, plus the records that are published but not yet dispatched. Called by a
 * restarted send worker before its first append; dispatch and cleaning may run meanwhile. Other processes see no
 * intermediate value. RP_OK; RP_IO_ERROR, RP_NO_MEMORY: a file of the log cannot be mapped. */
rp_status rp_recovery_next_offsets(rp_control_block *block, const char *commitlog_directory);

/* Clear `watched` of every queue; called before the first workers are forked. */
void rp_recovery_clear_watched(rp_control_block *block);

/* Count the valid units at the start of `units` (`size` bytes): those with a size > 0 and a record that ends at or
 * below `phy_limit`. Sets *max_phy_offset to the end of the last record, not of a pre-blank unit (0: there is none). */
uint32_t rp_recovery_count_units(const uint8_t *units, uint32_t size, uint64_t phy_limit, uint64_t *max_phy_offset);

/* Check that the last unit of each live queue is in its file and points to the queue's last record. Queues that fail
 * are reset to (0, 0) and their files removed; dispatch rebuilds them from the beginning of the log. `rebuilding` of
 * the block is set before the first one. Returns the number of failed queues; -1 with errno. */
int64_t rp_recovery_check_queues(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size);
#endif
