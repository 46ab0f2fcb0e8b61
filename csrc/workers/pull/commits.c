/* See commits.h. */
#include "workers/pull/commits.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 1024 };

int rp_commits_init(rp_commits *commits) {
    commits->flushed_ns = 0;
    return rp_map_init(&commits->pending, 64);
}

void rp_commits_destroy(rp_commits *commits) { rp_map_destroy(&commits->pending, free); }

rp_status rp_commits_add(rp_commits *commits, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                         uint32_t topic_size, int32_t queue_id, int64_t offset, uint64_t received_ns) {
    uint32_t size = (uint32_t)sizeof(rp_msg_commit_offset) + group_size + topic_size;
    uint8_t key[KEY_MAX];
    if ((uint64_t)group_size + topic_size + 5 > KEY_MAX) return RP_INVALID;
    memcpy(key, &queue_id, 4);
    memcpy(key + 4, group, group_size);
    key[4 + group_size] = 0;
    memcpy(key + 5 + group_size, topic, topic_size);
    uint32_t key_size = 5 + group_size + topic_size;
    rp_msg_commit_offset *known = rp_map_get(&commits->pending, key, key_size);
    if (known) {
        known->offset = offset;
        known->received_ns = received_ns;
        return RP_OK;
    }
    rp_msg_commit_offset *message = malloc(size);
    int failed = !message;
    if (message) {
        *message = (rp_msg_commit_offset){.offset = offset,
                                          .queue_id = queue_id,
                                          .group_size = group_size,
                                          .topic_size = topic_size,
                                          .received_ns = received_ns};
        memcpy((uint8_t *)(message + 1), group, group_size);
        memcpy((uint8_t *)(message + 1) + group_size, topic, topic_size);
        rp_map_put(&commits->pending, key, key_size, message, &failed);
    }
    if (failed) free(message);
    return failed ? RP_NO_MEMORY : RP_OK;
}

rp_status rp_commits_flush(rp_commits *commits, rp_ring_writer *manager, uint64_t now_ns) {
    commits->flushed_ns = now_ns;
    if (!commits->pending.live) return RP_OK;
    for (uint64_t i = 0; i <= commits->pending.mask; i++) {
        rp_map_entry *entry = &commits->pending.entries[i];
        if (!entry->value) continue;
        rp_msg_commit_offset *message = entry->value;
        rp_span span = {message, (uint32_t)sizeof *message + message->group_size + message->topic_size};
        rp_status status = rp_ring_write(manager, RP_MSG_COMMIT_OFFSET, &span, 1);
        if (status != RP_OK) return status;
        free(rp_map_remove(&commits->pending, entry->key, entry->key_size));
    }
    return RP_OK;
}
