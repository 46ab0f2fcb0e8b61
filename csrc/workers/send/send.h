#ifndef ROCKETPY_SEND_H
#define ROCKETPY_SEND_H
/* The send worker: the only writer of the CommitLog.
 *
 * It appends messages to known topics and answers the sends; all other sends go to the manager (worker_messages.h).
 * Runs alone in its process, GIL released. It owns the writer of the log, a private topic table, and replies that wait
 * for the disk. */
#include <stdint.h>
#include "base/status.h"
#include "ipc/master_link.h"
#include "ipc/member.h"
#include "ipc/ring.h"
#include "ipc/worker_messages.h"
#include "store/control/control_block.h"
#include "store/log/record.h"
#include "store/timers/delivery_marks.h"
#include "store/timers/timer_marks.h"
#include "store/transactions/half_states.h"
#include "replication/slave_table.h"

enum { RP_SEND_KEEP_MS = 2500 }; /* a send waits so long for a change of master: clients wait for 3 s by default */

typedef struct rp_send_config {
    rp_worker *worker;
    rp_worker *store;             /* woken after appends (dispatch) and when a reply waits for the disk (flush) */
    rp_worker *replicator;        /* woken after appends; NULL: there is none */
    rp_control_block *block;
    const char *commitlog_directory;
    const char *consume_queue_directory; /* needed with `half_states` */
    uint64_t consume_queue_file_size;
    uint32_t input_count;         /* rings from codecs (or selectors, when inline) */
    uint32_t selector_count;
    rp_ring **inputs;
    rp_ring *from_manager;
    rp_ring *to_manager;
    rp_ring **selectors;          /* reply rings */
    rp_delivery_marks *marks; /* NULL: repeated deliveries are not detected */
    rp_half_states *half_states; /* NULL: half messages go to the manager, and END_TRANSACTION is refused */
    rp_ring *from_store;          /* TIMER messages; NULL: there are no timers */
    rp_timer_marks *timers;
    int64_t timer_max_delay_ms;   /* timerMaxDelaySec */
    rp_host store_host;           /* brokerIP1:listenPort */
    const char *cluster_property; /* "CLUSTER\x01name"; kept by the caller */
    const char *region;           /* regionId; needs no JSON escapes */
    int32_t version;
    uint32_t trace_on;
    uint32_t max_message_size;    /* bytes of body */
    uint32_t sync_flush;          /* 1: SYNC_FLUSH */
    uint32_t fast_failure;        /* brokerFastFailureEnable */
    uint32_t request_log_sample;  /* requestLogSample */
    uint32_t is_slave; /* the log comes from a master: `master_link` and `from_replicator` are set, timers not */
    uint32_t check_crc; /* haCheckCrc */
    rp_master_link *master_link;
    rp_ring *from_replicator; /* LOG messages */
    int64_t sync_flush_timeout_ms;
    rp_member *member; /* haMode=automatic: obeyed; NULL: there is no coordinator */
    uint32_t waits_for_confirmed; /* 1: with `member`, a synchronous group: sends wait until all that count have them */
    const rp_slave_table *slaves; /* SYNC_MASTER: sends wait for one of them; NULL: they wait for none */
    uint64_t fall_behind_max; /* haSlaveFallbehindMax, bytes */
    int64_t slave_timeout_ms; /* slaveTimeout */
    int64_t wait_time_in_queue_ms; /* waitTimeMillsInSendQueue */
    int64_t page_cache_busy_ms; /* osPageCacheBusyTimeOutMills */
    uint64_t dispatch_lag_max; /* dispatchLagMax, bytes; 0: no bound */
    uint64_t (*clock_ns)(void); /* NULL: CLOCK_MONOTONIC */
    int64_t (*wall_ms)(void); /* NULL: CLOCK_REALTIME */
    int64_t (*boot_ms)(void); /* NULL: CLOCK_BOOTTIME */
    int (*in_memory)(const uint8_t *at, uint64_t size); /* whether a half message is; NULL: asks the kernel */
} rp_send_config;

typedef struct rp_send rp_send;

/* NULL with errno. Recovers each queue's next offset from the published records; before the first run. */
rp_send *rp_send_open(const rp_send_config *config);
void rp_send_close(rp_send *send);
/* RP_OK after `timeout_ns`; RP_STOPPED once stopped and every reply is written. */
rp_status rp_send_run(rp_send *send, int64_t timeout_ns);
#endif
