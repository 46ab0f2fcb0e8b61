#ifndef ROCKETPY_HELD_H
#define ROCKETPY_HELD_H
/* Suspended pulls (long polling): found by queue when a message arrives and by connection when it closes; a sweep finds
 * those whose deadline has passed. Each has a slot in shared memory, from which a restarted pull worker answers it.
 *
 * An entry keeps the numbers of the request, the names of its group and topic, and its parsed tag filter: a few hundred
 * bytes, however large the request was. Count and bytes are bounded in total, and one connection gets at most an eighth
 * of each, so that one client cannot keep others from waiting. C only. */
#include <stdint.h>
#include "control_block.h"
#include "pull.h"
#include "stage.h"
#include "subscription.h"

enum {
    RP_HELD_SHARE = 8,        /* a connection may use 1 / RP_HELD_SHARE of each bound */
    RP_HELD_SHARE_MIN = 32,   /* pulls of a connection that are always within its share */
    RP_HELD_BYTES = 512,      /* the bound of bytes in total, per pull that may be suspended */
    RP_HELD_BYTES_MIN = 65536 /* bytes of a connection that are always within its share */
};

/* The suspended pulls of one connection; freed with the last one. */
typedef struct rp_holder {
    struct rp_holder *next; /* in its chain */
    struct rp_held *first;
    uint64_t connection;
    uint64_t bytes;
    uint32_t count;
} rp_holder;

/* The suspended pulls of the queues with one hash. After an arrival each is looked at once, over as many turns as it
 * takes: `next` is the one whose turn it is. */
typedef struct rp_held_chain {
    struct rp_held *first;
    struct rp_held *next;               /* NULL: no look is under way */
    struct rp_held_chain *next_arrived; /* in the list of those with a look under way */
    int is_arrived;                     /* it is in this list */
    int is_arrived_again;               /* since the look began: at its end there is another */
} rp_held_chain;

typedef struct rp_held {
    struct rp_held *next_of_queue, **link_of_queue;
    struct rp_held *next_of_holder, **link_of_holder;
    rp_held_chain *chain;
    rp_holder *holder;
    rp_queue *queue;
    uint64_t deadline_ns;
    uint64_t scanned;   /* queue offset; units below it were examined and did not match */
    uint64_t looked_ns; /* when they were */
    uint32_t size;      /* of this entry, in bytes */
    uint32_t slot;
    const uint8_t *names;    /* group, topic */
    const rp_tags *tags;     /* with `count` hashes and no more behind; NULL: the subscription table says */
    rp_pull_request request; /* without subscription and expression type: their sizes are 0 */
} rp_held;

typedef struct rp_helds {
    rp_held_chain *by_queue; /* by index of the queue */
    rp_held_chain *first_arrived, *last_arrived;
    uint32_t arrived; /* chains in this list */
    rp_held *sweep;   /* where the sweep of its chain goes on; NULL: at the end */
    rp_holder **by_connection; /* chains */
    rp_held_slots *slots;
    uint32_t *next_free; /* by slot: the next free one, plus 1 */
    uint32_t first_free; /* plus 1; 0: take the one at slots->used */
    uint32_t mask;
    uint32_t count;
    uint64_t bytes;
    uint32_t orphan;      /* slots below it have been looked at */
    uint32_t orphans_end; /* slots below it may hold pulls of our predecessor */
} rp_helds;

int rp_helds_init(rp_helds *helds, rp_held_slots *slots); /* 0, or -1 without memory */
/* The next pull that was suspended when the last pull worker died, or NULL: answer it, then drop it. */
rp_held_slot *rp_helds_orphan(rp_helds *helds);
void rp_helds_drop_orphan(rp_helds *helds);
void rp_helds_destroy(rp_helds *helds);
/* Suspend a pull; copies `request`, `names` and `tags` (NULL: the pull brings no filter of its own). NULL if it would
 * exceed a bound, or without memory: answer the pull at once. */
rp_held *rp_helds_add(rp_helds *helds, rp_control_block *block, rp_queue *queue, const rp_pull_request *request,
                      const uint8_t *names, const rp_tags *tags);
void rp_helds_remove(rp_helds *helds, rp_held *held); /* and free it */
/* Ask for an ARRIVAL when its queue grows. 1; 0 if the queue has new units already. The message may be stored but not
 * dispatched: wake `store` (NULL: none), which may be asleep. */
int rp_held_watch(const rp_held *held, rp_worker *store);
/* The queue has new units: its chain goes to the end of the list of those with a look under way, unless it is there. */
void rp_helds_arrived(rp_helds *helds, uint32_t queue_index);
/* Take the first chain off this list; NULL: it is empty. */
rp_held_chain *rp_helds_take_arrived(rp_helds *helds);
/* Its turn is over: to the end of the list if it has pulls left to look at. */
void rp_helds_return_arrived(rp_helds *helds, rp_held_chain *chain);
void rp_helds_drop_connection(rp_helds *helds, uint64_t connection);
#endif
