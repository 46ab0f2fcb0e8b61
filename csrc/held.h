#ifndef ROCKETPY_HELD_H
#define ROCKETPY_HELD_H
/* Pulls that wait for a message (long polling): found by queue when one arrives, by connection when it goes, and
 * swept for their deadlines. Each has a slot in shared memory, from which a successor answers it. C only. */
#include <stdint.h>
#include "control_block.h"
#include "pull.h"
#include "stage.h"

typedef struct rp_held {
    struct rp_held *next_of_queue, **link_of_queue;
    struct rp_held *next_of_connection, **link_of_connection;
    rp_queue *queue;
    uint64_t deadline_ns;
    uint64_t scanned; /* units below it were examined and did not match */
    uint32_t size;
    uint32_t slot;
    uint8_t request[]; /* rp_pull_request and its strings */
} rp_held;

typedef struct rp_helds {
    rp_held **by_queue; /* chains, by index of the queue */
    rp_held **by_connection;
    rp_held_slots *slots;
    uint32_t *next_free; /* by slot: the next free one, plus 1 */
    uint32_t first_free; /* plus 1; 0: take the one at slots->used */
    uint32_t mask;
    uint32_t count;
    uint32_t orphan;      /* slots below it have been looked at */
    uint32_t orphans_end; /* slots below it may hold pulls of our predecessor */
} rp_helds;

int rp_helds_init(rp_helds *helds, rp_held_slots *slots); /* 0, or -1 without memory */
/* The next pull that our predecessor held, or NULL: answer it, then drop it. */
rp_held_slot *rp_helds_orphan(rp_helds *helds);
void rp_helds_drop_orphan(rp_helds *helds);
void rp_helds_destroy(rp_helds *helds);
/* Keep a copy of the request; NULL when full or without memory. */
rp_held *rp_helds_add(rp_helds *helds, rp_control_block *block, rp_queue *queue, const uint8_t *request, uint32_t size);
void rp_helds_remove(rp_helds *helds, rp_held *held); /* and free it */
/* Have arrivals in its queue told: 1, or 0 if there is something to look at already. What it waits for may be stored and
 * not dispatched: it was not watched for when it came, so `store` (NULL: nobody) may be dozing, and is rung. */
int rp_held_watch(const rp_held *held, rp_worker *store);
rp_held *rp_helds_of_queue(rp_helds *helds, uint32_t queue_index);
void rp_helds_drop_connection(rp_helds *helds, uint64_t connection);
#endif
