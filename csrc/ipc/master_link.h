#ifndef ROCKETPY_MASTER_LINK_H
#define ROCKETPY_MASTER_LINK_H
/* A slave's link to its master: what the slave's workers tell each other about it, in shared memory that survives them
 * (docs/adr/0124).
 *
 * The replicator numbers its streams: every connection to the master begins a new one. The send worker refuses a
 * stream that brings a bad record, or that does not continue the log; the replicator then begins another one.
 * Short: fields alone; shared.h makes it and copies addresses. */
#include <stdint.h>

enum { RP_ADDRESS_TEXT_MAX = 320 }; /* bytes of `host:port`, its end included */

enum { /* why the send worker has refused a stream */
       RP_REFUSED_BAD_RECORD = 1,
       RP_REFUSED_GAP = 2 /* it does not continue the log: the send worker was restarted */
};

typedef struct rp_master_link {
    uint64_t stream;             /* replicator: number of the last stream */
    uint64_t refused_stream;     /* send: streams up to this one are refused */
    uint64_t refused_phy_offset; /* send: the published position, where that happened */
    uint32_t refused_reason;     /* send: RP_REFUSED_* */
    uint32_t reserved;
    uint64_t address_version;    /* manager: of the next two; a sequence lock (shared.h) */
    char master[RP_ADDRESS_TEXT_MAX]; /* manager: the master's address for requests; empty: not known */
    char ha[RP_ADDRESS_TEXT_MAX];     /* manager: where it sends its log; empty: not known */
    uint64_t followed_version; /* replicator: of the next; a sequence lock */
    char followed[RP_ADDRESS_TEXT_MAX]; /* replicator: requests of the master whose log it follows; empty: none */
} rp_master_link;

#endif
