/* Writes the lines of the request log to the manager's ring.
 *
 * Short: one message, of send and pull workers alike. */
#include "workers/shared/request_log.h"

#include <string.h>

static uint32_t cut(uint32_t size) { return size < RP_SERVED_NAME_MAX ? size : RP_SERVED_NAME_MAX; }

void rp_served_fill(rp_served *served, const rp_msg_served *head, const uint8_t *group, const uint8_t *topic) {
    served->head = *head;
    served->head.group_size = cut(head->group_size);
    served->head.topic_size = cut(head->topic_size);
    memcpy(served->names, group, served->head.group_size);
    memcpy(served->names + served->head.group_size, topic, served->head.topic_size);
}

void rp_request_log_tell(rp_request_log *log, rp_served *served, int32_t answer) {
    rp_msg_served *head = &served->head;
    head->answer = answer;
    head->answered_ns = log->clock_ns();
    rp_span span = {served, (uint32_t)sizeof *head + head->group_size + head->topic_size};
    if (rp_ring_depth(log->ring) > RP_SERVED_DEPTH_MAX || rp_ring_write(log->manager, RP_MSG_SERVED, &span, 1) != RP_OK)
        rp_request_log_drop(log);
}
