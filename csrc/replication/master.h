#ifndef ROCKETPY_MASTER_H
#define ROCKETPY_MASTER_H
/* The replicator of a master: sends the log to its slaves, and shows the send worker how far they have it.
 *
 * Runs alone in its process, GIL released. One loop serves all slaves: a slave that does not read costs a socket whose
 * buffer is full, and nothing else. Python accepts connections and says which may stay. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/worker.h"
#include "store/control_block.h"
#include "replication/slave_table.h"

typedef struct rp_master_config {
    rp_worker *worker;
    rp_worker *send; /* woken when a slave has acknowledged more */
    rp_control_block *block;
    rp_slave_table *table;
    const char *commitlog_directory;
    int32_t listener;          /* -1: none */
    uint32_t slaves_max;       /* haConnectionsMax */
    uint32_t frame_max;        /* haTransferBatchSize */
    uint32_t is_awaited;       /* 1: sends wait for slaves (SYNC_MASTER), so that each microsecond counts */
    int64_t heartbeat_ns;      /* haSendHeartbeatInterval */
    int64_t housekeeping_ns;   /* haHousekeepingInterval */
    int64_t stall_ns;          /* slaveTimeout */
    uint64_t bytes_per_second; /* maxHaTransferByteInSecond; 0: no limit */
    uint64_t (*clock_ns)(void);/* NULL: CLOCK_MONOTONIC */
} rp_master_config;

typedef struct rp_master rp_master;

/* A connection that was closed. */
typedef struct rp_slave_closed {
    uint32_t row;    /* in the slave table */
    uint32_t reason; /* RP_SLAVE_LEFT and others */
    uint64_t reported;
    uint64_t acked;
} rp_slave_closed;

/* NULL with errno. */
rp_master *rp_master_open(const rp_master_config *config);
void rp_master_close(rp_master *master);
/* Serve until there is work for Python. RP_EMPTY `timeout_ns` have passed; RP_INCOMPLETE connections wait to be
 * accepted; RP_NOT_FOUND a connection was closed (rp_master_closed); RP_STOPPED once stopped and every slave that can
 * be waited for has the whole log, or slaveTimeout has passed. */
rp_status rp_master_run(rp_master *master, int64_t timeout_ns);
/* Take over a connection, non-blocking; `address` is for operators. RP_OK; RP_FULL: there are slaves_max. */
rp_status rp_master_add(rp_master *master, int32_t fd, const char *address);
/* Do not look at the listener for `pause_ns`: nothing can be accepted now, and what waits there would keep the loop
 * busy. */
void rp_master_pause_accepting(rp_master *master, uint64_t pause_ns);
/* The next connection that was closed; 0: there is none. Its row is free from then on. */
int rp_master_closed(rp_master *master, rp_slave_closed *closed);
#endif
