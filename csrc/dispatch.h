#ifndef ROCKETPY_DISPATCH_H
#define ROCKETPY_DISPATCH_H
/* From the log to the consume queues and the index, behind the published position (ReputMessageService). */
#include <stdint.h>
#include "control_block.h"
#include "ring.h"
#include "status.h"

typedef struct rp_dispatch rp_dispatch;
typedef struct rp_dispatch_config {
    const char *commitlog_directory;
    const char *consume_queue_directory;
    const char *index_directory;
    uint64_t consume_queue_file_size;
    uint32_t consume_queue_files_max; /* descriptors kept open */
    uint32_t index_enable;
    uint32_t hash_slot_num;
    uint32_t index_num;
    uint32_t delay_level_count;       /* delay_level_ms[0] is level 1 */
    const int64_t *delay_level_ms;
} rp_dispatch_config;

rp_dispatch *rp_dispatch_open(rp_control_block *block, const rp_dispatch_config *config);
void rp_dispatch_close(rp_dispatch *dispatch);
/* Tell held pulls through this writer (ARRIVAL records); NULL: nobody waits. */
void rp_dispatch_notify(rp_dispatch *dispatch, rp_ring_writer *pull);
/* Work through what is published, at most `budget` bytes of log; writes units in batches, publishes max_offset, then
 * the dispatched position. RP_OK more is there, RP_EMPTY caught up, RP_CORRUPT at the dispatched position,
 * RP_NO_SPACE, RP_IO_ERROR: retry later. */
rp_status rp_dispatch_run(rp_dispatch *dispatch, uint64_t budget);
#endif
