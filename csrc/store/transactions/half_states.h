#ifndef ROCKETPY_HALF_STATES_H
#define ROCKETPY_HALF_STATES_H
/* States of half messages: two bits per offset of the half queue, in shared memory that survives the workers
 * (docs/adr/0100).
 *
 * The window begins at `base`: every half message below it has ended. The manager moves it. All else has one writer,
 * the send worker, which marks an end in the same step in which it publishes the records of the end.
 *
 * Created and filled before the workers are forked (half_recovery.h). A mark is valid once the published position has
 * reached its end. If the send worker dies in between, the restarted one completes or removes it. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/queues/consume_queue.h"

enum {
    RP_HALF_WINDOW = 1 << 26, /* offsets; 16 MiB of states, of which only what is used takes memory */
    RP_HALF_OPS_MISSING_MAX = 64, /* a cut log lacks one op message; a store of Java one for each of its threads */
    RP_HALF_RENEWED_MAX = 1024 /* half messages that were stored again lately, whose producers know the old place */
};

enum { /* the state of a half message */
       RP_HALF_OPEN = 0,
       RP_HALF_COMMITTED = 1,
       RP_HALF_ROLLED_BACK = 2,
       RP_HALF_ENDED = 3 /* discarded, or ended before the broker started: committed or rolled back */
};

/* A half message and the one that it was stored again as (docs/adr/0100): offset in the half queue, place in the log.
 */
typedef struct rp_half_renewal {
    uint64_t offset;
    uint64_t phy_offset;
    uint64_t target;
    uint64_t target_phy_offset;
    uint64_t end_phy_offset; /* of the log when both are in it; 0: no entry */
} rp_half_renewal;

/* Zeroed: all open, from offset 0 on. */
typedef struct rp_half_states {
    uint64_t base; /* manager */
    /* The end that is being published; `end` is 0 if there is none. */
    uint64_t end;
    uint64_t offset;
    int64_t state;
    uint64_t ops_missing_count; /* filled before the fork, emptied by the send worker from the end */
    uint64_t renewed_count; /* of all; entry of the next one: modulo RP_HALF_RENEWED_MAX */
    uint64_t ops_missing[RP_HALF_OPS_MISSING_MAX]; /* offsets */
    rp_half_renewal renewed[RP_HALF_RENEWED_MAX];
    uint64_t words[RP_HALF_WINDOW / 32];
} rp_half_states;

/* Send worker, before anything else: complete the mark of a published end, remove any other. */
void rp_half_states_open(rp_half_states *states, uint64_t published_phy_offset);
/* The state at an offset; below the window RP_HALF_ENDED, above it RP_HALF_OPEN. Any process. */
int32_t rp_half_states_of(const rp_half_states *states, uint64_t offset);
/* Send worker: 1 if a half message at this offset fits into the window. */
int rp_half_states_has_room(const rp_half_states *states, uint64_t offset);
/* Send worker: a half message is about to be published at this offset. */
void rp_half_states_add(rp_half_states *states, uint64_t offset);
/* Send worker: before an end is published whose records end at `end_phy_offset`, and after it. */
void rp_half_states_begin(rp_half_states *states, uint64_t offset, int32_t state, uint64_t end_phy_offset);
void rp_half_states_complete(rp_half_states *states);
/* Before the workers are forked: set a state at once. Offsets outside of the window are ignored. */
void rp_half_states_set(rp_half_states *states, uint64_t offset, int32_t state);
/* Before the workers are forked: the message is committed, and its op message is not stored. The send worker stores it
 * before anything else. RP_FULL: there are RP_HALF_OPS_MISSING_MAX of them; the state is set all the same. */
rp_status rp_half_states_commit_without_op(rp_half_states *states, uint64_t offset);
/* Send worker: 1 with the offset of a half message whose op message it has to store; complete it as any end. */
int rp_half_states_missing_op(const rp_half_states *states, uint64_t *offset);
/* Send worker, before the records are published, and recovery. The oldest of RP_HALF_RENEWED_MAX is forgotten: its
 * producer is asked instead. */
void rp_half_states_renew(rp_half_states *states, const rp_half_renewal *renewal);
/* The place of a half message that was stored again: 1, and *target, *target_phy_offset are those of the last copy. */
int rp_half_states_renewed(const rp_half_states *states, uint64_t offset, uint64_t phy_offset, uint64_t *target,
                           uint64_t *target_phy_offset);
uint64_t rp_half_states_base(const rp_half_states *states);
/* Manager: everything below `base` has ended. It never goes back. */
void rp_half_states_move_base(rp_half_states *states, uint64_t base);
/* The first open offset in [from, to), or `to`. Any process; a look at 32 offsets is one step. */
uint64_t rp_half_states_next_open(const rp_half_states *states, uint64_t from, uint64_t to);
/* The number of open offsets in [from, to). Any process. */
uint64_t rp_half_states_count_open(const rp_half_states *states, uint64_t from, uint64_t to);

/* Where half messages are in the log, by their offset in the half queue (docs/adr/0100). A client names both when it
 * ends a transaction, and the body of any message may look like a half message: only the place that the broker itself
 * knows counts. The send worker. */

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

/* The topics and properties of transactions; rocketpy/message/names.py has them, too. */

#define RP_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
#define RP_OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define RP_DISCARD_TOPIC "TRANS_CHECK_MAX_TIME_TOPIC"
/* Brokers write these, never clients: codecs drop them from what clients send. */
#define RP_PREPARED_QUEUE_OFFSET "TRAN_PREPARED_QUEUE_OFFSET"
#define RP_CHECK_TIMES "TRANSACTION_CHECK_TIMES"
/* The time in ms at which a half message that was stored again was stored first. Clients never write it. */
#define RP_FIRST_STORED "TRAN_FIRST_STORED_MS"
enum { RP_OP_BODY_MAX = 20 /* digits of a queue offset */ };
#endif
