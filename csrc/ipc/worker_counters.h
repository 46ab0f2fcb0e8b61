#ifndef ROCKETPY_WORKER_COUNTERS_H
#define ROCKETPY_WORKER_COUNTERS_H
/* Indexes of the counters in a worker's block (worker.h). rocketpy/metrics/counters.py has the same names and numbers.
 */

/* Counters of a worker's block; each worker adds to those it knows. */
enum {
    RP_COUNT_LOOPS = 0,
    RP_COUNT_SLEEPS = 1,
    RP_COUNT_CONNECTIONS_OPENED = 2,
    RP_COUNT_CONNECTIONS_CLOSED = 3,
    RP_COUNT_CONNECTIONS_REFUSED = 4,
    RP_COUNT_BYTES_IN = 5,
    RP_COUNT_BYTES_OUT = 6,
    RP_COUNT_FRAMES_IN = 7,
    RP_COUNT_FRAMES_OUT = 8,
    RP_COUNT_FRAMES_BAD = 9,
    RP_COUNT_STALLS = 10,
    RP_COUNT_IDLE_CLOSED = 11,
    RP_COUNT_PROXY_BAD = 12, /* connections of a proxy without a PROXY header; also counted in FRAMES_BAD */
    RP_COUNT_PINNING_CLOSED = 13,
    RP_COUNT_UNFINISHED_CLOSED = 14,
    RP_COUNT_UNSENT_CLOSED = 15, /* selector_limits.c */
    RP_COUNT_MESSAGES_PUT = 16,
    RP_COUNT_BYTES_PUT = 17,
    RP_COUNT_PUT_FAILED = 18,
    RP_COUNT_BUSY = 19,
    RP_COUNT_SLOW = 20,
    RP_COUNT_ROLLS = 21,
    RP_COUNT_LOG_UNREADABLE = 22, /* pulls refused because the record that they need cannot be read now */
    RP_COUNT_MESSAGES_GET = 24,
    RP_COUNT_BYTES_GET = 25,
    RP_COUNT_PULLS = 26,
    RP_COUNT_PULL_MISS = 27,
    RP_COUNT_SUSPENDED = 28, /* gauge: suspended pulls */
    RP_COUNT_SUSPENDED_BYTES = 29, /* gauge: memory of the suspended pulls */
    RP_COUNT_SUSPEND_REFUSED = 30, /* pulls answered at once because of the bounds in suspended_pulls.h */
    RP_COUNT_SUSPENDED_STEPS = 31, /* suspended pulls examined by the sweep or after an arrival */
    RP_COUNT_DISPATCHED = 32,
    RP_COUNT_INDEXED = 33,
    RP_COUNT_FLUSHES = 34,
    RP_COUNT_FLUSH_NS = 35,
    RP_COUNT_KEYS_CUT_SHORT = 36, /* messages with more keys than the index stores */
    RP_COUNT_STORE_FAULTS = 37, /* background steps of the store worker that failed */
    RP_COUNT_WAITING = 38, /* gauge, of a query worker: requests that wait for its tasks */
    RP_COUNT_WAITING_SINCE_NS = 39, /* gauge: when the first of them was received; 0: none waits */
    RP_COUNT_TIMERS_ACCEPTED = 40,
    RP_COUNT_TIMERS_DELIVERED = 41,
    RP_COUNT_TIMERS_DEAD_LETTERS = 42, /* delivered to the dead letters of the timer topic */
    RP_COUNT_TIMERS_SKIPPED = 43, /* their records cannot be read */
    RP_COUNT_HALF_MESSAGES = 44,
    RP_COUNT_TRANSACTIONS_COMMITTED = 45,
    RP_COUNT_TRANSACTIONS_ROLLED_BACK = 46,
    RP_COUNT_TRANSACTIONS_DISCARDED = 47,
    RP_COUNT_ENDS_REFUSED = 48, /* END_TRANSACTION that named no open half message */
    RP_COUNT_GET_TIME_MAX_US = 49, /* gauge: the longest service of a pull since the start */
    RP_COUNT_TIMERS_PENDING = 50, /* gauge, of the store worker */
    RP_COUNT_TIMERS_NEXT_DUE_MS = 51, /* gauge: time of the first of them; 0: none */
    RP_COUNT_TIMERS_OLDEST = 52, /* gauge: 1 + place in the log of the one that was stored first; 0: none */
    RP_COUNT_TIMERS_RENEWED = 53, /* stored again at the end of the log */
    RP_COUNT_TRANSACTIONS_RENEWED = 54, /* half messages stored again at the end of their queue */
    RP_COUNT_PUT_LATENCY = 64, /* 24 buckets: received to replied, upper bounds 2^k microseconds, k = 0.. */
    RP_COUNT_PUT_LATENCY_BUCKETS = 24,
    RP_COUNT_PUT_LATENCY_SUM_US = 88,
    RP_COUNT_TIMER_LATENESS = 96, /* 20 buckets: due to stored, upper bounds 2^k milliseconds, k = 0.. */
    RP_COUNT_TIMER_LATENESS_BUCKETS = 20,
    RP_COUNT_TIMER_LATENESS_SUM_MS = 116,
    RP_COUNT_FOLLOWING = 120, /* gauge, of a slave's replicator: RP_FOLLOWING_* */
    RP_COUNT_BAD_RECORDS = 121, /* from the master, not published */
    RP_COUNT_STREAMS = 122, /* connections to the master that brought its log */
    RP_COUNT_STREAMS_ENDED = 123,
    RP_COUNT_MASTER_END = 124, /* gauge: the position that the master named last */
    RP_COUNT_REPORTED = 125 /* gauge: the position that was reported to it last */
};

enum { /* RP_COUNT_FOLLOWING */
       RP_FOLLOWING_SEARCHING = 0, /* no master is known, or it does not answer */
       RP_FOLLOWING = 1,
       RP_FOLLOWING_HALTED = 2 /* the logs differ, or the master's cannot be used */
};
#endif
