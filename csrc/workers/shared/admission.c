#include "workers/shared/admission.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "ipc/worker_messages.h"

enum { LOOK_EVERY = 8 /* requests */ };
static const uint64_t NS_PER_MS = 1000000;

void rp_admission_init(rp_admission *admission, rp_worker *worker, uint64_t (*clock_ns)(void), int64_t wait_ms,
                       int64_t stall_ms) {
    *admission = (rp_admission){.worker = worker, .clock_ns = clock_ns ? clock_ns : rp_now_ns};
    admission->wait_ns = wait_ms > 0 ? (uint64_t)wait_ms * NS_PER_MS : 0;
    admission->stall_ns = stall_ms > 0 ? (uint64_t)stall_ms * NS_PER_MS : 0;
    admission->now_ns = admission->clock_ns();
}

static void look(rp_admission *admission) {
    uint64_t now = admission->clock_ns();
    if (admission->stall_ns && now - admission->now_ns > admission->stall_ns) admission->stalled_until_ns = now;
    admission->now_ns = now;
    admission->since_look = 0;
}

void rp_admission_begin(rp_admission *admission) {
    admission->now_ns = admission->clock_ns(); /* the time asleep is no stall */
    rp_presence_begin(&admission->presence, admission->now_ns);
    admission->since_look = 0;
    rp_store_release(&admission->worker->busy_since_ns, admission->now_ns);
}

int rp_admission_look(rp_admission *admission) {
    if (++admission->since_look < LOOK_EVERY) return 0;
    look(admission);
    rp_store_release(&admission->worker->busy_since_ns, admission->now_ns);
    return 1;
}

void rp_admission_end(rp_admission *admission, uint32_t taken) {
    if (taken) look(admission);
    rp_store_release(&admission->worker->busy_since_ns, 0);
}

int rp_admission_is_too_old(const rp_admission *admission, uint64_t received_ns) {
    return rp_presence_age(&admission->presence, received_ns, admission->now_ns) > admission->wait_ns;
}

const char *rp_busy_remark(char *out, uint32_t size, const char *kind, uint64_t age_ns, uint64_t waiting) {
    snprintf(out, size,
             "[%s]broker busy, start flow control for a while, period in queue: %" PRIu64 "ms, size of queue: %" PRIu64,
             kind, age_ns / NS_PER_MS, waiting);
    return out;
}

const char *rp_admission_refusal(rp_admission *admission, uint64_t received_ns, uint64_t waiting) {
    const char *kind = received_ns < admission->stalled_until_ns         ? "PCBUSY_CLEAN_QUEUE"
                       : rp_admission_is_too_old(admission, received_ns) ? "TIMEOUT_CLEAN_QUEUE"
                                                                         : NULL;
    uint64_t age_ns = rp_presence_age(&admission->presence, received_ns, admission->now_ns);
    return kind ? rp_busy_remark(admission->remark, sizeof admission->remark, kind, age_ns, waiting) : NULL;
}

const char *rp_admission_lag_refusal(rp_admission *admission, uint64_t received_ns, uint64_t waiting) {
    if (!admission->lag_max) return NULL;
    uint64_t published = rp_load_acquire(&admission->control->published_phy_offset);
    uint64_t dispatched = rp_load_acquire(&admission->control->dispatched_phy_offset);
    if (published <= dispatched + admission->lag_max) return NULL;
    uint64_t age_ns = admission->now_ns > received_ns ? admission->now_ns - received_ns : 0;
    return rp_busy_remark(admission->remark, sizeof admission->remark, "PCBUSY_CLEAN_QUEUE", age_ns, waiting);
}

int rp_worker_is_stalled(const rp_worker *worker, uint64_t stall_ns, uint64_t now_ns) {
    uint64_t since = rp_load_acquire(&worker->busy_since_ns);
    return since && stall_ns && now_ns > since + stall_ns;
}

const char *rp_store_fault(uint32_t running_flags) {
    if (running_flags & RP_FLAG_DISK_FULL)
        return "service not available now: the disk is full; free space or shorten fileReservedTime";
    if (running_flags & RP_FLAG_NOT_WRITEABLE)
        return "service not available now: the CommitLog cannot be brought to the disk; see the log of the broker";
    if (running_flags & (RP_FLAG_CONSUME_QUEUE_FAULT | RP_FLAG_INDEX_FAULT))
        return "service not available now: consume queues or index cannot be written; see the log of the broker";
    return NULL;
}

void rp_admission_count_latency(rp_admission *admission, uint64_t received_ns) {
    uint64_t us = admission->now_ns > received_ns ? (admission->now_ns - received_ns) / 1000 : 0;
    uint32_t bucket = us <= 1 ? 0 : 64 - (uint32_t)__builtin_clzll(us - 1);
    if (bucket >= RP_COUNT_PUT_LATENCY_BUCKETS) bucket = RP_COUNT_PUT_LATENCY_BUCKETS - 1;
    rp_add(&admission->worker->counters[RP_COUNT_PUT_LATENCY + bucket], 1);
    rp_add(&admission->worker->counters[RP_COUNT_PUT_LATENCY_SUM], us);
}
