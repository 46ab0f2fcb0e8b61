#ifndef ROCKETPY_TRAFFIC_H
#define ROCKETPY_TRAFFIC_H
/* What sends stored in a topic, and what pulls of a group got from a queue: the sums behind the statistics by name
 * (BrokerStatsManager). Offsets show neither bytes nor requests nor broadcasting groups.
 *
 * The manager receives one message per interval and topic, or queue and group, independent of the number of messages.
 * Requests go first: sums wait while its ring holds more than a little, and while it is absent. So figures are up to
 * two seconds late, and a killed worker loses the sums of an interval, not the totals of code 28. A sum costs 6 to 30
 * ns, a send at least 1.2 us. Rejected: counters by name in shared memory, where three kinds of processes would have to
 * agree on slots, and counters in the control block, which cannot name the group. C only. */
#include <stdint.h>
#include "base/map.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

enum {
    RP_TRAFFIC_KEYS_MAX = 4096,    /* of an interval; traffic of more is not counted by name */
    RP_TRAFFIC_LAST = 16,
    RP_TRAFFIC_DEPTH_MAX = 1 << 14 /* bytes in the manager's ring beyond which sums wait: requests go first */
};
static const uint64_t RP_TRAFFIC_INTERVAL_NS = 1000000000;

/* A queue, for a group or none. */
typedef struct rp_queue_names {
    int32_t queue_id;
    uint32_t group_size;
    uint32_t topic_size;
    const uint8_t *names; /* group, topic */
} rp_queue_names;

/* The message for the manager about a queue, of those that are collected in `messages`: the one that is there, or a new
 * one, whose head of `head_size` bytes is zero and whose names are there. Freed by free. NULL: there are `count_max` of
 * them, the names are too long, or there is no memory. */
void *rp_message_of(rp_map *messages, const rp_queue_names *of, uint32_t head_size, uint32_t count_max);
/* Remove that message; returns it, for free. NULL: there is none. */
void *rp_message_remove(rp_map *messages, const rp_queue_names *of);

typedef struct rp_traffic {
    rp_map sums;          /* queue, group, topic -> malloc'd TRAFFIC message */
    rp_msg_traffic *last[RP_TRAFFIC_LAST]; /* by queue id and topic: the sums added to last, mostly the next ones too */
    uint64_t begun_ns; /* first count of the interval */
    uint64_t at; /* entry of `sums` where the flush continues; 0: none is under way */
} rp_traffic;

int rp_traffic_init(rp_traffic *traffic); /* 0, or -1 without memory */
void rp_traffic_destroy(rp_traffic *traffic);
/* Add the numbers of `counts` to the sums of its queue. `names`: group (empty for a send), then topic, with the sizes
 * that `counts` says; borrowed. */
void rp_traffic_add(rp_traffic *traffic, const rp_msg_traffic *counts, const uint8_t *names, uint64_t now_ns);
/* Write sums to the manager once the interval is over, or at once if `all`. Stops while `ring` holds
 * RP_TRAFFIC_DEPTH_MAX; the next call continues. `manager` writes to `ring`. */
void rp_traffic_flush(rp_traffic *traffic, rp_ring_writer *manager, const rp_ring *ring, uint64_t now_ns, int all);
#endif
