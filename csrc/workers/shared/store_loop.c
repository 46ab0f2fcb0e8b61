#define _GNU_SOURCE
#include "workers/shared/store_loop.h"
#include <poll.h>
#include "base/atomic.h"
#include "base/clock.h"
#include "ipc/worker_counters.h"

enum { BUDGET = 4 << 20 /* bytes of log between two looks at the rings */ };
static const int64_t WORK_MAX_NS = 500000000; /* from a record to the return: the caller sees that the log grows */
/* While messages come in, the worker polls every millisecond and is not marked asleep: the send worker need not wake it
 * for each message, which would cost both some 15 microseconds. A suspended pull does not wait for the end of such a
 * short sleep: the send worker rings the doorbell all the same if the message's queue is watched, and so does the pull
 * worker if the message was stored before the queue was watched. */
enum { SHORT_SLEEP_MS = 1 };
static const int64_t SHORT_SLEEPS_AFTER_WORK_NS = 50000000;

static void show_counts(const rp_dispatch *dispatch, const rp_flush *flush, rp_worker *worker) {
    rp_dispatch_counts counts;
    rp_flush_counts flush_counts;
    rp_dispatch_read_counts(dispatch, &counts);
    __atomic_store_n(&worker->counters[RP_COUNT_DISPATCHED], counts.records, __ATOMIC_RELAXED);
    __atomic_store_n(&worker->counters[RP_COUNT_INDEXED], counts.keys, __ATOMIC_RELAXED);
    __atomic_store_n(&worker->counters[RP_COUNT_KEYS_CUT_SHORT], counts.cut_short, __ATOMIC_RELAXED);
    if (!flush) return;
    rp_flush_read_counts(flush, &flush_counts);
    __atomic_store_n(&worker->counters[RP_COUNT_FLUSHES], flush_counts.flushes, __ATOMIC_RELAXED);
    __atomic_store_n(&worker->counters[RP_COUNT_FLUSH_NS], flush_counts.flush_ns, __ATOMIC_RELAXED);
}

static int has_request(const rp_worker *worker, const rp_ring_reader *manager) {
    return rp_load_acquire32(&worker->stop) || (manager && !rp_ring_is_empty(manager));
}

/* What was published since dispatch stood here may have to be brought to the disk. Records that wait for more than this
 * broker (stops_at_confirmed) are flushed meanwhile. */
static int needs_flush(const rp_control *control) {
    const uint64_t *done = control->stops_at_confirmed ? &control->durable_phy_offset : &control->dispatched_phy_offset;
    return rp_load_acquire(done) < rp_load_acquire(&control->published_phy_offset);
}

static void sleep_until(rp_worker *worker, int64_t until_ns) {
    int64_t left_ns = until_ns - (int64_t)rp_now_ns();
    rp_add(&worker->counters[RP_COUNT_SLEEPS], 1);
    rp_worker_sleep(worker, left_ns < 0 ? 0 : left_ns);
}

static void sleep_briefly(rp_worker *worker) {
    struct pollfd bell = {.fd = worker->doorbell, .events = POLLIN};
    rp_add(&worker->counters[RP_COUNT_SLEEPS], 1);
    if (poll(&bell, 1, SHORT_SLEEP_MS) > 0) rp_worker_end_sleep(worker);
}

rp_status rp_store_loop(rp_dispatch *dispatch, rp_control *control, rp_worker *worker, rp_ring_reader *manager,
                        rp_flush *flush, int wakes_flush, rp_timers *timers, int64_t timeout_ns) {
    int64_t until_ns = (int64_t)rp_now_ns() + timeout_ns, worked_ns = -SHORT_SLEEPS_AFTER_WORK_NS;
    uint64_t seen = rp_load_acquire(&control->published_phy_offset);
    rp_dispatch_set_watchers(dispatch, &worker->heartbeat_ns, wakes_flush ? flush : NULL);
    for (;;) {
        int64_t now = (int64_t)rp_now_ns();
        uint64_t published = rp_load_acquire(&control->published_phy_offset);
        if (rp_dispatch_is_behind(dispatch)) worked_ns = now;
        if ((published != seen || worked_ns == now) && now + WORK_MAX_NS < until_ns) until_ns = now + WORK_MAX_NS;
        seen = published;
        rp_store_release(&worker->heartbeat_ns, (uint64_t)now);
        rp_add(&worker->counters[RP_COUNT_LOOPS], 1);
        if (rp_load_acquire32(&worker->stop)) return RP_STOPPED;
        if (has_request(worker, manager)) return RP_OK;
        if (now >= until_ns) return RP_EMPTY;
        if (wakes_flush && flush && needs_flush(control)) rp_flush_wake(flush);
        uint64_t dispatched = rp_load_acquire(&control->dispatched_phy_offset);
        rp_status status = rp_dispatch_run(dispatch, BUDGET);
        if (timers && rp_load_acquire(&control->dispatched_phy_offset) != dispatched) rp_timers_wake(timers);
        show_counts(dispatch, flush, worker);
        if (status == RP_OK) continue;
        if (status != RP_EMPTY && status != RP_FULL) return status;
        if (status == RP_EMPTY && !wakes_flush && now - worked_ns < SHORT_SLEEPS_AFTER_WORK_NS) {
            sleep_briefly(worker);
            continue;
        }
        rp_worker_prepare_sleep(worker);
        /* A full ring rings this doorbell when there is room: being behind is no reason to stay awake then. */
        if (has_request(worker, manager) || (status == RP_EMPTY && rp_dispatch_is_behind(dispatch)))
            rp_worker_end_sleep(worker);
        else
            sleep_until(worker, until_ns);
    }
}
