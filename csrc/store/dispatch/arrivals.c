/* See arrivals.h. */
#include "store/dispatch/arrivals.h"

#include "base/atomic.h"
#include "ipc/worker_messages.h"

static rp_ring_writer *owner_of(const rp_arrivals *arrivals, const rp_queue *queue) {
    if (arrivals->pull_count == 1) return arrivals->pulls[0];
    const uint8_t *topic;
    uint32_t size = rp_control_topic(arrivals->block, queue->topic, &topic);
    return arrivals->pulls[rp_queue_owner(topic, size, (int32_t)queue->queue_id, arrivals->pull_count)];
}

rp_status rp_arrivals_send(rp_arrivals *arrivals) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < arrivals->count; i++) {
        rp_queue *queue = rp_control_queue(arrivals->block, arrivals->queues[i]);
        rp_ring_writer *pull = owner_of(arrivals, queue);
        rp_msg_arrival *arrival = (rp_msg_arrival *)rp_ring_reserve(pull, sizeof *arrival);
        if (arrival) {
            *arrival = (rp_msg_arrival){.queue = arrivals->queues[i]};
            rp_ring_commit(pull, sizeof *arrival, RP_MSG_ARRIVAL);
        } else if (arrivals->pull_count == 1) {
            arrivals->queues[left++] = arrivals->queues[i];
        } else {
            rp_store_release32(&queue->watched, 1);
        }
    }
    arrivals->count = left;
    for (uint32_t i = 0; i < arrivals->pull_count; i++) rp_ring_wake(arrivals->pulls[i]);
    return left ? RP_FULL : RP_OK;
}
