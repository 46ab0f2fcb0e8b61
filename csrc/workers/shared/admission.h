#ifndef ROCKETPY_ADMISSION_H
#define ROCKETPY_ADMISSION_H
/* Admission control of the send worker: which requests are refused because they are too old or the worker is stalled. C
 * only.
 *
 * An append may stall for seconds, when it touches a page that the kernel cannot provide while the disk is busy.
 * Nothing else is served meanwhile. So codecs refuse new sends at once while `busy_since_ns` of the worker shows a
 * stall ([REJECTREQUEST]). Sends that arrived before the end of a stall of more than `stall_ns` are refused after it
 * ([PCBUSY_CLEAN_QUEUE]). Sends that have waited longer than `wait_ns`, for any reason, are refused as well
 * ([TIMEOUT_CLEAN_QUEUE]). Oneway sends are not refused for these reasons (docs/adr/0070). The clock is read once in
 * LOOK_EVERY requests: reading it for each would cost 2 % of the fast path. */
#include <stddef.h>
#include <stdint.h>
#include "ipc/ring.h"
#include "store/control/control_block.h"

/* The time since which a worker has been able to serve. The age of a request counts from then at the earliest, so that
 * a restart of the worker or a pause of the machine makes no request too old. */
typedef struct rp_presence {
    uint64_t since_ns;
    int has_slept;
} rp_presence;

static inline void rp_presence_begin(rp_presence *presence, uint64_t now_ns) {
    if (presence->has_slept) *presence = (rp_presence){.since_ns = now_ns};
}

/* Return the time (ns) that a request has waited while the worker was able to serve it. */
static inline uint64_t rp_presence_age(const rp_presence *presence, uint64_t received_ns, uint64_t now_ns) {
    uint64_t from = received_ns > presence->since_ns ? received_ns : presence->since_ns;
    return now_ns > from ? now_ns - from : 0;
}

typedef struct rp_admission {
    rp_worker *worker;
    rp_presence presence;
    uint64_t (*clock_ns)(void);
    uint64_t wait_ns;
    uint64_t stall_ns; /* 0: stalls are not detected */
    uint64_t now_ns;   /* of the last reading of the clock */
    uint64_t stalled_until_ns;
    uint32_t since_look;
    const rp_control *control; /* with lag_max; the caller's, who sets both */
    uint64_t lag_max;          /* bytes published and not dispatched; 0: any */
    char remark[160];
} rp_admission;

/* `clock_ns` NULL: the monotonic clock. */
void rp_admission_init(rp_admission *admission, rp_worker *worker, uint64_t (*clock_ns)(void), int64_t wait_ms,
                       int64_t stall_ms);
/* A pass begins. */
void rp_admission_begin(rp_admission *admission);
/* Before each request; 1 if the clock was read. */
int rp_admission_look(rp_admission *admission);
/* A pass ends, in which `taken` requests were served. */
void rp_admission_end(rp_admission *admission, uint32_t taken);
int rp_admission_is_too_old(const rp_admission *admission, uint64_t received_ns);
/* Return the reason why a request is to be answered SYSTEM_BUSY, valid until the next call; NULL: serve it. `waiting`:
 * how many wait. */
const char *rp_admission_refusal(rp_admission *admission, uint64_t received_ns, uint64_t waiting);
/* The same if dispatch is more than `lag_max` behind the sends: consumers would fall behind without bound. */
const char *rp_admission_lag_refusal(rp_admission *admission, uint64_t received_ns, uint64_t waiting);
/* Count the time from `received_ns` to now among the latencies of the worker's replies. */
void rp_admission_count_latency(rp_admission *admission, uint64_t received_ns);
/* Write the remark of an overloaded queue. */
const char *rp_busy_remark(char *out, uint32_t size, const char *kind, uint64_t age_ns, uint64_t waiting);

/* Codecs: whether the worker has been busy with one operation for longer than `stall_ns`. */
int rp_worker_is_stalled(const rp_worker *worker, uint64_t stall_ns, uint64_t now_ns);

/* The remark of SERVICE_NOT_AVAILABLE if the store's running flags forbid a put, or NULL. */
const char *rp_store_fault(uint32_t running_flags);
#endif
