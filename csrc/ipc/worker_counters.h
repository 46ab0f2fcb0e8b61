#ifndef ROCKETPY_WORKER_COUNTERS_H
#define ROCKETPY_WORKER_COUNTERS_H
/* Indexes of the counters in a worker's block (worker.h). The build makes this file of rocketpy/metrics/counters.py,
 * which says what each counter means: add a counter there. */

enum {
    RP_COUNT_LOOPS = 0, /* rocketpy_worker_loops */
    RP_COUNT_SLEEPS = 1, /* rocketpy_worker_sleeps */
    RP_COUNT_CONNECTIONS_OPENED = 2, /* rocketpy_remoting_connections_opened */
    RP_COUNT_CONNECTIONS_CLOSED = 3, /* rocketpy_remoting_connections_closed */
    RP_COUNT_CONNECTIONS_REFUSED = 4, /* rocketpy_remoting_connections_refused */
    RP_COUNT_ADDRESS_REFUSED = 5, /* rocketpy_remoting_address_refused */
    RP_COUNT_ADDRESS_CLOSED = 6, /* rocketpy_remoting_address_closed */
    RP_COUNT_THROTTLED = 7, /* rocketpy_remoting_throttled */
    RP_COUNT_BYTES_IN = 8, /* rocketpy_remoting_received_bytes */
    RP_COUNT_BYTES_OUT = 9, /* rocketpy_remoting_sent_bytes */
    RP_COUNT_FRAMES_IN = 10, /* rocketpy_remoting_frames_received */
    RP_COUNT_FRAMES_OUT = 11, /* rocketpy_remoting_frames_sent */
    RP_COUNT_FRAMES_BAD = 12, /* rocketpy_remoting_frames_bad */
    RP_COUNT_STALLS = 13, /* rocketpy_worker_stalls */
    RP_COUNT_IDLE_CLOSED = 14, /* rocketpy_remoting_idle_closed */
    RP_COUNT_PROXY_BAD = 15, /* rocketpy_remoting_proxy_bad */
    RP_COUNT_TLS_COMPLETED = 16, /* rocketpy_tls_handshakes */
    RP_COUNT_TLS_FAILED = 17, /* rocketpy_tls_handshakes_failed */
    RP_COUNT_TLS_TIMED_OUT = 18, /* rocketpy_tls_handshakes_timed_out */
    RP_COUNT_TLS_REFUSED = 19, /* rocketpy_tls_handshakes_refused */
    RP_COUNT_TLS_UNREAD_CLOSED = 20, /* rocketpy_tls_unread_closed */
    RP_COUNT_TLS_RELOADS = 21, /* rocketpy_tls_reloads */
    RP_COUNT_TLS_RELOADS_FAILED = 22, /* rocketpy_tls_reloads_failed */
    RP_COUNT_TLS_CONNECTIONS = 23, /* rocketpy_tls_connections */
    RP_COUNT_TLS_NOT_AFTER_S = 24, /* rocketpy_tls_certificate_not_after_seconds */
    RP_COUNT_PLAIN_REFUSED = 25, /* rocketpy_remoting_plain_refused */
    RP_COUNT_PINNING_CLOSED = 26, /* rocketpy_remoting_pinning_closed */
    RP_COUNT_UNFINISHED_CLOSED = 27, /* rocketpy_remoting_unfinished_closed */
    RP_COUNT_UNSENT_CLOSED = 28, /* rocketpy_remoting_unsent_closed */
    RP_COUNT_MESSAGES_PUT = 29, /* rocketpy_send_messages */
    RP_COUNT_BYTES_PUT = 30, /* rocketpy_send_bytes */
    RP_COUNT_PUT_FAILED = 31, /* rocketpy_send_failures */
    RP_COUNT_BUSY = 32, /* rocketpy_worker_busy_replies */
    RP_COUNT_SLOW = 33, /* rocketpy_worker_slow_requests */
    RP_COUNT_ROLLS = 34, /* rocketpy_store_file_rolls */
    RP_COUNT_LOG_UNREADABLE = 35, /* rocketpy_pull_log_unreadable */
    RP_COUNT_MESSAGES_GET = 36, /* rocketpy_pull_messages */
    RP_COUNT_BYTES_GET = 37, /* rocketpy_pull_bytes */
    RP_COUNT_PULLS = 38, /* rocketpy_pull_requests */
    RP_COUNT_PULL_MISS = 39, /* rocketpy_pull_misses */
    RP_COUNT_SUSPENDED = 40, /* rocketpy_pull_suspended_requests */
    RP_COUNT_SUSPENDED_BYTES = 41, /* rocketpy_pull_suspended_bytes */
    RP_COUNT_SUSPEND_REFUSED = 42, /* rocketpy_pull_suspend_refused */
    RP_COUNT_SUSPENDED_STEPS = 43, /* rocketpy_pull_suspended_steps */
    RP_COUNT_DISPATCHED = 44, /* rocketpy_store_dispatched_messages */
    RP_COUNT_INDEXED = 45, /* rocketpy_store_indexed_keys */
    RP_COUNT_FLUSHES = 46, /* rocketpy_store_flushes */
    RP_COUNT_FLUSH_NS = 47, /* rocketpy_store_flush_seconds */
    RP_COUNT_KEYS_CUT_SHORT = 48, /* rocketpy_store_keys_cut_short */
    RP_COUNT_STORE_FAULTS = 49, /* rocketpy_store_faults */
    RP_COUNT_WAITING = 50, /* gauge, of a query worker: requests that wait for its tasks */
    RP_COUNT_WAITING_SINCE_NS = 51, /* gauge: when the first of them was received; 0: none waits */
    RP_COUNT_TIMERS_ACCEPTED = 52, /* rocketpy_timer_accepted */
    RP_COUNT_TIMERS_DELIVERED = 53, /* rocketpy_timer_delivered */
    RP_COUNT_TIMERS_DEAD_LETTERS = 54, /* rocketpy_timer_dead_letters */
    RP_COUNT_TIMERS_SKIPPED = 55, /* rocketpy_timer_skipped */
    RP_COUNT_HALF_MESSAGES = 56, /* rocketpy_transaction_half_messages */
    RP_COUNT_TRANSACTIONS_COMMITTED = 57, /* rocketpy_transaction_commits */
    RP_COUNT_TRANSACTIONS_ROLLED_BACK = 58, /* rocketpy_transaction_rollbacks */
    RP_COUNT_TRANSACTIONS_DISCARDED = 59, /* rocketpy_transaction_discards */
    RP_COUNT_ENDS_REFUSED = 60, /* rocketpy_transaction_ends_refused */
    RP_COUNT_GET_TIME_MAX_US = 61, /* gauge: the longest service of a pull since the start */
    RP_COUNT_TIMERS_PENDING = 62, /* rocketpy_timer_pending_messages */
    RP_COUNT_TIMERS_NEXT_DUE_MS = 63, /* rocketpy_timer_next_due_seconds */
    RP_COUNT_TIMERS_OLDEST = 64, /* rocketpy_timer_oldest_phy_offset */
    RP_COUNT_TIMERS_RENEWED = 65, /* rocketpy_timer_renewed */
    RP_COUNT_TRANSACTIONS_RENEWED = 66, /* rocketpy_transaction_renewals */
    RP_COUNT_PUT_LATENCY = 67, /* rocketpy_send_latency_seconds */
    RP_COUNT_PUT_LATENCY_BUCKETS = 24,
    RP_COUNT_PUT_LATENCY_SUM = 91,
    RP_COUNT_TIMER_LATENESS = 92, /* rocketpy_timer_lateness_seconds */
    RP_COUNT_TIMER_LATENESS_BUCKETS = 20,
    RP_COUNT_TIMER_LATENESS_SUM = 112,
    RP_COUNT_FOLLOWING = 113, /* gauge, of a slave's replicator: RP_FOLLOWING_* */
    RP_COUNT_BAD_RECORDS = 114, /* rocketpy_ha_bad_records */
    RP_COUNT_STREAMS = 115, /* rocketpy_ha_streams */
    RP_COUNT_STREAMS_ENDED = 116, /* rocketpy_ha_streams_ended */
    RP_COUNT_MASTER_END = 117, /* rocketpy_ha_master_end_bytes */
    RP_COUNT_REPORTED = 118, /* rocketpy_ha_reported_offset_bytes */
    RP_COUNT_REQUEST_LOG_DROPPED = 119, /* rocketpy_worker_request_log_dropped */
};
#endif
