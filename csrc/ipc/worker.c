/* See worker.h.
 * Short: only sleep and wake; rocketpy/reactor/ring.py makes the blocks. */
#define _GNU_SOURCE
#include "ipc/worker.h"
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include "base/atomic.h"

void rp_worker_wake(rp_worker *worker, int force) {
    const uint64_t one = 1;

    if (!force && rp_load_acquire32(&worker->asleep) == 0) return;
    if (rp_exchange32(&worker->asleep, 0) == 0 && !force) return; /* somebody else has just rung */
    /* EAGAIN means 2^64-2 unread wake-ups: the doorbell is readable, which is sufficient. */
    while (write(worker->doorbell, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void rp_worker_prepare_sleep(rp_worker *worker) {
    rp_store_release32(&worker->asleep, 1);
    rp_full_fence(); /* orders the store of `asleep` before the caller's loads of the tails */
}

void rp_worker_sleep(rp_worker *worker, int64_t timeout_ns) {
    struct pollfd doorbell = {.fd = worker->doorbell, .events = POLLIN};
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};

    (void)ppoll(&doorbell, 1, timeout_ns < 0 ? NULL : &timeout, NULL); /* EINTR: the caller's loop looks again */
    rp_worker_end_sleep(worker);
}

void rp_worker_end_sleep(rp_worker *worker) {
    uint64_t rings;

    rp_store_release32(&worker->asleep, 0);
    while (read(worker->doorbell, &rings, sizeof rings) < 0 && errno == EINTR) {
    }
}

uint32_t rp_queue_owner(const uint8_t *topic, uint32_t topic_size, int32_t queue_id, uint32_t owners) {
    uint32_t hash = 2166136261u; /* FNV-1a: no seed, so it is the same in every process */
    if (owners <= 1) return 0;
    for (uint32_t i = 0; i < topic_size; i++) hash = (hash ^ topic[i]) * 16777619u;
    return (uint32_t)(((uint64_t)hash + (uint32_t)queue_id) % owners);
}
