/* One slot per level: the last confirmed delivery, and the one that is valid once the log is published up to `end`. The
 * next mark confirms the one before: its record is published, because the single writer stores one at a time.
 * Short: the send worker marks deliveries, and the manager reads the marks. */
#include "store/timers/delivery_marks.h"

#include "base/atomic.h"

_Static_assert(sizeof(rp_delivery_slot) == 64, "one cache line per level");
typedef rp_delivery_place place;
typedef rp_delivery_slot slot;

static slot *slot_of(const rp_delivery_marks *marks, uint32_t level) {
    return level - 1u < marks->level_max ? (slot *)&marks->slots[level - 1] : NULL;
}

static rp_delivery_tries *tries_of(rp_delivery_marks *marks, uint32_t level) {
    if (level == RP_DELIVERY_OF_TIMER) return marks ? &marks->timer : NULL;
    slot *slot = slot_of(marks, level);
    return slot ? &slot->tries : NULL;
}

void rp_delivery_marks_open(rp_delivery_marks *marks, uint64_t published_phy_offset, int has_crashed) {
    if (!has_crashed) rp_store_release(&marks->timer.count, 0);
    for (uint32_t level = 1; level <= marks->level_max; level++) {
        slot *slot = slot_of(marks, level);
        if (slot->end && slot->end <= published_phy_offset) slot->sure = slot->next;
        rp_store_release(&slot->end, 0);
        if (!has_crashed) rp_store_release(&slot->tries.count, 0);
    }
}

int rp_delivery_marks_has(const rp_delivery_marks *marks, const rp_delivery *delivery) {
    const slot *slot = slot_of(marks, delivery->level);
    if (!slot) return 0;
    const place *last = slot->end ? &slot->next : &slot->sure;
    /* A damaged unit may name another place of the log: only with both offsets is a message known to be delivered. */
    return delivery->phy_offset < last->phy_offset && delivery->queue_offset <= last->queue_offset;
}

void rp_delivery_marks_mark(rp_delivery_marks *marks, const rp_delivery *delivery, uint64_t end_phy_offset) {
    slot *slot = slot_of(marks, delivery->level);
    if (!slot) return;
    if (slot->end) slot->sure = slot->next;
    rp_store_release(&slot->end, 0); /* from here on the one before is sure, whatever becomes of us */
    rp_full_fence(); /* orders the store of end 0 before the stores of `next` */
    slot->next = (place){delivery->phy_offset + 1, delivery->queue_offset};
    rp_store_release(&slot->end, end_phy_offset);
}

int rp_delivery_marks_begin(rp_delivery_marks *marks, const rp_delivery *delivery) {
    rp_delivery_tries *tries = tries_of(marks, delivery->level);
    if (!tries) return 1;
    if (tries->of != delivery->phy_offset + 1) {
        rp_store_release(&tries->count, 0);
        rp_store_release(&tries->of, delivery->phy_offset + 1);
    }
    if (tries->count >= RP_DELIVERY_TRIES_MAX) return 0;
    rp_store_release(&tries->count, tries->count + 1);
    return 1;
}

void rp_delivery_marks_end(rp_delivery_marks *marks, const rp_delivery *delivery) {
    rp_delivery_tries *tries = tries_of(marks, delivery->level);
    if (tries) rp_store_release(&tries->count, 0);
}

int rp_delivery_marks_last(const rp_delivery_marks *marks, uint32_t level, uint64_t published_phy_offset,
                           rp_delivery *last) {
    const slot *slot = slot_of(marks, level);
    if (!slot) return 0;
    uint64_t end = rp_load_acquire(&slot->end);
    place found = end && end <= published_phy_offset ? slot->next : slot->sure;
    if (!found.phy_offset) return 0;
    *last = (rp_delivery){.phy_offset = found.phy_offset - 1, .queue_offset = found.queue_offset, .level = level};
    return 1;
}
