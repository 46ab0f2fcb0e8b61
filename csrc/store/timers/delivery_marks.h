#ifndef ROCKETPY_DELIVERY_MARKS_H
#define ROCKETPY_DELIVERY_MARKS_H
/* Delivery marks: the last delivered message of each delay level, in shared memory that survives the workers
 * (docs/adr/0090).
 *
 * A delivery is an internal put that names the delayed message that it stores again. The send worker marks it in the
 * same step in which it publishes the record, and answers a repeated delivery with success without storing it again. So
 * a manager that does not know the result of a delivery may repeat it, also after a restart.
 *
 * Created before the workers are forked; the send worker is the only writer. A mark is valid once the published
 * position has reached its end. If the send worker dies between the two steps, the restarted one removes the mark.
 *
 * A level also counts how often the send worker has crashed, or was killed in an endless loop, during the delivery of
 * one message. That is not tried for ever: the broker could serve nobody, and the level would stop at this message.
 * Another kill ends the count: a disk that hangs, or a lack of memory, says nothing of the message. Deliveries of
 * timers are counted in the same way. */
#include <stdint.h>

enum { RP_DELIVERY_TRIES_MAX = 3, RP_DELIVERY_OF_TIMER = 0 /* a level: only tries are counted */ };

/* Carried by a put with RP_REQUEST_DELIVERY. Within a level both offsets rise from message to message. */
typedef struct rp_delivery {
    uint64_t phy_offset;   /* of the delayed message */
    uint64_t queue_offset; /* in the queue of its level */
    uint32_t level;        /* from 1 on, or RP_DELIVERY_OF_TIMER */
    uint32_t reserved;
} rp_delivery;

typedef struct rp_delivery_place {
    uint64_t phy_offset; /* + 1: 0 says that there is none */
    uint64_t queue_offset;
} rp_delivery_place;

typedef struct rp_delivery_tries {
    uint64_t of;    /* log offset + 1 of the message whose delivery began last */
    uint64_t count; /* how often that has begun without an end; 0: it has ended */
} rp_delivery_tries;

typedef struct rp_delivery_slot {
    rp_delivery_place sure, next;
    uint64_t end; /* of the record that `next` stands for; 0: there is none */
    rp_delivery_tries tries;
    uint64_t reserved;
} rp_delivery_slot;

typedef struct rp_delivery_marks {
    uint64_t level_max; /* set before the first fork; all else is zero then: none delivered */
    rp_delivery_tries timer;
    uint64_t reserved[5];
    rp_delivery_slot slots[]; /* of level 1, 2, ... */
} rp_delivery_marks;

/* Send worker, before anything else: remove marks beyond `published_phy_offset`, whose records were not published, and
 * count no delivery any more unless the send worker before `has_crashed`. */
void rp_delivery_marks_open(rp_delivery_marks *marks, uint64_t published_phy_offset, int has_crashed);
/* Send worker: 1 if the delivery, or a later one of its level, has been stored; 0 for a level out of range. */
int rp_delivery_marks_has(const rp_delivery_marks *marks, const rp_delivery *delivery);
/* Send worker: mark a delivery, which is stored once the published position reaches `end_phy_offset`. */
void rp_delivery_marks_mark(rp_delivery_marks *marks, const rp_delivery *delivery, uint64_t end_phy_offset);
/* Send worker: a delivery begins. 0 if it must not, because RP_DELIVERY_TRIES_MAX send workers crashed in it. For a
 * timer `marks` may be NULL: nothing is counted. */
int rp_delivery_marks_begin(rp_delivery_marks *marks, const rp_delivery *delivery);
/* Send worker: the delivery has ended, whatever came of it: the worker lives. */
void rp_delivery_marks_end(rp_delivery_marks *marks, const rp_delivery *delivery);
/* The last stored delivery of a level, as far as `published_phy_offset`; 0 if there is none. Any process. While the
 * send worker marks another one of the level, the two fields may belong to different deliveries: compare them with the
 * queue. */
int rp_delivery_marks_last(const rp_delivery_marks *marks, uint32_t level, uint64_t published_phy_offset,
                           rp_delivery *last);
#endif
