#ifndef ROCKETPY_FLUSH_H
#define ROCKETPY_FLUSH_H
/* Flushes the log: moves the durable position up to the published one, in intervals (async flush) or at once for
 * waiting sends (sync flush: one fdatasync covers everything published before it began). */
#include <stdint.h>
#include "base/status.h"
#include "ipc/ring.h"
#include "store/control/control_block.h"

typedef struct rp_flush rp_flush;

rp_flush *rp_flush_open(const char *commitlog_directory, rp_control *control);
void rp_flush_close(rp_flush *flush);
/* Sync the log from the durable to the published position, then move the durable one. Blocks for as long as the disk
 * takes; one thread at a time.
 * RP_OK; RP_EMPTY nothing to do; RP_IO_ERROR, RP_NO_SPACE with errno: it fails from then on, because after a failed
 * sync the kernel marks pages clean that never reached the disk. RP_NO_MEMORY with errno: no descriptors or memory,
 * nothing was synced; call again. */
rp_status rp_flush_log(rp_flush *flush);
/* For the thread of sync flush: wait until something is published (rp_flush_wake) or `timeout_ns` have passed, flush,
 * and wake `waiter` (NULL: nobody), whose replies wait for the durable position. As rp_flush_log; RP_STOPPED after
 * stop. */
rp_status rp_flush_serve(rp_flush *flush, rp_worker *waiter, int64_t timeout_ns);
/* For async flush that does not go by the clock: wait until `least_bytes` of the log are not on the disk (checked when
 * woken), stopped, or `timeout_ns` have passed. */
void rp_flush_wait(rp_flush *flush, uint64_t least_bytes, int64_t timeout_ns);
/* Wake the waiting flush thread, to check the published position. Any thread. */
void rp_flush_wake(rp_flush *flush);
void rp_flush_stop(rp_flush *flush);
typedef struct rp_flush_counts {
    uint64_t flushes;
    uint64_t flush_ns;
} rp_flush_counts;
void rp_flush_read_counts(const rp_flush *flush, rp_flush_counts *counts);
#endif
