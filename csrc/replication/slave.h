#ifndef ROCKETPY_SLAVE_H
#define ROCKETPY_SLAVE_H
/* One connected slave, as its master sees it: what it has reported, and what is sent to it.
 *
 * Nothing that a slave sends is believed further than it can be true: its first report lies within the log, later ones
 * never go back and never name bytes that were not sent to it. */
#include <stdint.h>
#include "base/status.h"
#include "replication/slave_table.h"
#include "replication/transfer.h"

/* What all slaves of a master have in common. */
typedef struct rp_slave_rules {
    uint64_t file_size;
    uint32_t frame_max;        /* haTransferBatchSize */
    int64_t heartbeat_ns;      /* haSendHeartbeatInterval */
    int64_t housekeeping_ns;   /* haHousekeepingInterval */
    int64_t stall_ns;          /* slaveTimeout */
    uint64_t bytes_per_second; /* maxHaTransferByteInSecond; 0: no limit */
} rp_slave_rules;

typedef struct rp_slave {
    int fd; /* -1: free */
    rp_slave_row *row;
    uint8_t report[RP_HA_REPORT];
    uint32_t report_size;   /* bytes of it that have arrived */
    int has_reported;
    int is_blocked;         /* the socket takes no more */
    uint64_t acked;
    uint64_t reported;      /* its last report, for the log */
    uint64_t read_ns, written_ns, behind_since_ns;
    uint64_t window_ns, window_bytes; /* of the limit on bytes per second: begin, bytes of it that are used */
    uint64_t paused_until_ns; /* 0, or when to try again what lacked memory or descriptors */
    rp_transfer transfer;
} rp_slave;

void rp_slave_open(rp_slave *slave, int fd, rp_slave_row *row, uint64_t now_ns);
/* Read reports. RP_OK; RP_STOPPED: close it, *why says why. `min` and `end`: between them the master has the log. */
rp_status rp_slave_read(rp_slave *slave, const rp_slave_rules *rules, uint64_t min, uint64_t end, uint64_t now_ns,
                        uint32_t *why);
/* Send what is due, up to `end`. RP_OK; RP_INCOMPLETE: there is more to send now; RP_STOPPED as rp_slave_read. */
rp_status rp_slave_write(rp_slave *slave, const rp_slave_rules *rules, rp_log_view *view, uint64_t end, uint64_t now_ns,
                         uint32_t *why);
/* Note whether it makes progress, when the master's log ends at `end`; 1 if sends may wait for it. */
int rp_slave_judge(rp_slave *slave, const rp_slave_rules *rules, uint64_t end, uint64_t now_ns);
/* 1 if nothing has come from it for too long. */
int rp_slave_is_silent(const rp_slave *slave, const rp_slave_rules *rules, uint64_t now_ns);
/* When it has to be looked at again, though nothing may have happened. */
uint64_t rp_slave_due_ns(const rp_slave *slave, const rp_slave_rules *rules, uint64_t end);
#endif
