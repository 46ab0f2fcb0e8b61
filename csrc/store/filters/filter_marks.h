#ifndef ROCKETPY_FILTER_MARKS_H
#define ROCKETPY_FILTER_MARKS_H
/* Filter marks: from where on in the log the filter bits of messages speak for a subscription, in shared memory that
 * survives the workers (docs/adr/0089).
 *
 * A message that was dispatched before the store worker knew a subscription has no bit for it and may match all the
 * same. So the store worker, when it learns of a subscription, marks the position after which it has dispatched
 * nothing yet, and clears the mark before it stops setting the bits. Pull workers skip a message for want of a bit only
 * after the mark of exactly this subscription. */
#include <stdint.h>

enum { RP_FILTER_MARKS = 4096 };

/* Zeroed: none is set. */
typedef struct rp_filter_marks {
    struct {
        uint64_t id;
        uint64_t phy_offset;
    } marks[RP_FILTER_MARKS];
} rp_filter_marks;

/* Store worker: bits of messages at or after `phy_offset` speak for the subscription `id`; `id` 0: for none. */
void rp_filter_marks_set(rp_filter_marks *marks, uint32_t mark, uint64_t id, uint64_t phy_offset);
/* Any process: from where on they do, of messages whose units were read before the call; UINT64_MAX: nowhere. */
uint64_t rp_filter_marks_begin(const rp_filter_marks *marks, uint32_t mark, uint64_t id);
#endif
