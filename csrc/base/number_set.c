/* See number_set.h. */
#include "base/number_set.h"
#include <stdlib.h>

rp_status rp_number_set_init(rp_number_set *set, uint32_t count_max) {
    uint32_t slots = 16;
    while (slots < count_max * 2) slots *= 2;
    *set = (rp_number_set){.slots = calloc(slots, sizeof *set->slots), .mask = slots - 1};
    return set->slots ? RP_OK : RP_NO_MEMORY;
}

void rp_number_set_destroy(rp_number_set *set) {
    free(set->slots);
    *set = (rp_number_set){0};
}

static uint32_t home_of(const rp_number_set *set, uint64_t number) {
    uint64_t hash = number * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(hash ^ hash >> 32) & set->mask;
}

/* The slot that holds the number, or the free one where it belongs. */
static uint32_t slot_of(const rp_number_set *set, uint64_t number) {
    uint32_t at = home_of(set, number);
    while (set->slots[at] && set->slots[at] != number + 1) at = (at + 1) & set->mask;
    return at;
}

int rp_number_set_has(const rp_number_set *set, uint64_t number) { return set->slots[slot_of(set, number)] != 0; }

void rp_number_set_add(rp_number_set *set, uint64_t number) {
    uint32_t at = slot_of(set, number);
    set->count += !set->slots[at];
    set->slots[at] = number + 1;
}

void rp_number_set_remove(rp_number_set *set, uint64_t number) {
    uint32_t hole = slot_of(set, number);
    if (!set->slots[hole]) return;
    set->count--;
    for (uint32_t at = (hole + 1) & set->mask; set->slots[at]; at = (at + 1) & set->mask) {
        uint32_t home = home_of(set, set->slots[at] - 1);
        if (((at - home) & set->mask) < ((at - hole) & set->mask)) continue; /* it is found without the hole */
        set->slots[hole] = set->slots[at];
        hole = at;
    }
    set->slots[hole] = 0;
}
