#ifndef ROCKETPY_PULL_H
#define ROCKETPY_PULL_H
/* The pull worker: answers pulls with slices of the log, and suspends those that find nothing. Runs alone in its
 * process, GIL released. Pulls that it cannot validate go to the manager (worker_messages.h). */
#include <stdint.h>
#include "base/status.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"
#include "store/filters/filter_marks.h"
#include "store/queues/consume_queue.h"

/* The part of a suspended pull that survives the pull worker: enough for the restarted worker to answer it. */
typedef struct rp_suspension_slot {
    uint64_t connection;
    int64_t queue_offset;
    int32_t opaque;
    uint32_t flags; /* of rp_msg_pull */
    uint32_t queue; /* index in the control block */
    uint32_t live;  /* 1: suspended; stored last, cleared after the answer */
} rp_suspension_slot;
typedef struct rp_suspension_slots {
    uint32_t capacity; /* set before the first fork; the other bytes are zero then */
    uint32_t used; /* slots below it have been used */
    uint64_t reserved;
    rp_suspension_slot slots[];
} rp_suspension_slots;

typedef struct rp_pull_config {
    rp_worker *worker;
    rp_worker *store;            /* woken if a pull waits for a message that is not dispatched yet; may be NULL */
    rp_control_block *block;
    const char *commitlog_directory; /* read for SQL92 expressions alone */
    const char *consume_queue_directory;
    uint64_t consume_queue_file_size;
    uint64_t consume_queue_ext_file_size; /* 0: there are no extension files */
    uint32_t files_max;          /* descriptors of consume queue files kept open */
    const rp_filter_marks *marks;   /* NULL: filter bits are not used */
    rp_suspension_slots *suspended; /* slots of suspended pulls; when all are used, pulls are answered empty */
    uint32_t input_count; /* rings from codecs (or selectors, when inline) */
    uint32_t selector_count;
    rp_ring **inputs;
    rp_ring *from_manager;
    rp_ring *from_store;
    rp_ring *to_manager;
    rp_ring **selectors;
    int32_t version;
    uint32_t is_slave;
    uint32_t slave_read_enable;
    uint32_t offset_check_in_slave;
    uint32_t long_polling; /* longPollingEnable */
    uint32_t fast_failure;
    uint32_t request_log_sample; /* requestLogSample */
    uint32_t filter_retries; /* filterSupportRetry */
    int64_t short_polling_ms;
    int64_t wait_time_in_queue_ms;
    uint32_t bytes_in_memory, count_in_memory; /* maxTransfer…OnMessageInMemory */
    uint32_t bytes_on_disk, count_on_disk; /* maxTransfer…OnMessageInDisk */
    uint32_t bulk_bytes, bulk_count; /* bulkPullBytes, bulkPullCount; count 0: bulk pulls are as all others */
    uint64_t memory_bytes; /* accessMessageInMemoryMaxRatio of the machine's memory */
    uint64_t (*clock_ns)(void); /* NULL: CLOCK_MONOTONIC */
} rp_pull_config;

typedef struct rp_pull rp_pull;

rp_pull *rp_pull_open(const rp_pull_config *config); /* NULL with errno */
void rp_pull_close(rp_pull *pull);
/* RP_OK after `timeout_ns`; RP_STOPPED once stopped: suspended pulls have been answered empty. */
rp_status rp_pull_run(rp_pull *pull, int64_t timeout_ns);
#endif
