#ifndef ROCKETPY_HALF_RECOVERY_H
#define ROCKETPY_HALF_RECOVERY_H
/* Finds out at the start of a broker which half messages are open. */
#include <stdint.h>
#include "base/status.h"
#include "store/control_block.h"
#include "store/half_states.h"

typedef struct rp_half_recovery {
    uint64_t ops;  /* op messages read */
    uint64_t open; /* half messages that are open, as far as they are dispatched */
    uint64_t copies; /* of them marked as ended: copies of a transaction that is known */
    uint64_t ops_missing; /* committed half messages whose op message is not stored; it will be */
} rp_half_recovery;

/* Begin the window at `progress`, the stored one, and mark the half messages that the op queue names from there on. If
 * the log was cut between a committed message and its op message, the half message counts as committed, too. A progress
 * beyond the queue ends nothing: it was saved, and then a power failure took the end of the log. Half messages
 * that a Java broker has stored again (for a check, or in the immunity time) count as one transaction with the copy
 * that is kept.
 *
 * Reads the consume queues and the log as far as they are dispatched, then the rest of the log. Before the workers are
 * forked; takes about a microsecond for each op message since the oldest open half message. RP_OK; RP_NO_MEMORY,
 * RP_IO_ERROR: some states are unknown. */
rp_status rp_half_recover(rp_half_states *states, uint64_t progress, rp_control_block *block,
                          const char *commitlog_directory, const char *consume_queue_directory,
                          uint64_t consume_queue_file_size, rp_half_recovery *found);
#endif
