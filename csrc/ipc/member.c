#include "ipc/member.h"
#include <string.h>
#include "base/atomic.h"
#include "base/shared.h"

uint64_t rp_member_order(rp_member *member, const rp_member_orders *orders) {
    uint64_t version = rp_load_acquire(&member->version);
    if (!(version & 1) && !memcmp(&member->orders, orders, sizeof *orders)) return version;
    version = rp_sequence_write(&member->version, &member->orders, orders, sizeof *orders);
    rp_full_fence(); /* orders the stores of the orders before the load of proposed_phy_offset in rp_member_confirmed */
    return version;
}

void rp_member_set_deadline(rp_member *member, uint64_t until_ns) {
    rp_store_release(&member->deadline_ns, until_ns);
    rp_full_fence(); /* orders the store of the deadline before all loads of the caller */
}

int rp_member_holds(const rp_member *member, uint64_t version) {
    rp_full_fence(); /* orders the store of proposed_phy_offset (confirm.c) before the load of the version */
    return rp_load_acquire(&member->version) == version;
}

uint64_t rp_member_confirmed(const rp_member *member, uint64_t confirmed) {
    rp_full_fence(); /* orders the stores of the orders before the load of proposed_phy_offset */
    uint64_t proposed = rp_load_acquire(&member->proposed_phy_offset);
    return proposed > confirmed ? proposed : confirmed;
}

void rp_member_see_epoch(rp_member *member, int32_t epoch) {
    int32_t newest = __atomic_load_n(&member->newest_epoch_seen, __ATOMIC_RELAXED);
    while (epoch > newest && !__atomic_compare_exchange_n(&member->newest_epoch_seen, &newest, epoch, 0,
                                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
}

void rp_member_refute_epoch(rp_member *member, int32_t seen, int32_t newest) {
    __atomic_compare_exchange_n(&member->newest_epoch_seen, &seen, newest, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void rp_member_append_failed(rp_member *member, int32_t status, uint64_t end) {
    rp_store_release(&member->append_fault_phy_offset, end);
    __atomic_store_n(&member->append_fault, status, __ATOMIC_RELEASE); /* both, with it */
}

int32_t rp_member_append_fault(const rp_member *member, uint64_t end) {
    int32_t status = __atomic_load_n(&member->append_fault, __ATOMIC_ACQUIRE);
    return rp_load_acquire(&member->append_fault_phy_offset) == end ? status : 0;
}

/* An epoch without bytes begins where the next one does: the last of those has the byte. */
int32_t rp_epochs_at(const rp_epoch *epochs, uint32_t count, uint64_t position, uint64_t *end) {
    uint32_t low = 0, high = count; /* the first that begins after the position is in [low, high] */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (epochs[middle].start <= position)
            low = middle + 1;
        else
            high = middle;
    }
    *end = low < count ? epochs[low].start : UINT64_MAX;
    return low ? epochs[low - 1].number : -1;
}
