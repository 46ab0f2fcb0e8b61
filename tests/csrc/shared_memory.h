#ifndef ROCKETPY_TESTS_SHARED_MEMORY_H
#define ROCKETPY_TESTS_SHARED_MEMORY_H
/* Worker blocks and member blocks as rocketpy/reactor/ring.py and rocketpy/failover/member_block.py make them, and the
 * removal of worker blocks and rings. */
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/shared.h"
#include "ipc/member.h"
#include "ipc/ring.h"
#include "check.h"

static inline rp_worker *create_worker(uint32_t index) {
    rp_worker *worker = rp_shared_create(sizeof *worker);
    CHECK(worker && (worker->doorbell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) >= 0);
    worker->index = index;
    return worker;
}

static inline void remove_worker(rp_worker *worker) {
    close(worker->doorbell);
    munmap(worker, sizeof *worker);
}

static inline void remove_ring(rp_ring *ring) { munmap(ring, 4096 + 2 * (size_t)rp_ring_capacity(ring)); }

static inline rp_member *create_member(void) {
    rp_member *member = rp_shared_create(sizeof *member);
    CHECK(member);
    member->orders.epoch = member->orders.following_epoch = member->newest_epoch_seen = member->opened_epoch = -1;
    member->cut_phy_offset = UINT64_MAX;
    return member;
}
#endif
