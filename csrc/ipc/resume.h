#ifndef ROCKETPY_RESUME_H
#define ROCKETPY_RESUME_H
/* Where a restarted worker goes on: after the messages that the resume points in its block show as processed; and
 * the request that a worker is serving. C only.
 *
 * Short: inline code that selectors, codecs, send and pull share. */
#include "base/atomic.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

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

/* The connection whose request a worker is serving, in its worker block. If the worker crashes or hangs, the restarted
 * worker skips that request and closes its connection (rocketpy/reactor/crashed_request.py). One relaxed store per
 * request. */

static inline void rp_serving(rp_worker *worker, uint64_t connection) {
    __atomic_store_n(&worker->serving, connection, __ATOMIC_RELAXED);
}

/* `message` begins with an rp_origin; a shorter one counts as no request. */
static inline void rp_serving_message(rp_worker *worker, const uint8_t *message, uint32_t size) {
    rp_serving(worker, size >= sizeof(rp_origin) ? ((const rp_origin *)message)->connection : 0);
}
#endif
