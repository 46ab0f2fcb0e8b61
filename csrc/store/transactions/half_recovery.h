#ifndef ROCKETPY_HALF_RECOVERY_H
#define ROCKETPY_HALF_RECOVERY_H
/* Finds out at the start of a broker which half messages are open. */
#include <stdint.h>
#include "base/status.h"
#include "store/control/control_block.h"
#include "store/transactions/half_states.h"

typedef struct rp_half_recovery {
    uint64_t ops;  /* op messages read */
    uint64_t open; /* half messages that are open, as far as they are dispatched */
    uint64_t copies; /* of them marked as ended: copies of a transaction that is known */
    uint64_t ops_missing; /* committed half messages whose op message is not stored; it will be */
} rp_half_recovery;

/* Begin the window at `progress`, below which every half message has ended by this log, and mark the half messages that
 * the op queue names from there on. The progress must be proved: one that is only known from a table may name half
 * messages whose ends a power failure or a failover has taken. 0: nothing is known; the window begins with the half
 * queue, or 15/16 of a window before its end: no broker leaves half messages open for longer. A progress beyond the
 * dispatched half queue begins the window at that queue's end; one beyond the half messages of the log counts as 0. So
 * rp_recovery_next_offsets comes first.
 *
 * If the log was cut between a committed message and its op message, the half message counts as committed, too. Half
 * messages that a Java broker has stored again (for a check, or in the immunity time) count as one transaction: with an
 * end of one of them all have ended. One that a Java broker has discarded has ended.
 *
 * Reads the consume queues and the log as far as they are dispatched, then the rest of the log. Before the workers are
 * forked; takes about a microsecond for each op message since the oldest open half message, and, if one is open, for
 * each half message. RP_OK; RP_NO_MEMORY, RP_IO_ERROR: some states are unknown. */
rp_status rp_half_recover(rp_half_states *states, uint64_t progress, rp_control_block *block,
                          const char *commitlog_directory, const char *consume_queue_directory,
                          uint64_t consume_queue_file_size, rp_half_recovery *found);
#endif
