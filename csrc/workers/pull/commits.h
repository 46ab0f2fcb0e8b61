#ifndef ROCKETPY_COMMITS_H
#define ROCKETPY_COMMITS_H
/* Consumer offsets that pulls carry. They are collected, so that the manager receives one message per queue, group and
 * interval, independent of the number of pulls.
 *
 * Clients may commit faster than the manager reads. Then offsets wait here, each group and queue in the order of its
 * arrival and with its latest offset. Slow pulls use the same ring and go first: while it holds RP_TRAFFIC_DEPTH_MAX, a
 * flush writes RP_COMMITS_LEAST offsets and no more. An offset beyond RP_COMMITS_MAX is dropped: clients repeat their
 * offset in the next pull and in UPDATE_CONSUMER_OFFSET, every 5 s. The cost of a flush depends on what it writes, not
 * on how many offsets wait or have waited. */
#include "workers/shared/traffic.h"

enum { RP_COMMITS_MAX = 1 << 16, RP_COMMITS_LEAST = 16, RP_COMMITS_INTERVAL_NS = 5000000 };

typedef struct rp_commit {
    struct rp_commit *next;
    rp_msg_commit_offset message; /* then group, topic */
} rp_commit;

typedef struct rp_commits {
    rp_map by_queue; /* queue, group, topic -> malloc'd rp_commit (rp_message_of) */
    rp_commit *first, *last; /* in the order of arrival; `last` counts if there is a first */
} rp_commits;

int rp_commits_init(rp_commits *commits); /* 0, or -1 without memory */
void rp_commits_destroy(rp_commits *commits);
/* Collect an offset in place of the one that waits for the same queue and group, if any. `names`: group, topic, with
 * the sizes that `offset` says; borrowed. 0 if it was dropped: RP_COMMITS_MAX others wait, or there is no memory. */
int rp_commits_add(rp_commits *commits, const rp_msg_commit_offset *offset, const uint8_t *names);
/* Write offsets to the manager, as many as `ring` has room for if `all`. The rest stays for the next call. `manager`
 * writes to `ring`. */
void rp_commits_flush(rp_commits *commits, rp_ring_writer *manager, const rp_ring *ring, int all);
#endif
