#ifndef ROCKETPY_SLAVE_TABLE_H
#define ROCKETPY_SLAVE_TABLE_H
/* The slaves that are connected to this master, in shared memory that survives the workers.
 *
 * The replicator writes. The send worker reads whether there is a slave to wait for, the store worker which log files
 * slaves still need, the manager everything, for operators. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/member.h"

enum {
    RP_SLAVES_MAX = 64,     /* that replicate */
    RP_HANDSHAKES_MAX = 16, /* connections that do not replicate yet */
    RP_SLAVE_ROWS = 96,     /* both, and closed ones that Python has not been told of */
    RP_SLAVE_ADDRESS_MAX = 64
};

/* Why a slave's connection was closed. */
enum {
    RP_SLAVE_LEFT = 0,       /* it closed the connection, or the network did */
    RP_SLAVE_SILENT = 1,     /* nothing arrived for haHousekeepingInterval */
    RP_SLAVE_LONGER = 2,     /* it reported more than the master has */
    RP_SLAVE_BEHIND = 3,     /* it needs a part of the log that the master has deleted */
    RP_SLAVE_IMPLAUSIBLE = 4,/* it acknowledged what was not sent, or less than before, or sent no position */
    RP_SLAVE_FAILED = 5,     /* a log file could not be read */
    RP_SLAVE_STRANGER = 6,   /* its address is not in haAddresses, or it may not be a slave of the reference */
    RP_SLAVE_TOO_MANY = 7,   /* haConnectionsMax, or RP_HANDSHAKES_MAX */
    RP_SLAVE_DIVERGED = 8,   /* the end of its log differs from the master's */
    RP_SLAVE_FENCED = 9,     /* automatic failover: this broker is not the master, or not any more */
    RP_SLAVE_PLAIN = 10,     /* it is not encrypted, and tls.server.mode is enforcing */
    RP_SLAVE_NO_TLS = 11,    /* it speaks TLS, which is not served, or the TLS workers are behind */
    RP_SLAVE_REASONS = 12
};

enum { /* states of a row */
       RP_SLAVE_FREE = 0,      /* the row is not in use */
       RP_SLAVE_CONNECTED = 1, /* in the handshake */
       RP_SLAVE_REPLICATING = 2, /* gets the log, and acknowledges it */
       RP_SLAVE_STALLED = 3, /* gets the log, but acknowledges nothing */
       RP_SLAVE_CATCHING_UP = 4 /* acknowledges, but not what the log had slaveTimeout ago */
};

/* One connection. Readers may see an old value of one field beside a new one of another. */
typedef struct rp_slave_row {
    uint32_t state; /* RP_SLAVE_FREE to RP_SLAVE_CATCHING_UP */
    int32_t epoch;  /* with automatic failover: under which it acknowledges; set before the position. -1: none */
    uint64_t opened; /* number of the connection, from 1 on: the row is the same as long as this is */
    uint64_t acked_phy_offset; /* below it the slave has the log */
    uint64_t sent_phy_offset;  /* below it the log was handed to the kernel */
    uint64_t sent_bytes;       /* of the log, on this connection */
    uint64_t behind_since_ns;  /* CLOCK_MONOTONIC of the last progress while bytes wait; 0: it has everything */
    char address[RP_SLAVE_ADDRESS_MAX]; /* host:port */
    rp_store_id store; /* with automatic failover: which member's; set before the state says that it has reported */
} rp_slave_row;

typedef struct rp_slave_table {
    uint64_t available;           /* slaves that a send may wait for: they have reported and are not stalled */
    uint64_t available_phy_offset; /* the best acknowledgement of these */
    uint64_t needed;            /* 1 + the first position that some slave still needs; 0: none needs any */
    uint64_t sent_bytes;        /* of the log, to all slaves since the start */
    uint64_t opened;            /* connections since the start */
    uint64_t closed[RP_SLAVE_REASONS];
    rp_slave_row rows[RP_SLAVE_ROWS];
} rp_slave_table;

/* Replicator, when it starts: there is no slave any more. Counters stay. */
void rp_slave_table_clear(rp_slave_table *table);
/* 1 if a send that ends at `end_phy_offset` may wait for a slave: one is available, and none of the bytes that it lacks
 * is `fall_behind_max` or more behind. */
int rp_slave_table_can_wait(const rp_slave_table *table, uint64_t end_phy_offset, uint64_t fall_behind_max);
#endif
