#ifndef ROCKETPY_SEND_WAIT_H
#define ROCKETPY_SEND_WAIT_H
/* Replies that wait until their message is on the disk (SYNC_FLUSH) or on a slave (SYNC_MASTER): a bounded queue in log
 * order. One fdatasync, or one report of a slave, completes all replies that it covers (group commit). C only. */
#include <stdint.h>
#include "base/status.h"

enum { RP_WAITING_MAX = 65536, RP_WAITING_BYTES_MAX = 16777216 };

/* What a reply waits for. */
enum { RP_WAIT_FLUSH = 1, RP_WAIT_REPLICA = 2 };

/* The fields of a reply to be sent later. `ids` belongs to the caller; rp_waits_push copies it. */
typedef struct rp_wait {
    uint64_t need_phy_offset; /* the position that it waits for */
    uint64_t flush_deadline_ns, replica_deadline_ns;
    uint64_t received_ns;
    uint64_t connection;
    uint64_t token;
    uint64_t phy_offset;
    uint64_t queue_offset;
    int64_t store_timestamp_ms;
    int32_t opaque;
    int32_t queue_id;
    uint32_t flags; /* RP_REQUEST_* */
    uint32_t needs; /* RP_WAIT_* */
    int32_t code;   /* if all that it waits for comes about: 0, or what is known already */
    uint32_t size;
    uint8_t *ids;
    uint32_t ids_size;
    uint32_t timer_state; /* of an internal put that was to end a timer: RP_TIMER_STATE_* */
} rp_wait;

typedef struct rp_waits {
    rp_wait *entries; /* a ring buffer of RP_WAITING_MAX, allocated at first use */
    uint64_t head, tail;
    uint64_t bytes; /* of ids held */
} rp_waits;

/* 1 if another reply with `ids_size` bytes of ids fits. */
int rp_waits_have_room(const rp_waits *waits, uint32_t ids_size);
rp_status rp_waits_push(rp_waits *waits, const rp_wait *wait); /* RP_OK, RP_FULL, RP_NO_MEMORY */
rp_wait *rp_waits_first(rp_waits *waits);                     /* NULL if none waits */
void rp_waits_pop(rp_waits *waits);
void rp_waits_destroy(rp_waits *waits);
#endif
