/* One slot per level: the last confirmed delivery, and the one that is valid once the log is published up to `end`. The
 * next mark confirms the one before: its record is published, because the single writer stores one at a time.
 */
#define _GNU_SOURCE
#include "store/delivered.h"

#include <stddef.h>
#include <sys/mman.h>

#include "base/atomic.h"

#define MAGIC 0x31305645444c4552ull /* "RELDEV01", little-endian */
enum { LAYOUT_VERSION = 1 };

typedef struct place {
    uint64_t phy_offset; /* + 1: 0 says that there is none */
    uint64_t queue_offset;
} place;

typedef struct slot {
    place sure;
    place next;
    uint64_t end; /* of the record that `next` stands for; 0: there is none */
    uint64_t reserved[3];
} slot;
_Static_assert(sizeof(slot) == 64, "one cache line per level");

struct rp_delivered {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t level_max;
    uint64_t size; /* of the mapping */
    uint64_t reserved[5];
    slot slots[]; /* of level 1, 2, ... */
};

rp_delivered *rp_delivered_create(uint32_t level_max) {
    uint64_t size = sizeof(rp_delivered) + (uint64_t)level_max * sizeof(slot);
    rp_delivered *delivered = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (delivered == MAP_FAILED) return NULL;
    delivered->layout_version = LAYOUT_VERSION;
    delivered->level_max = level_max;
    delivered->size = size;
    delivered->magic = MAGIC;
    return delivered;
}

void rp_delivered_destroy(rp_delivered *delivered) {
    if (delivered) munmap(delivered, delivered->size);
}

static slot *slot_of(const rp_delivered *delivered, uint32_t level) {
    return level - 1u < delivered->level_max ? (slot *)&delivered->slots[level - 1] : NULL;
}

rp_status rp_delivered_open(rp_delivered *delivered, uint64_t published_phy_offset) {
    if (delivered->magic != MAGIC || delivered->layout_version != LAYOUT_VERSION) return RP_INVALID;
    for (uint32_t level = 1; level <= delivered->level_max; level++) {
        slot *slot = slot_of(delivered, level);
        if (slot->end && slot->end <= published_phy_offset) slot->sure = slot->next;
        rp_store_release(&slot->end, 0);
    }
    return RP_OK;
}

int rp_delivered_has(const rp_delivered *delivered, const rp_delivery *delivery) {
    const slot *slot = slot_of(delivered, delivery->level);
    if (!slot) return 0;
    return delivery->phy_offset < (slot->end ? slot->next : slot->sure).phy_offset;
}

void rp_delivered_mark(rp_delivered *delivered, const rp_delivery *delivery, uint64_t end_phy_offset) {
    slot *slot = slot_of(delivered, delivery->level);
    if (!slot) return;
    if (slot->end) slot->sure = slot->next;
    rp_store_release(&slot->end, 0); /* from here on the one before is sure, whatever becomes of us */
    rp_full_fence(); /* nothing of the next one is written before that */
    slot->next = (place){delivery->phy_offset + 1, delivery->queue_offset};
    rp_store_release(&slot->end, end_phy_offset);
}

int rp_delivered_last(const rp_delivered *delivered, uint32_t level, uint64_t published_phy_offset, rp_delivery *last) {
    const slot *slot = slot_of(delivered, level);
    if (!slot) return 0;
    uint64_t end = rp_load_acquire(&slot->end);
    place found = end && end <= published_phy_offset ? slot->next : slot->sure;
    if (!found.phy_offset) return 0;
    *last = (rp_delivery){.phy_offset = found.phy_offset - 1, .queue_offset = found.queue_offset, .level = level};
    return 1;
}
