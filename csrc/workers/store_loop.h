#ifndef ROCKETPY_STORE_LOOP_H
#define ROCKETPY_STORE_LOOP_H
/* The main loop of the store worker: dispatch what is published, sleep on the doorbell in between. */
#include <stdint.h>
#include "store/dispatch.h"
#include "store/flush.h"
#include "ipc/ring.h"
#include "base/status.h"

/* Dispatch until there is something for Python. `manager` (may be NULL): the ring that CLEAN_TOPIC comes by; `flush`:
 * its counts are shown in the worker's counters (NULL: none), and with `pokes_flush` it is poked whenever something
 * new is published.
 * RP_STOPPED the worker is to stop; RP_OK the manager's ring holds something; RP_EMPTY `timeout_ns` have passed;
 * otherwise the fault that dispatch met (dispatch.h). */
rp_status rp_store_loop(rp_dispatch *dispatch, rp_control *control, rp_worker *worker, rp_ring_reader *manager,
                        rp_flush *flush, int pokes_flush, int64_t timeout_ns);
#endif
