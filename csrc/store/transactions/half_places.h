#ifndef ROCKETPY_HALF_PLACES_H
#define ROCKETPY_HALF_PLACES_H
/* Where half messages are in the log, by their offset in the half queue (docs/adr/0100). A client names both when it
 * ends a transaction, and the body of any message may look like a half message: only the place that the broker itself
 * knows counts. C only; the send worker. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/queues/consume_queue.h"

enum { RP_HALF_PLACES_LATEST = 1 << 16 }; /* half messages that are known before they are dispatched */

typedef struct rp_half_place rp_half_place;
typedef struct rp_half_places {
    rp_cq_reader *units;   /* of the half queue; owned */
    rp_half_place *latest; /* RP_HALF_PLACES_LATEST of them, by offset; owned */
} rp_half_places;

/* The directory string is copied. RP_OK, RP_NO_MEMORY; to be closed in either case. */
rp_status rp_half_places_open(rp_half_places *places, rp_control_block *block, const char *consume_queue_directory,
                              uint64_t consume_queue_file_size);
void rp_half_places_close(rp_half_places *places);
/* A half message is about to be published at these offsets. */
void rp_half_places_add(rp_half_places *places, uint64_t offset, uint64_t phy_offset);
/* RP_OK; RP_NOT_FOUND: the queue has no unit for it; RP_EMPTY: it was stored before the send worker was restarted, and
 * is not dispatched yet; RP_IO_ERROR with errno. */
rp_status rp_half_places_find(rp_half_places *places, const rp_queue *queue, uint64_t offset, uint64_t *phy_offset);
/* 1 if the place is known without a look at the queue. */
int rp_half_places_is_latest(const rp_half_places *places, uint64_t offset);
/* 0 if the queue would have to be read from the disk for the place. */
int rp_half_places_in_memory(rp_half_places *places, const rp_queue *queue, uint64_t offset);
/* Close removed files; about once a second. */
void rp_half_places_release(rp_half_places *places);
#endif
