/* Queues whose units are removed with their files. */
#include "base/atomic.h"
#include "base/crash_point.h"
#include "store/dispatch/dispatch_private.h"

/* A reader may open one of the files while they are being removed: its descriptor is then stale as well. */
static rp_status remove_files(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->generation, queue->generation + 1);
    rp_status status = rp_cq_remove(dispatch->writer, queue);
    rp_status extended = dispatch->ext ? rp_cq_ext_remove(dispatch->ext, queue) : RP_OK;
    rp_store_release(&queue->generation, queue->generation + 1);
    return status != RP_OK ? status : extended;
}

void rp_dispatch_finish_removals(rp_dispatch *dispatch) {
    for (uint32_t i = 0; i < dispatch->control->queue_count; i++) {
        rp_queue *queue = rp_control_queue(dispatch->block, i);
        int is_deleted = queue->max_offset ? rp_control_is_deleted(queue) : queue->state == RP_QUEUE_DELETED;
        if (is_deleted && queue->min_offset == queue->max_offset) remove_files(dispatch, queue);
    }
}

rp_status rp_dispatch_drop_queue(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->max_offset, 0); /* nothing can be read from here on */
    rp_store_release(&queue->min_offset, 0);
    RP_CRASH_POINT("dispatch.drop");
    return remove_files(dispatch, queue);
}

rp_status rp_dispatch_expire_queue(rp_dispatch *dispatch, rp_queue *queue) {
    rp_store_release(&queue->min_offset, queue->max_offset);
    return remove_files(dispatch, queue);
}
