/* See timer_refused.h. */
#include "store/timers/timer_refused.h"
#include <stdlib.h>

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
