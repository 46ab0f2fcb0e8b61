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

typedef struct rp_half_states rp_half_states; /* the mapping; opaque */

/* All open, from offset 0 on. NULL with errno. */
rp_half_states *rp_half_states_create(void);
void rp_half_states_destroy(rp_half_states *states);
/* Send worker, before anything else: complete the mark of a published end, remove any other. RP_INVALID: the mapping
 * has another layout. */
rp_status rp_half_states_open(rp_half_states *states, uint64_t published_phy_offset);
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
/* A half message and the one that it was stored again as (docs/adr/0100): offset in the half queue, place in the log.
 */
typedef struct rp_half_renewal {
    uint64_t offset;
    uint64_t phy_offset;
    uint64_t target;
    uint64_t target_phy_offset;
    uint64_t end_phy_offset; /* of the log when both are in it; 0: no entry */
} rp_half_renewal;
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
#endif
