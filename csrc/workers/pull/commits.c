/* A list in the order of arrival, over a table by queue and group.
 * Short: pull_serve.c is long without it, and its driver needs no pull worker. */
#include "workers/pull/commits.h"
#include <stddef.h>
#include <stdlib.h>

_Static_assert(offsetof(rp_commit, message) + sizeof(rp_msg_commit_offset) == sizeof(rp_commit),
               "the names follow the message");

static rp_queue_names names_of(const rp_msg_commit_offset *offset, const uint8_t *names) {
    return (rp_queue_names){offset->queue_id, offset->group_size, offset->topic_size, names};
}

int rp_commits_init(rp_commits *commits) {
    *commits = (rp_commits){0};
    return rp_map_init(&commits->by_queue, 64);
}

void rp_commits_destroy(rp_commits *commits) { rp_map_destroy(&commits->by_queue, free); }

int rp_commits_add(rp_commits *commits, const rp_msg_commit_offset *offset, const uint8_t *names) {
    rp_queue_names of = names_of(offset, names);
    uint64_t before = commits->by_queue.live;
    rp_commit *commit = rp_message_of(&commits->by_queue, &of, sizeof *commit, RP_COMMITS_MAX);
    if (!commit) return 0;
    commit->message = *offset;
    if (commits->by_queue.live == before) return 1;
    *(commits->first ? &commits->last->next : &commits->first) = commit;
    commits->last = commit;
    return 1;
}

void rp_commits_flush(rp_commits *commits, rp_ring_writer *manager, const rp_ring *ring, int all) {
    rp_commit *commit;
    for (uint32_t written = 0; (commit = commits->first); written++) {
        if (!all && written >= RP_COMMITS_LEAST && rp_ring_depth(ring) >= RP_TRAFFIC_DEPTH_MAX) break;
        const rp_msg_commit_offset *message = &commit->message;
        rp_queue_names of = names_of(message, (const uint8_t *)(message + 1));
        rp_span span = {message, (uint32_t)sizeof *message + message->group_size + message->topic_size};
        if (rp_ring_write(manager, RP_MSG_COMMIT_OFFSET, &span, 1) != RP_OK) break;
        commits->first = commit->next;
        free(rp_message_remove(&commits->by_queue, &of));
    }
    rp_map_shrink(&commits->by_queue); /* after a flood */
}
