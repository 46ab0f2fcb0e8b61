#ifndef ROCKETPY_SLAVE_CONNECTION_H
#define ROCKETPY_SLAVE_CONNECTION_H
/* A slave's connection, at the master: what the slave has reported, and what is sent to it. The slave's own end is
 * slave_stream.h.
 *
 * Bytes from a slave are validated: reports never go back and never name bytes that were not sent to it.
 *
 * It begins when the handshake of a slave of rocketpy is over, or with the first report of one of 4.9
 * (rocketpy/replication/master_handshakes.py). */
#include <stdint.h>
#include "base/status.h"
#include "replication/master.h"
#include "replication/slave_table.h"
#include "replication/transfer.h"

/* The rules that hold for all slaves of a master. */
typedef struct rp_slave_rules {
    const rp_master_config *config;
    uint64_t file_size;
    int32_t epoch;             /* the master's; without failover 0 */
    const rp_epoch *epochs;    /* of the log, with failover */
    uint32_t epoch_count;
    uint64_t confirmed;        /* as the slaves are told; without failover the end of the log */
} rp_slave_rules;

typedef struct rp_slave_connection {
    int fd; /* -1: free */
    rp_slave_row *row;
    uint8_t report[RP_HA_SIZE_FRAME_HEADER + RP_HA_SIZE_ACK]; /* a position, ACK or FENCED */
    uint32_t report_size;   /* bytes of it that have arrived */
    int is_rocketpy;        /* it sends ACK and FENCED; 0: positions */
    int is_blocked;         /* the socket takes no more */
    uint64_t acked;
    uint64_t awaited, awaited_since_ns; /* an end of the log that it has not acknowledged, and since when it is there */
    uint64_t reported; /* its last report, for the log */
    uint64_t read_ns, written_ns, behind_since_ns;
    uint64_t window_ns, window_bytes; /* of the limit on bytes per second: begin, bytes of it that are used */
    uint64_t told_confirmed; /* what its frames have said of it */
    uint64_t paused_until_ns; /* 0, or when to try again what lacked memory or descriptors */
    rp_transfer transfer;
} rp_slave_connection;

/* The slave gets the log from `start` on. A slave of 4.9 has reported `acked`; what one of rocketpy has is in its first
 * ACK. `written_ns`: when something was sent to it last, or it was accepted: a heartbeat may be due. */
void rp_slave_connection_open(rp_slave_connection *slave, const rp_slave_rules *rules, int fd, rp_slave_row *row,
                              int is_rocketpy, uint64_t start, uint64_t acked, uint64_t written_ns, uint64_t now_ns);
/* Read reports. RP_OK; RP_STOPPED: close it, *why says why. `end`: of the master's log. */
rp_status rp_slave_connection_read(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end,
                                   uint64_t now_ns, uint32_t *why);
/* Send what is due, up to `end`, and about `most` bytes of the log. RP_OK; RP_INCOMPLETE: there is more to send now;
 * RP_STOPPED as rp_slave_connection_read. */
rp_status rp_slave_connection_write(rp_slave_connection *slave, const rp_slave_rules *rules, rp_log_view *view,
                                    uint64_t end, uint64_t most, uint64_t now_ns, uint32_t *why);
/* Show its progress in its row, when the master's log ends at `end`. Returns 1 if sends may wait for it. */
int rp_slave_connection_publish(rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end, uint64_t now_ns);
/* When it has to be looked at again, though nothing may have happened. */
uint64_t rp_slave_connection_due_ns(const rp_slave_connection *slave, const rp_slave_rules *rules, uint64_t end);
#endif
