#ifndef ROCKETPY_RECOVERY_H
#define ROCKETPY_RECOVERY_H
/* The scans of recovery that must be fast; what they mean is decided in rocketpy/store/recovery/positions.py. */
#include <stdint.h>
#include "store/control_block.h"
#include "base/status.h"

typedef struct rp_log_scan {
    uint64_t end; /* the first offset that is not the start of a sound record (or where scanning was to stop) */
    uint64_t records;
    uint64_t missing; /* offset of the first record without its unit; UINT64_MAX: none (only with a block) */
    uint64_t gap; /* of the first record whose queue lacks units before its own; UINT64_MAX: none (ditto) */
    int64_t last_store_timestamp_ms;
    int32_t reason; /* why it ended: RP_OK at `limit`; RP_EMPTY zeros; RP_NOT_FOUND no next file; RP_INCOMPLETE,
                     * RP_CORRUPT: half a record, or damage */
} rp_log_scan;

enum { RP_SCAN_CRC = 1 /* compare bodies with their CRC */ };

/* Which records are certainly on the disk, whole: the others may be torn if the power failed. */
typedef struct rp_log_durable {
    uint64_t phy_offset; /* those below it */
    int64_t before_ms; /* those stored before it */
} rp_log_durable;

/* Walk the log's records from `from` (the start of one) to `limit` at the most. `durable`: the power failed, so the
 * walk also ends at a record that carries another offset, or is not durable and has NULs where a torn one has them;
 * NULL: it did not, and NULs are the sender's. `block`: also look up each record's queue, enter it if it begins here,
 * and move its next_offset along; NULL: don't. RP_OK; RP_IO_ERROR, RP_NO_MEMORY: a file cannot be mapped. */
rp_status rp_recovery_scan_log(const char *commitlog_directory, uint64_t file_size, uint64_t from, uint64_t limit,
                               uint32_t flags, const rp_log_durable *durable, rp_control_block *block,
                               rp_log_scan *scan);

/* Behind damage at the start of `image`, which lies at `phy_offset` of the log: how many bytes on the next sound record
 * begins that knows its own offset; `size` if there is none. */
uint64_t rp_recovery_resync(const uint8_t *image, uint64_t size, uint64_t phy_offset);

/* Set next_offset of every queue: max_offset, moved on by the records that are published but not yet dispatched.
 * For a new send processor before its first append; dispatch and cleaning may run meanwhile. Nobody sees a value in
 * between. RP_OK; RP_IO_ERROR, RP_NO_MEMORY: a file of the log cannot be mapped. */
rp_status rp_recovery_next_offsets(rp_control_block *block, const char *commitlog_directory);

/* No pull waits for any queue: before the first workers are forked. */
void rp_recovery_forget_watchers(rp_control_block *block);

/* Count the sound units at the start of `units` (`size` bytes): size > 0, all of the record below `phy_limit`. Sets
 * *max_phy_offset to the end of the last record they name, pre-blank units aside (0 if there is none). */
uint32_t rp_recovery_count_units(const uint8_t *units, uint32_t size, uint64_t phy_limit, uint64_t *max_phy_offset);

/* Check that each live queue's last unit is on file and names the queue's last record. Queues that fail are emptied
 * (0, 0) and their files removed, to be rebuilt by dispatch from the log's beginning; `rebuilding` of the block says so
 * before the first. Returns how many; -1 with errno. */
int64_t rp_recovery_check_queues(rp_control_block *block, const char *consume_queue_directory, uint64_t file_size);
#endif
