/* See timer_heap.h. */
#include "store/timer_heap.h"
#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

int rp_timer_compare(const void *a, const void *b) {
    const rp_timer *left = a, *right = b;
    if (left->due_ms != right->due_ms) return left->due_ms < right->due_ms ? -1 : 1;
    return (left->number > right->number) - (left->number < right->number);
}

rp_status rp_timer_heap_push(rp_timer_heap *heap, const rp_timer *timer) {
    if (heap->count == heap->capacity) {
        uint32_t capacity = heap->capacity ? heap->capacity * 2 : FIRST_CAPACITY;
        rp_timer *timers = realloc(heap->timers, capacity * sizeof *timers);
        if (!timers) return RP_NO_MEMORY;
        heap->timers = timers;
        heap->capacity = capacity;
    }
    uint32_t at = heap->count++;
    while (at && rp_timer_compare(timer, &heap->timers[(at - 1) / 2]) < 0) {
        heap->timers[at] = heap->timers[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->timers[at] = *timer;
    return RP_OK;
}

void rp_timer_heap_pop(rp_timer_heap *heap) {
    rp_timer last = heap->timers[--heap->count];
    uint32_t at = 0, child;
    while ((child = at * 2 + 1) < heap->count) {
        if (child + 1 < heap->count && rp_timer_compare(&heap->timers[child + 1], &heap->timers[child]) < 0) child++;
        if (rp_timer_compare(&last, &heap->timers[child]) <= 0) break;
        heap->timers[at] = heap->timers[child];
        at = child;
    }
    heap->timers[at] = last;
}

void rp_timer_heap_destroy(rp_timer_heap *heap) {
    free(heap->timers);
    *heap = (rp_timer_heap){0};
}

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
