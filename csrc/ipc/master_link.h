#ifndef ROCKETPY_MASTER_LINK_H
#define ROCKETPY_MASTER_LINK_H
/* A slave's link to its master: what the slave's workers tell each other about it, in shared memory that survives them
 * (docs/adr/0124).
 *
 * The replicator numbers its streams: every connection to the master begins a new one. The send worker refuses a
 * stream that brings a bad record, or that does not continue the log; the replicator then begins another one. */
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
    uint64_t address_version;    /* manager: of the next two; a sequence lock (atomic.h) */
    char master[RP_ADDRESS_TEXT_MAX]; /* manager: the master's address for requests; empty: not known */
    char ha[RP_ADDRESS_TEXT_MAX];     /* manager: where it sends its log; empty: not known */
    uint64_t followed_version; /* replicator: of the next; a sequence lock */
    char followed[RP_ADDRESS_TEXT_MAX]; /* replicator: requests of the master whose log it follows; empty: none */
} rp_master_link;

/* Zeroed shared memory; NULL with errno. Before the workers are forked. */
rp_master_link *rp_master_link_create(void);
/* Manager: set the addresses; both end with a zero. */
void rp_master_link_set_master(rp_master_link *link, const char *master, const char *ha);
/* Any process: copy the addresses, RP_ADDRESS_TEXT_MAX bytes each. 1; 0: they are being changed, try again. */
int rp_master_link_read_master(const rp_master_link *link, char *master, char *ha);
/* Replicator: set the address for requests of the master that it follows, ended by a zero; empty: none. */
void rp_master_link_set_followed(rp_master_link *link, const char *master);
/* Any process: copy it, RP_ADDRESS_TEXT_MAX bytes. 1; 0: it is being changed, try again. */
int rp_master_link_read_followed(const rp_master_link *link, char *master);
#endif
