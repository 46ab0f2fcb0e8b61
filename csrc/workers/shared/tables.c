/* The queue entries are looked up once per change of the topic, so that a send or pull finds its queue by index. */
#include "workers/shared/tables.h"

#include <stdlib.h>

static rp_topic *topic_new(rp_control_block *block, const rp_msg_topic *message, const uint8_t *name) {
    int32_t nums =
        message->read_queue_nums > message->write_queue_nums ? message->read_queue_nums : message->write_queue_nums;
    uint32_t count = nums < 0 ? 0 : nums > RP_QUEUE_NUMS_MAX ? (uint32_t)RP_QUEUE_NUMS_MAX : (uint32_t)nums;
    rp_topic *topic = malloc(sizeof *topic + count * sizeof(rp_queue *));
    if (!topic) return NULL;
    topic->flags = message->flags;
    topic->perm = message->perm;
    topic->read_queue_nums = message->read_queue_nums;
    topic->write_queue_nums = message->write_queue_nums;
    topic->queue_count = count;
    for (uint32_t id = 0; id < count; id++) topic->queues[id] = rp_control_find(block, name, message->topic_size, id);
    return topic;
}

rp_status rp_topics_apply(rp_map *topics, rp_control_block *block, const uint8_t *data, uint32_t size,
                          uint32_t *restrictions) {
    const rp_msg_topic *message = (const rp_msg_topic *)data;
    if (size < sizeof *message || size - sizeof *message < message->topic_size) return RP_INVALID;
    const uint8_t *name = data + sizeof *message;
    const rp_topic *known = rp_map_get(topics, name, message->topic_size);
    int is_removed = (message->flags & RP_TABLE_REMOVE) != 0;
    if (known && (is_removed || (known->perm & RP_PERM_READ && !(message->perm & RP_PERM_READ)) ||
                  message->read_queue_nums < known->read_queue_nums))
        ++*restrictions;
    if (is_removed) {
        free(rp_map_remove(topics, name, message->topic_size));
        return RP_OK;
    }
    rp_topic *topic = topic_new(block, message, name);
    int failed = !topic;
    if (topic) free(rp_map_put(topics, name, message->topic_size, topic, &failed));
    if (failed) free(topic);
    return failed ? RP_NO_MEMORY : RP_OK;
}

rp_queue *rp_topic_choose(const rp_topic *topic, int32_t wanted, uint64_t *random, int32_t *queue_id) {
    *queue_id = wanted;
    if (wanted < 0) {
        if (topic->write_queue_nums <= 0) return NULL;
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *queue_id = (int32_t)(*random % (uint64_t)topic->write_queue_nums);
    }
    return (uint32_t)*queue_id < topic->queue_count ? topic->queues[*queue_id] : NULL;
}

rp_status rp_groups_apply(rp_map *groups, const uint8_t *data, uint32_t size, uint32_t *restrictions) {
    const rp_msg_group *message = (const rp_msg_group *)data;
    if (size < sizeof *message || size - sizeof *message < message->group_size) return RP_INVALID;
    const rp_group *known = rp_map_get(groups, message + 1, message->group_size);
    int is_removed = (message->flags & RP_TABLE_REMOVE) != 0;
    if (known &&
        (is_removed || (known->flags & RP_GROUP_CONSUME_ENABLE && !(message->flags & RP_GROUP_CONSUME_ENABLE))))
        ++*restrictions;
    if (is_removed) {
        free(rp_map_remove(groups, message + 1, message->group_size));
        return RP_OK;
    }
    rp_group *group = malloc(sizeof *group);
    int failed = !group;
    if (group) {
        *group = (rp_group){message->flags, message->broker_id, message->which_broker_when_slow};
        free(rp_map_put(groups, message + 1, message->group_size, group, &failed));
    }
    if (failed) free(group);
    return failed ? RP_NO_MEMORY : RP_OK;
}
