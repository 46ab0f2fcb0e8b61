#ifndef ROCKETPY_LIMITS_H
#define ROCKETPY_LIMITS_H
/* Limits per peer address and per account, which all workers of a broker share.
 *
 * Two tables in shared memory, made before the first fork; any process changes them, without a lock:
 *
 *   addresses   IPv4 address or IPv6 /64 -> two buckets, refused identities, open connections by selector
 *   accounts    hash of the access key   -> two buckets
 *
 * A bucket holds what its rate allows in one second. It is one word, the time at which it will be full again: that of
 * a full one has passed, and an empty one's is more than a second ahead. A read connection may overdraw it.
 * A row belongs to a key until its buckets are full, no connection is open and no refusal counts; then another key may
 * take it. A key whose few rows are all taken is not limited, and counted (UNTRACKED).
 * Connections count under the epoch of their selector's process: those of a killed one count no more when the next
 * begins. A key whose rows another process changes at this moment may go without a limit for once, and counts so.
 *
 * Time: nanoseconds of CLOCK_MONOTONIC, given by the caller. */
#include <stdint.h>
#include "base/host.h"
#include "base/status.h"

enum {
    RP_LIMITS_SELECTORS_MAX = 64,
    RP_LIMITS_ADDRESSES = 16384, /* rows */
    RP_LIMITS_ACCOUNTS = 8192,
    RP_LIMITS_FAILURES_S = 60 /* refused identities count, and block their address, for this time from the first on */
};

typedef struct rp_limits_config { /* 0: no limit */
    uint64_t address_connections;
    uint64_t address_requests; /* per second */
    uint64_t address_bytes;
    uint64_t account_requests;
    uint64_t account_bytes;
    uint64_t failures; /* of one address */
} rp_limits_config;

enum { /* counters */
       RP_LIMITS_UNTRACKED, /* keys that found no row */
       RP_LIMITS_BUSY,      /* requests refused for their account's rate */
       RP_LIMITS_BLOCKED,   /* addresses that were blocked */
       RP_LIMITS_COUNTERS
};

typedef struct rp_limits rp_limits;

/* NULL without memory. `seed`: random; which keys share rows depends on it. */
rp_limits *rp_limits_create(const rp_limits_config *config, uint32_t selector_count, uint64_t seed);
uint64_t rp_limits_counter(const rp_limits *limits, uint32_t counter);

/* A process of this selector begins; no connection is open in it. */
void rp_limits_begin(rp_limits *limits, uint32_t selector, uint32_t epoch);
/* A connection is opened. RP_OK with its row, 0 if it is not limited; RP_FULL: close it, the address is blocked or has
 * too many. */
rp_status rp_limits_join(rp_limits *limits, uint32_t selector, const rp_host *peer, uint64_t now_ns, uint32_t *row);
void rp_limits_leave(rp_limits *limits, uint32_t selector, uint32_t row); /* it is closed */

/* For as long as the connection is open: */
int rp_limits_is_blocked(const rp_limits *limits, uint32_t row, uint64_t now_ns);
/* Returns 0: read the connection. Else a bucket is empty: do not read before this time, when it is full again. */
uint64_t rp_limits_wait(const rp_limits *limits, uint32_t row, uint64_t now_ns);
/* The connection was read: take so much out of its buckets. */
void rp_limits_spend(rp_limits *limits, uint32_t row, uint64_t requests, uint64_t bytes, uint64_t now_ns);

/* The identity of a request was refused. Returns how many of this address were, in this window; 0: not limited. */
uint32_t rp_limits_failed(rp_limits *limits, const rp_host *peer, uint64_t now_ns);

/* A request of an account. NULL: serve it, and take it out of the buckets of *row; else refuse it, with this text. */
const char *rp_limits_busy(rp_limits *limits, const uint8_t *key, uint32_t key_size, uint64_t now_ns, uint32_t *row);
void rp_limits_take(rp_limits *limits, uint32_t row, uint64_t bytes, uint64_t now_ns);
#endif
