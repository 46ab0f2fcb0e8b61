#ifndef ROCKETPY_TABLES_H
#define ROCKETPY_TABLES_H
/* What the send and pull processes know of topics and groups: private copies of the manager's tables, kept current by
 * TOPIC and GROUP records. */
#include <stdint.h>
#include "store/control_block.h"
#include "base/map.h"
#include "ipc/worker_messages.h"

typedef struct rp_topic {
    uint32_t flags; /* RP_TOPIC_* */
    int32_t perm;
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    uint32_t queue_count; /* max of both */
    rp_queue *queues[];   /* entries of the control block by queue id; NULL where the block was full */
} rp_topic;

enum { RP_PERM_WRITE = 2, RP_PERM_READ = 4, RP_QUEUE_NUMS_MAX = 65536 };

/* Apply one TOPIC record. RP_OK, RP_INVALID (the record is not one), RP_NO_MEMORY. */
rp_status rp_topics_apply(rp_map *topics, rp_control_block *block, const uint8_t *data, uint32_t size);

/* The queue of `topic` that a send goes to: `wanted`, or one of the writable ones by `random` (state, moved on) where
 * that is negative; *queue_id says which. NULL if the slow path must decide. */
rp_queue *rp_topic_choose(const rp_topic *topic, int32_t wanted, uint64_t *random, int32_t *queue_id);

typedef struct rp_group {
    uint32_t flags; /* RP_GROUP_* */
    int32_t broker_id;
    int32_t which_broker_when_slow;
} rp_group;

/* Enter, replace or remove one group from a GROUP record. RP_OK, RP_INVALID, RP_NO_MEMORY (unchanged). */
rp_status rp_groups_apply(rp_map *groups, const uint8_t *data, uint32_t size);
#endif
