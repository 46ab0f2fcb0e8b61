#ifndef ROCKETPY_DELIVERED_H
#define ROCKETPY_DELIVERED_H
/* How far the delayed messages of each level have been delivered, in memory that outlives the workers (docs/adr/0091).
 *
 * A delivery is a put of the manager that names the delayed message it stores again. The send process marks it in the
 * same step in which it publishes the record, and answers a second one as stored without storing it. So the manager,
 * its successor, and whoever does not know what became of a put, may repeat it.
 *
 * Created before the workers are forked; the send process is the only writer. A mark counts once the published position
 * has reached its end: a process that dies between the two leaves a mark that the next one takes back. */
#include <stdint.h>
#include "status.h"

/* What a put with RP_REQUEST_DELIVERY carries. Both offsets of a level's messages rise from one to the next. */
typedef struct rp_delivery {
    uint64_t phy_offset;   /* of the delayed message */
    uint64_t queue_offset; /* its place in the queue of its level */
    uint32_t level;        /* from 1 on */
    uint32_t reserved;
} rp_delivery;

typedef struct rp_delivered rp_delivered; /* the mapping; opaque */

/* For the levels 1 to `level_max`, none delivered; NULL with errno. */
rp_delivered *rp_delivered_create(uint32_t level_max);
void rp_delivered_destroy(rp_delivered *delivered);
/* Send process, first of all: take back marks beyond `published_phy_offset`, which no record stands behind.
 * RP_INVALID: the mapping is of another layout. */
rp_status rp_delivered_open(rp_delivered *delivered, uint64_t published_phy_offset);
/* Send process: 1 if the delivery, or one behind it in its level, has been stored. A level out of range never has. */
int rp_delivered_has(const rp_delivered *delivered, const rp_delivery *delivery);
/* Send process: a delivery will be stored once the published position is at `end_phy_offset`. */
void rp_delivered_mark(rp_delivered *delivered, const rp_delivery *delivery, uint64_t end_phy_offset);
/* The last stored delivery of a level, as far as `published_phy_offset`; 0 if there is none. Any process. While the send
 * process marks another of the level, the answer may be a mixture of both: compare it with the queue. */
int rp_delivered_last(const rp_delivered *delivered, uint32_t level, uint64_t published_phy_offset, rp_delivery *last);
#endif
