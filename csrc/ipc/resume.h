#ifndef ROCKETPY_RESUME_H
#define ROCKETPY_RESUME_H
/* Where a restarted worker goes on: after the messages that the resume points in its block show as processed. C only.
 *
 * Short: inline code that codecs and the send worker share. */
#include "base/atomic.h"
#include "ipc/ring.h"
#include "ipc/worker.h"

/* Skip, per input, the messages that the previous process has handled: what came before a resume point is done when
 * `reached` (the position that an output has come to) is not below the point's. Clear the points after use: otherwise
 * later output could mark a request done that has not been processed. */
static inline void rp_resume(rp_worker *worker, rp_ring_reader **inputs, uint32_t count,
                             uint64_t (*reached)(void *context, uint32_t output), void *context) {
    for (uint32_t i = 0; i < count && i < RP_RESUME_POINTS_MAX; i++) {
        if (reached(context, worker->resume_points[i].output) >= worker->resume_points[i].output_position)
            rp_ring_skip_to(inputs[i], worker->resume_points[i].source_head);
        rp_store_release(&worker->resume_points[i].source_head, 0);
    }
}

/* The input's current message is done once `output` has reached `position`. Before the output is published: it proves
 * the message done. */
static inline void rp_resume_set(rp_worker *worker, rp_ring_reader *const *inputs, uint32_t input, uint32_t output,
                                 uint64_t position) {
    if (input >= RP_RESUME_POINTS_MAX) return;
    worker->resume_points[input].output = output;
    worker->resume_points[input].output_position = position;
    rp_store_release(&worker->resume_points[input].source_head, rp_ring_head_after(inputs[input]));
}
#endif
