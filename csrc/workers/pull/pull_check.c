/* Checks a pull against the tables of the pull worker. */
#include <string.h>

#include "workers/pull/pull_private.h"

/* What the pull itself says that it selects; NULL if it is no tag expression, and no known SQL92 expression. */
static const rp_tags *tags_of_pull(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names) {
    const uint8_t *subscription = names + request->group_size + request->topic_size;
    const uint8_t *type = subscription + request->subscription_size;
    if (request->expression_type_size == 5 && memcmp(type, "SQL92", 5) == 0)
        return rp_expressions_find(&pull->expressions, subscription, request->subscription_size);
    if (request->expression_type_size && !(request->expression_type_size == 3 && memcmp(type, "TAG", 3) == 0))
        return NULL;
    rp_status status = rp_tags_parse(subscription, request->subscription_size, pull->parsed_hashes, &pull->parsed);
    pull->units += pull->parsed.count * PULL_UNITS_OF_A_TAG;
    return status == RP_OK ? &pull->parsed : NULL;
}

/* What its group has subscribed to; NULL if that cannot be evaluated, or is not (yet) in the subscription table. */
static const rp_tags *tags_of_group(const rp_pull *pull, const pull_checked *pulled) {
    const rp_msg_pull *request = pulled->request;
    uint32_t flags = pulled->group->flags;
    if (!(flags & RP_GROUP_ONLINE) || (flags & RP_GROUP_BROADCASTING && !(flags & RP_GROUP_BROADCAST_ENABLE)))
        return NULL;
    const rp_tags *tags = rp_subscriptions_find(&pull->subscriptions, pulled->names, request->group_size,
                                                pulled->names + request->group_size, request->topic_size);
    return tags && !(tags->flags & RP_SUBSCRIPTION_SLOW) && tags->sub_version >= request->sub_version ? tags : NULL;
}

static rp_queue *queue_of(const rp_topic *topic, int32_t id) {
    return id >= 0 && id < topic->read_queue_nums && (uint32_t)id < topic->queue_count ? topic->queues[id] : NULL;
}

static int lacks(pull_checked *pulled, const char *fault) {
    pulled->fault = fault;
    return 0;
}

int pull_check(rp_pull *pull, const rp_msg_pull *request, const uint8_t *names, const rp_tags *tags,
               pull_checked *pulled) {
    *pulled = (pull_checked){.request = request, .names = names};
    if (!(pull->permission & RP_PERM_READ)) return lacks(pulled, "brokerPermission has no read; pull again");
    pulled->group = rp_map_get(&pull->groups, names, request->group_size);
    if (!pulled->group || !(pulled->group->flags & RP_GROUP_CONSUME_ENABLE))
        return lacks(pulled, "the group was removed or may not consume; pull again");
    const rp_topic *topic = rp_map_get(&pull->topics, names + request->group_size, request->topic_size);
    if (!topic || !(topic->perm & RP_PERM_READ))
        return lacks(pulled, "the topic was removed or may not be read; pull again");
    pulled->queue = queue_of(topic, request->queue_id);
    if (!pulled->queue) return lacks(pulled, "the topic has no such queue; pull again");
    pulled->tags = !(request->sys_flag & PULL_FLAG_SUBSCRIPTION) ? tags_of_group(pull, pulled)
                   : tags                                        ? tags
                                                                 : tags_of_pull(pull, request, names);
    if (pulled->tags) return 1;
    return lacks(pulled, request->sys_flag & PULL_FLAG_SUBSCRIPTION
                             ? "the filter of this pull cannot be evaluated"
                             : "the group is offline, or its filter cannot be evaluated; pull again");
}
