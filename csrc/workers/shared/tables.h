#ifndef ROCKETPY_TABLES_H
#define ROCKETPY_TABLES_H
/* The topics and groups that the send and pull workers know: private copies of the manager's tables, updated by TOPIC
 * and GROUP messages. */
#include <stdint.h>
#include "base/map.h"
#include "ipc/worker_messages.h"
#include "store/control/control_block.h"

typedef struct rp_topic {
    uint32_t flags; /* RP_TOPIC_* */
    int32_t perm;
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    uint32_t queue_count; /* max of both */
    rp_queue *queues[];   /* entries of the control block by queue id; NULL if the block was full */
} rp_topic;

enum { RP_PERM_WRITE = 2, RP_PERM_READ = 4, RP_QUEUE_NUMS_MAX = 65536 };

/* Apply one TOPIC message; *restrictions counts those that take from readers what the table allowed them: the topic,
 * its read permission, or queues. RP_OK, RP_INVALID (it is malformed), RP_NO_MEMORY. */
rp_status rp_topics_apply(rp_map *topics, rp_control_block *block, const uint8_t *data, uint32_t size,
                          uint32_t *restrictions);

/* The queue of `topic` for a send: `wanted`, or if that is negative a random writable one (`random` is the generator's
 * state); *queue_id is set to it. NULL if the slow path must decide. */
rp_queue *rp_topic_choose(const rp_topic *topic, int32_t wanted, uint64_t *random, int32_t *queue_id);

typedef struct rp_group {
    uint32_t flags; /* RP_GROUP_* */
    int32_t broker_id;
    int32_t which_broker_when_slow;
} rp_group;

/* Add, replace or remove one group, from a GROUP message; *restrictions counts those that take the group away, or its
 * permission to consume. RP_OK, RP_INVALID, RP_NO_MEMORY (unchanged). */
rp_status rp_groups_apply(rp_map *groups, const uint8_t *data, uint32_t size, uint32_t *restrictions);
#endif
