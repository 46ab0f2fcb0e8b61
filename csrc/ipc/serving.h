#ifndef ROCKETPY_SERVING_H
#define ROCKETPY_SERVING_H
/* The connection whose request a worker is serving, in its worker block. If the worker crashes or hangs, the restarted
 * worker skips that request and closes its connection (rocketpy/reactor/crashed_request.py). One relaxed store per
 * request. C only.
 *
 * Short: inline code that selectors, codecs, send and pull share. */
#include "ipc/worker.h"
#include "ipc/worker_messages.h"

static inline void rp_serving(rp_worker *worker, uint64_t connection) {
    __atomic_store_n(&worker->serving, connection, __ATOMIC_RELAXED);
}

/* `message` begins with an rp_origin; a shorter one counts as no request. */
static inline void rp_serving_message(rp_worker *worker, const uint8_t *message, uint32_t size) {
    rp_serving(worker, size >= sizeof(rp_origin) ? ((const rp_origin *)message)->connection : 0);
}
#endif
