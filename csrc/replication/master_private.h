#ifndef ROCKETPY_MASTER_PRIVATE_H
#define ROCKETPY_MASTER_PRIVATE_H
/* What the files of a master's replicator share: its state. For master.c and master_slaves.c alone. */
#include <poll.h>
#include "replication/confirm.h"
#include "replication/master.h"
#include "replication/slave_connection.h"

enum { LISTENER = 0, DOORBELL = 1, SLAVES = 2 }; /* places in `polled` */

struct rp_master {
    rp_master_config config;
    rp_slave_rules rules;
    rp_control *control;
    rp_log_view *view;
    rp_slave_connection slaves[RP_SLAVE_ROWS];
    struct pollfd polled[SLAVES + RP_SLAVE_ROWS];
    struct {
        uint32_t is_closed;
        uint32_t reason;
    } closed[RP_SLAVE_ROWS]; /* rows that Python has not been told of */
    uint32_t closed_count;
    uint32_t asking_count; /* slaves that wait for an answer of Python */
    uint32_t used;         /* rows from here on are free */
    uint32_t first;        /* the first row that is served in the next turn */
    uint64_t replicated; /* as the control block has it */
    uint64_t worked_ns, stopping_ns, accept_from_ns;
    int has_more; /* some slave can be sent more at once */
    rp_confirm confirm; /* with automatic failover */
    rp_epoch *epochs;   /* owned; NULL: not known yet */
};

static inline uint64_t now_of(const rp_master *master) { return master->config.clock_ns(); }

/* 1 if its handshake waits for Python. */
static inline int is_asking(const rp_slave_connection *slave) {
    return slave->fd >= 0 && (slave->handshake == RP_HA_STATE_GREETED || slave->handshake == RP_HA_STATE_INTRODUCED);
}

/* Close a connection; Python learns the reason, RP_SLAVE_*. */
void rp_master_drop(rp_master *master, uint32_t index, uint32_t reason);
#endif
