#ifndef ROCKETPY_SERVING_H
#define ROCKETPY_SERVING_H
/* What a worker is at, where the supervisor finds it when the worker dies of itself: its successor then passes over that
 * request and has its connection closed (rocketpy/reactor/poison.py). One relaxed store per request. C only. */
#include "atomic.h"
#include "ring.h"
#include "stage.h"

static inline void rp_serving(rp_worker *worker, uint64_t connection) {
    __atomic_store_n(&worker->serving, connection, __ATOMIC_RELAXED);
}

/* `record` begins with an rp_origin, if it is long enough; else nobody is served. */
static inline void rp_serving_record(rp_worker *worker, const uint8_t *record, uint32_t size) {
    rp_serving(worker, size >= sizeof(rp_origin) ? ((const rp_origin *)record)->connection : 0);
}
#endif
