#ifndef ROCKETPY_TIMER_END_INDEX_H
#define ROCKETPY_TIMER_END_INDEX_H
/* An index over the journal of timer_marks.h: how a timer ended, without a search through all entries. C only; the send
 * worker. */
#include <stdint.h>
#include "base/status.h"
#include "store/timers/timer_marks.h"

typedef struct rp_timer_end_index {
    const rp_timer_marks *marks;
    uint64_t *latest; /* by hash of the number: 1 + place of the latest entry with that hash; owned */
    uint64_t *before; /* by place: 1 + place of the entry before it with the same hash; owned */
    uint64_t end;     /* entries below it are in the index */
    uint64_t seed;    /* odd */
} rp_timer_end_index;

/* Index the last RP_TIMER_JOURNAL_MAX entries. RP_OK, RP_NO_MEMORY; to be closed in either case. */
rp_status rp_timer_end_index_open(rp_timer_end_index *index, const rp_timer_marks *marks, uint64_t journal_end);
void rp_timer_end_index_close(rp_timer_end_index *index);
/* Take in the entries that the journal has gained. */
void rp_timer_end_index_follow(rp_timer_end_index *index, uint64_t journal_end);
/* How a timer that has ended did so, as far as the last RP_TIMER_JOURNAL_MAX entries tell (others:
 * RP_TIMER_DELIVERED). */
int rp_timer_end_index_kind(const rp_timer_end_index *index, uint64_t number);
#endif
