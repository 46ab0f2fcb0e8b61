#include "store/timers/timer_heap.h"
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

rp_status rp_timer_refused_init(rp_timer_refused *refused) {
    *refused = (rp_timer_refused){.timers = calloc(RP_TIMER_REFUSED_MAX, sizeof(rp_timer))};
    return refused->timers ? RP_OK : RP_NO_MEMORY;
}

void rp_timer_refused_destroy(rp_timer_refused *refused) {
    free(refused->timers);
    *refused = (rp_timer_refused){0};
}

void rp_timer_refused_add(rp_timer_refused *refused, const rp_timer *timer, int64_t now_ms) {
    if (refused->begin == refused->end) {
        refused->later = refused->begin;
        refused->retry_ms = now_ms + RP_TIMER_RETRY_MS;
    }
    refused->timers[refused->end++ % RP_TIMER_REFUSED_MAX] = *timer;
}

void rp_timer_refused_drop(rp_timer_refused *refused, uint64_t number) {
    for (uint64_t at = refused->begin; at < refused->end; at++)
        if (refused->timers[at % RP_TIMER_REFUSED_MAX].number == number)
            refused->timers[at % RP_TIMER_REFUSED_MAX].size = 0;
}

const rp_timer *rp_timer_refused_first(rp_timer_refused *refused, int64_t now_ms) {
    while (refused->begin < refused->later && !refused->timers[refused->begin % RP_TIMER_REFUSED_MAX].size)
        refused->begin++; /* dropped */
    if (refused->begin == refused->later) {
        if (refused->begin == refused->end || now_ms < refused->retry_ms) return NULL;
        refused->later = refused->end;
        refused->retry_ms = now_ms + RP_TIMER_RETRY_MS;
    }
    return &refused->timers[refused->begin % RP_TIMER_REFUSED_MAX];
}

void rp_timer_refused_take(rp_timer_refused *refused) { refused->begin++; }

uint64_t rp_timer_refused_copy(const rp_timer_refused *refused, rp_timer *out) {
    uint64_t count = 0;
    for (uint64_t at = refused->begin; at < refused->end; at++)
        if (refused->timers[at % RP_TIMER_REFUSED_MAX].size) out[count++] = refused->timers[at % RP_TIMER_REFUSED_MAX];
    return count;
}
