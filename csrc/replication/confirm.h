#ifndef ROCKETPY_CONFIRM_H
#define ROCKETPY_CONFIRM_H
/* Moves the confirmed position of a master with automatic failover: every in-sync member has
 * acknowledged the log below it, by the orders of the coordinator (docs/adr/0109).
 *
 * A position is confirmed only under orders that still hold (ipc/member.h). A pause of this process between two
 * steps, however long, or its death changes nothing about that. */
#include "ipc/member.h"
#include "store/control/control_block.h"
#include "replication/slave_table.h"

typedef struct rp_confirm {
    rp_member *member;
    rp_control *control;
    const rp_slave_table *table;
    int is_durable;          /* SYNC_FLUSH: this member has what is on its disk */
    uint64_t version_plus_1; /* of `orders`; 0: none were read */
    rp_member_orders orders;
    rp_store_id own;
} rp_confirm;

/* Read the orders, if they have changed. Returns 1 if those that are here hold as far as can be seen. */
int rp_confirm_look(rp_confirm *confirm);
/* Confirm what can be. Returns 1 if the position has moved. */
int rp_confirm_run(rp_confirm *confirm);
#endif
