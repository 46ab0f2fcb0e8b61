#ifndef ROCKETPY_COMMITS_H
#define ROCKETPY_COMMITS_H
/* Consumer offsets that pulls carry. They are collected, so that the manager receives one message per queue and
 * interval, independent of the number of pulls. Each keeps the arrival time of its pull, because collecting delays it.
 * C only. */
#include <stdint.h>
#include "base/map.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

enum { RP_COMMITS_MAX = 1024, RP_COMMITS_INTERVAL_NS = 5000000 };

typedef struct rp_commits {
    rp_map pending; /* group, topic, queue -> malloc'd COMMIT_OFFSET message */
    uint64_t flushed_ns;
} rp_commits;

int rp_commits_init(rp_commits *commits); /* 0, or -1 without memory */
void rp_commits_destroy(rp_commits *commits);
rp_status rp_commits_add(rp_commits *commits, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                         uint32_t topic_size, int32_t queue_id, int64_t offset, uint64_t received_ns);
/* Write all pending offsets to the manager; after RP_FULL the rest stays for the next call. */
rp_status rp_commits_flush(rp_commits *commits, rp_ring_writer *manager, uint64_t now_ns);
#endif
