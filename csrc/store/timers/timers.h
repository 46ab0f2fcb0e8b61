#ifndef ROCKETPY_TIMERS_H
#define ROCKETPY_TIMERS_H
/* The timer thread of the store worker: follows the timer queue, and hands due timers to the send worker
 * (docs/adr/0110). */
#include <stdint.h>
#include "base/status.h"
#include "ipc/ring.h"
#include "store/control/control_block.h"
#include "store/timers/timer_marks.h"

typedef struct rp_timers_config {
    rp_control_block *block;
    rp_timer_marks *marks;
    rp_worker *worker; /* the store worker, for its counters */
    const char *directory; /* of the runs */
    const char *commitlog_directory;
    const char *consume_queue_directory;
    uint64_t consume_queue_file_size;
    rp_ring *to_send;
    uint32_t heap_max;        /* timers in memory; 0: the usual number */
    uint32_t span_max; /* numbers from the oldest pending one on, before that is renewed; 0: the usual number */
    int64_t rest_ms; /* between two looks while the log does not grow; 0: the usual time */
    int64_t (*wall_ms)(void); /* NULL: CLOCK_REALTIME */
    int64_t (*boot_ms)(void); /* NULL: CLOCK_BOOTTIME */
} rp_timers_config;

typedef struct rp_timers rp_timers;

/* NULL with errno. The strings are copied. */
rp_timers *rp_timers_open(const rp_timers_config *config);
void rp_timers_close(rp_timers *timers);
/* One step: take what the queue has gained, set the bits of what was delivered, give away what is due; a bounded amount
 * of each, but for the scan after a power failure. RP_OK: more may be done at once; RP_EMPTY: nothing before a
 * timer is due or comes in; RP_STOPPED; RP_NO_SPACE, RP_NO_MEMORY, RP_IO_ERROR with errno: call again later, nothing is
 * lost. */
rp_status rp_timers_step(rp_timers *timers);
/* Steps until stopped (RP_STOPPED), an error, or `timeout_ns` have passed (RP_OK). */
rp_status rp_timers_run(rp_timers *timers, int64_t timeout_ns);
/* Records were dispatched: a thread that rests looks at the queue at once. Any thread. */
void rp_timers_wake(rp_timers *timers);
/* End rp_timers_run. Any thread. */
void rp_timers_stop(rp_timers *timers);
/* Bring runs and marks to the disk. Another thread; one at a time. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timers_sync(rp_timers *timers);
#endif
