#ifndef ROCKETPY_MASTER_H
#define ROCKETPY_MASTER_H
/* The replicator of a master: sends the log to its slaves, and shows the send worker how far they have it.
 *
 * Runs alone in its process, GIL released. One loop serves all slaves: a slave that does not read costs a socket whose
 * buffer is full, and nothing else. Python accepts connections, and hands over those
 * that may be slaves (rocketpy/replication/master_handshakes.py). */
#include <stdint.h>
#include "base/status.h"
#include "ipc/member.h"
#include "ipc/worker.h"
#include "store/control/control_block.h"
#include "replication/slave_table.h"

typedef struct rp_master_config {
    rp_worker *worker;
    rp_worker *send; /* woken when a slave has acknowledged more */
    rp_control_block *block;
    rp_slave_table *table;
    const char *commitlog_directory;
    int32_t handshakes;        /* readable while Python has to look at connections that are no slaves yet; -1: none */
    uint32_t slaves_max;       /* haConnectionsMax; Python keeps to it */
    uint32_t frame_max;        /* haTransferBatchSize */
    uint32_t rocketpy_only; /* 1: Python refuses slaves of 4.9, which cannot prove that they know the secret */
    rp_member *member; /* haMode=automatic: whose orders hold; NULL: there is no coordinator */
    rp_worker *store; /* with `member`: woken when more is confirmed */
    uint32_t is_durable; /* with `member`: SYNC_FLUSH */
    uint32_t is_sync_master; /* 1: sends wait for slaves (SYNC_MASTER), so that each microsecond counts */
    int64_t heartbeat_ns; /* haSendHeartbeatInterval */
    int64_t housekeeping_ns; /* haHousekeepingInterval */
    int64_t stall_ns; /* slaveTimeout */
    uint64_t bytes_per_second; /* maxHaTransferByteInSecond; 0: no limit */
    uint64_t (*clock_ns)(void); /* NULL: CLOCK_MONOTONIC */
} rp_master_config;

typedef struct rp_master rp_master;

/* Why rp_master_run has returned. */
typedef enum rp_master_event {
    RP_MASTER_IDLE = 0, /* its time is over */
    RP_MASTER_ATTEND = 1, /* a connection was closed (rp_master_closed), or `handshakes` is readable */
    RP_MASTER_STOPPED = 2 /* the worker is to stop, and every slave that can be waited for has the whole log, or
                             slaveTimeout has passed */
} rp_master_event;

/* A connection that was closed. */
typedef struct rp_slave_closed {
    uint32_t row; /* in the slave table */
    uint32_t reason; /* RP_SLAVE_LEFT and others */
    uint64_t reported;
    uint64_t acked;
} rp_slave_closed;

/* NULL with errno. */
rp_master *rp_master_open(const rp_master_config *config);
void rp_master_close(rp_master *master);
/* Serve until there is work for Python, at most `timeout_ns`. */
rp_master_event rp_master_run(rp_master *master, int64_t timeout_ns);
/* Take over a connection whose row Python has taken, and which gets the log from `start` on
 * (rp_slave_connection_open). */
void rp_master_add(rp_master *master, uint32_t row, int32_t fd, int is_rocketpy, uint64_t start, uint64_t acked,
                   uint64_t written_ns);
/* The next connection that was closed; 0: there is none. Its row is free from then on. */
int rp_master_closed(rp_master *master, rp_slave_closed *closed);
/* With automatic failover, before the first slave is welcomed: the epochs of the log, the last of which this master
 * serves; borrowed until close. RP_OK; RP_INVALID: they are set already, and slaves' transfers read them. */
rp_status rp_master_set_epochs(rp_master *master, const rp_epoch *epochs, uint32_t count);
#endif
