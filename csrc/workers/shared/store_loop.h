#ifndef ROCKETPY_STORE_LOOP_H
#define ROCKETPY_STORE_LOOP_H
/* The main loop of the store worker: dispatch published records, else sleep on the doorbell. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/ring.h"
#include "store/dispatch/dispatch.h"
#include "store/log/flush.h"
#include "store/timers/timers.h"

/* Dispatch until there is work for Python. `manager` (may be NULL): the ring from the manager. `flush` (may be NULL):
 * its counts are copied to the worker's counters; with `wakes_flush` it is woken whenever records were published.
 * `timers` (may be NULL) are woken when records were dispatched.
 * RP_STOPPED the worker shall stop; RP_OK the manager's ring holds a message; RP_EMPTY `timeout_ns` have passed, or
 * half a second since a record came, so that the caller sees the log grow; otherwise an error of dispatch (dispatch.h).
 */
rp_status rp_store_loop(rp_dispatch *dispatch, rp_control *control, rp_worker *worker, rp_ring_reader *manager,
                        rp_flush *flush, int wakes_flush, rp_timers *timers, int64_t timeout_ns);
#endif
