#ifndef ROCKETPY_SUSPENDED_PULLS_H
#define ROCKETPY_SUSPENDED_PULLS_H
/* Suspended pulls (long polling): found by queue when a message arrives and by connection when it closes; a sweep finds
 * those whose deadline has passed. Each has a slot in shared memory, from which a restarted pull worker answers it.
 *
 * An entry keeps the numbers of the request, the names of its group and topic, and its parsed tag filter: a few hundred
 * bytes, however large the request was. Count and bytes are bounded in total, and one connection gets at most an eighth
 * of the part of each that is free, so that some clients cannot keep others from waiting. C only. */
#include <stdint.h>
#include "ipc/worker_messages.h"
#include "store/control/control_block.h"
#include "workers/pull/pull.h"
#include "workers/pull/subscription.h"

enum {
    RP_SUSPENDED_SHARE = 8,        /* a connection may have 1 / RP_SUSPENDED_SHARE of what is free of each bound */
    RP_SUSPENDED_SHARE_MIN = 32,   /* pulls of a connection that are always within its share */
    RP_SUSPENDED_BYTES = 512,      /* the bound of bytes in total, per pull that may be suspended */
    RP_SUSPENDED_BYTES_MIN = 65536 /* bytes of a connection that are always within its share */
};

/* The suspended pulls of one connection; freed with the last one. */
typedef struct rp_holder {
    struct rp_holder *next; /* in its chain */
    struct rp_suspended_pull *first;
    uint64_t connection;
    uint64_t bytes;
    uint32_t count;
} rp_holder;

/* The suspended pulls of the queues with one hash. After an arrival each of them is examined once, over several turns
 * if there are many: `next` is the one to examine next. */
typedef struct rp_suspension_chain {
    struct rp_suspended_pull *first;
    struct rp_suspended_pull *next;               /* NULL: none is to be examined */
    struct rp_suspension_chain *next_arrived; /* next in the list of chains to examine */
    int is_arrived;                     /* it is in this list */
    int is_arrived_again;               /* another arrival since the examination began: examine again at its end */
} rp_suspension_chain;

typedef struct rp_suspended_pull {
    struct rp_suspended_pull *next_of_queue, **link_of_queue;
    struct rp_suspended_pull *next_of_holder, **link_of_holder;
    rp_suspension_chain *chain;
    rp_holder *holder;
    rp_queue *queue;
    uint64_t deadline_ns;
    uint64_t report_ns;   /* from then on it is answered if it has passed messages that do not match */
    uint64_t scanned;   /* queue offset; units below it were examined and did not match */
    uint64_t looked_ns; /* time of that examination */
    uint32_t restrictions; /* of the pull worker when the tables were last checked for it */
    uint32_t size;      /* of this entry and its expression, in bytes */
    uint32_t slot;
    const uint8_t *names;    /* group, topic */
    const rp_tags *tags;     /* allocated with its hashes; NULL: use the subscription table */
    rp_msg_pull request; /* without subscription and expression type: their sizes are 0 */
} rp_suspended_pull;

typedef struct rp_suspended_pulls {
    rp_suspension_chain *by_queue; /* by index of the queue */
    rp_suspension_chain *first_arrived, *last_arrived;
    uint32_t arrived; /* chains in this list */
    rp_suspended_pull *sweep;   /* where the sweep continues in its chain; NULL: at the end */
    rp_holder **by_connection; /* chains */
    rp_suspension_slots *slots;
    uint32_t *next_free; /* by slot: the next free one, plus 1 */
    uint32_t first_free; /* plus 1; 0: take the one at slots->used */
    uint32_t mask;
    uint32_t count;
    uint64_t bytes;
    uint32_t orphan;      /* slots below it have been examined */
    uint32_t orphans_end; /* slots below it may hold pulls of the previous worker */
} rp_suspended_pulls;

int rp_suspended_pulls_init(rp_suspended_pulls *pulls, rp_suspension_slots *slots); /* 0, or -1 without memory */
/* The next pull that was suspended when the last pull worker died, or NULL: answer it, then drop it. */
rp_suspension_slot *rp_suspended_pulls_orphan(rp_suspended_pulls *pulls);
void rp_suspended_pulls_drop_orphan(rp_suspended_pulls *pulls);
void rp_suspended_pulls_destroy(rp_suspended_pulls *pulls);
/* Suspend a pull; copies `request`, `names` and `tags` (NULL: the pull has no filter of its own). NULL if it would
 * exceed a bound, or without memory: answer the pull at once. */
rp_suspended_pull *rp_suspended_pulls_add(rp_suspended_pulls *pulls, rp_control_block *block, rp_queue *queue,
                                          const rp_msg_pull *request, const uint8_t *names, const rp_tags *tags);
void rp_suspended_pulls_remove(rp_suspended_pulls *pulls, rp_suspended_pull *suspended); /* and free it */
/* Ask for an ARRIVAL when its queue grows. 1; 0 if the queue has new units already. The message may be stored but not
 * dispatched: wake `store` (NULL: none), which may be asleep. */
int rp_suspension_watch(const rp_suspended_pull *suspended, rp_worker *store);
/* The queue has new units: append its chain to the list of chains to examine, unless it is in the list. */
void rp_suspended_pulls_arrived(rp_suspended_pulls *pulls, uint32_t queue_index);
/* Remove the first chain of this list; NULL: it is empty. */
rp_suspension_chain *rp_suspended_pulls_take_arrived(rp_suspended_pulls *pulls);
/* Its turn is over: append it to the list again if pulls are left to examine. */
void rp_suspended_pulls_return_arrived(rp_suspended_pulls *pulls, rp_suspension_chain *chain);
void rp_suspended_pulls_drop_connection(rp_suspended_pulls *pulls, uint64_t connection);
#endif
