#ifndef ROCKETPY_MEMBER_H
#define ROCKETPY_MEMBER_H
/* The member block: what the coordinator of a broker with automatic failover orders, and what the broker's processes
 * report to it. Shared memory that survives every worker, the process tree and the coordinator.
 *
 * Orders are whole each time, by a sequence lock (shared.h): a reader that meets a change keeps the orders that
 * it has. The deadline changes with every renewal of the lease, so it is beside them.
 *
 * A position is confirmed only under orders that still hold: the replicator writes `proposed`, looks at the version
 * once more, and then confirms; the coordinator writes orders, and then reads `proposed`. So what was confirmed under
 * the orders before is never above what the coordinator has read. */
#include <stdint.h>

enum { RP_COUNTING_MAX = 32 }; /* counting: stores, so old and new ones of a member */
enum { RP_MEMBER_NAME_MAX = 256, RP_INCARNATION_MAX = 64, RP_MEMBER_ADDRESS_MAX = 320 };
enum { RP_ROLE_SLAVE = 0, RP_ROLE_MASTER = 1 };

/* A member's store. Texts end with a zero. */
typedef struct rp_store_id {
    char member[RP_MEMBER_NAME_MAX];
    char incarnation[RP_INCARNATION_MAX];
} rp_store_id;

typedef struct rp_member_orders {
    uint32_t role;          /* RP_ROLE_*: the process tree to be run */
    int32_t epoch;          /* the one to serve as master; -1: none */
    uint32_t takes_sends;   /* 0: messages are refused before they are stored */
    uint32_t keeps_sends;   /* 1: messages that are not taken are kept for a while, or passed on to the master */
    uint32_t pauses_intake; /* 1: selectors read no requests: this slave is about to become the master */
    uint32_t answers_waits; /* 0: what waits is answered SERVICE_NOT_AVAILABLE */
    uint32_t sends_stream;  /* 1: other members may follow */
    uint32_t is_broker_0;   /* 1: registers brokerId 0, runs the delay and transaction services */
    int32_t following_epoch; /* of the master to follow, as etcd names it; -1 */
    int32_t unclean_epoch;   /* the last one of an unclean election; 0: there was none */
    uint32_t counting_count;
    char following[RP_MEMBER_NAME_MAX];             /* the master to follow; empty: take no stream */
    char following_ha[RP_MEMBER_ADDRESS_MAX];       /* host:port of its HA port */
    char following_address[RP_MEMBER_ADDRESS_MAX];  /* host:port for requests */
    rp_store_id counting[RP_COUNTING_MAX]; /* these acknowledge under `epoch` before a position is confirmed */
} rp_member_orders;

typedef struct rp_member {
    /* coordinator */
    uint64_t version; /* of the orders, a sequence lock: odd while it changes them */
    uint64_t deadline_ns; /* CLOCK_BOOTTIME until which sends may be answered SUCCESS; ~0: for ever, 0: never */
    rp_member_orders orders;
    /* written by the process that opens the store, before it forks workers */
    uint64_t own_version; /* of the next; a sequence lock */
    rp_store_id own;
    int32_t opened_epoch; /* it is in the epoch file, on the disk, and the next offsets of all queues are known; -1 */
    /* workers */
    int32_t newest_epoch_seen;     /* replicator: that a peer has named; -1 */
    uint64_t sends_refused;        /* send: version of the last orders that it has read, if these refuse sends and all
                                      that it had taken before is in the log; otherwise 0 */
    uint64_t stream_stopped; /* replicator of a slave: version of the last orders that it has read, if it follows
                                nobody and all that it had received is in the log or dropped; otherwise 0 */
    uint64_t proposed_phy_offset; /* replicator of a master: at least what is confirmed; bytes */
    uint64_t alone_phy_offset; /* replicator of a master: below it some position was confirmed by this member alone */
    uint64_t cut_phy_offset; /* replicator of a slave: where the log must end before it can follow; ~0: nowhere */
    uint64_t epochs_version; /* counts the changes of the epoch file */
    uint32_t diverged; /* replicator of a slave: 1: this log and the master's do not fit */
    uint32_t
        intake_paused; /* send: 1: selectors read no requests, because the process tree is about to change its role */
    int32_t append_fault; /* send: rp_status of the last append that failed; RP_OK: none has */
    uint32_t reserved;
    uint64_t append_fault_phy_offset; /* send: the end of the log then; nothing was appended since if it is the same */
} rp_member;

/* Coordinator: give orders, unless they are those that hold. Returns their version, which is even. */
uint64_t rp_member_order(rp_member *member, const rp_member_orders *orders);
/* Coordinator: answers may leave until then. In effect when it returns. */
void rp_member_set_deadline(rp_member *member, uint64_t until_ns);
/* 1 if the orders are still those of `version`. A full fence before it: the writer of new orders sees earlier stores.
 */
int rp_member_holds(const rp_member *member, uint64_t version);
/* Coordinator: the highest position that may have been confirmed under any orders but those that hold. A full fence
 * before it. `confirmed`: of the control block. */
uint64_t rp_member_confirmed(const rp_member *member, uint64_t confirmed);
/* A peer has named this epoch. */
void rp_member_see_epoch(rp_member *member, int32_t epoch);
/* Coordinator: `newest` is the newest epoch that there is; nothing, unless `seen` is still what was seen last. */
void rp_member_refute_epoch(rp_member *member, int32_t seen, int32_t newest);
/* The send worker could not append to the log that ends at `end`. */
void rp_member_append_failed(rp_member *member, int32_t status, uint64_t end);
/* Any process: the rp_status of a failed append to the log that ends at `end`; RP_OK: none has failed there. */
int32_t rp_member_append_fault(const rp_member *member, uint64_t end);

/* The epochs of a log, as rocketpy/failover/rules/epochs.py lists them: which master wrote which bytes. */
typedef struct rp_epoch {
    uint64_t start; /* position of its first byte; the next one begins where it ends */
    int32_t number;
    uint32_t reserved;
} rp_epoch;

/* The epoch of the byte at `position`, of `count` ones in ascending order; -1: none of them. *end: where it ends, as
 * far as the list tells. */
int32_t rp_epochs_at(const rp_epoch *epochs, uint32_t count, uint64_t position, uint64_t *end);
#endif
