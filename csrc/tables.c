/* The queue entries are looked up once per change of the topic, so that a send or pull finds its queue by index. */
#include "tables.h"

#include <stdlib.h>

static rp_topic *topic_new(rp_control_block *block, const rp_stage_topic *stage, const uint8_t *name) {
    int32_t nums = stage->read_queue_nums > stage->write_queue_nums ? stage->read_queue_nums : stage->write_queue_nums;
    uint32_t count = nums < 0 ? 0 : nums > RP_QUEUE_NUMS_MAX ? (uint32_t)RP_QUEUE_NUMS_MAX : (uint32_t)nums;
    rp_topic *topic = malloc(sizeof *topic + count * sizeof(rp_queue *));
    if (!topic) return NULL;
    topic->flags = stage->flags;
    topic->perm = stage->perm;
    topic->read_queue_nums = stage->read_queue_nums;
    topic->write_queue_nums = stage->write_queue_nums;
    topic->queue_count = count;
    for (uint32_t id = 0; id < count; id++) topic->queues[id] = rp_control_find(block, name, stage->topic_size, id);
    return topic;
}

rp_status rp_topics_apply(rp_map *topics, rp_control_block *block, const uint8_t *data, uint32_t size) {
    const rp_stage_topic *stage = (const rp_stage_topic *)data;
    if (size < sizeof *stage || size - sizeof *stage < stage->topic_size) return RP_INVALID;
    const uint8_t *name = data + sizeof *stage;
    if (stage->flags & RP_TABLE_REMOVE) {
        free(rp_map_remove(topics, name, stage->topic_size));
        return RP_OK;
    }
    rp_topic *topic = topic_new(block, stage, name);
    int failed = !topic;
    if (topic) free(rp_map_put(topics, name, stage->topic_size, topic, &failed));
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

rp_status rp_groups_apply(rp_map *groups, const uint8_t *data, uint32_t size) {
    const rp_stage_group *stage = (const rp_stage_group *)data;
    if (size < sizeof *stage || size - sizeof *stage < stage->group_size) return RP_INVALID;
    if (stage->flags & RP_TABLE_REMOVE) {
        free(rp_map_remove(groups, stage + 1, stage->group_size));
        return RP_OK;
    }
    rp_group *group = malloc(sizeof *group);
    int failed = !group;
    if (group) {
        *group = (rp_group){stage->flags, stage->broker_id, stage->which_broker_when_slow};
        free(rp_map_put(groups, stage + 1, stage->group_size, group, &failed));
    }
    if (failed) free(group);
    return failed ? RP_NO_MEMORY : RP_OK;
}
