#ifndef ROCKETPY_REQUEST_LOG_H
#define ROCKETPY_REQUEST_LOG_H
/* The request log of a worker (requestLogSample): of every Nth request that the worker answers it tells the manager,
 * which writes the line. Requests go first: while the manager's ring holds more than a little, a line is dropped and
 * counted, and the manager writes lines after its other work. So nothing waits for the log, and without it an
 * answer costs one branch. A line wakes a manager that naps (not RP_RING_UNHURRIED): to write it costs more than the
 * wake-up, and meanwhile others would be dropped. C only. */
#include "base/atomic.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"

enum {
    RP_SERVED_NAME_MAX = 127,     /* bytes of a name; the rest is cut off */
    RP_SERVED_DEPTH_MAX = 1 << 13 /* bytes in the manager's ring beyond which lines are dropped */
};

/* A SERVED message. */
typedef struct rp_served {
    rp_msg_served head;
    uint8_t names[2 * RP_SERVED_NAME_MAX];
} rp_served;

typedef struct rp_request_log {
    rp_worker *worker; /* counts what is dropped */
    rp_ring_writer *manager;
    const rp_ring *ring; /* of `manager` */
    uint64_t (*clock_ns)(void);
    uint32_t every; /* requestLogSample; 0: nothing is logged */
    uint32_t count; /* answers since the last of the sample */
} rp_request_log;

/* 1 if the request that is answered now has a line. */
static inline int rp_request_log_takes(rp_request_log *log) {
    if (!log->every || ++log->count < log->every) return 0;
    log->count = 0;
    return 1;
}
/* A line is left out. */
static inline void rp_request_log_drop(rp_request_log *log) {
    rp_add(&log->worker->counters[RP_COUNT_REQUEST_LOG_DROPPED], 1);
}
/* Fill `served`: `head`, and the names with the sizes that it says. */
void rp_served_fill(rp_served *served, const rp_msg_served *head, const uint8_t *group, const uint8_t *topic);
void rp_request_log_tell(rp_request_log *log, rp_served *served, int32_t answer);
/* The request has been answered with code `answer`. `served` NULL: it has no line. */
static inline void rp_request_log_write(rp_request_log *log, rp_served *served, int32_t answer) {
    if (served) rp_request_log_tell(log, served, answer);
}
#endif
