"""Places of the counts in a worker's block of counters: `RP_COUNT_*` of csrc/ipc/worker_counters.h, by the same
names."""

from __future__ import annotations

import enum

COUNTERS_MAX = 128
PUT_LATENCY_BUCKETS = 24
TIMER_LATENESS_BUCKETS = 20


class Count(enum.IntEnum):
    """Index of a counter. All only grow, over restarts of the worker too, but for gauges."""

    LOOPS = 0
    SLEEPS = 1
    CONNECTIONS_OPENED = 2
    CONNECTIONS_CLOSED = 3
    CONNECTIONS_REFUSED = 4
    BYTES_IN = 5
    BYTES_OUT = 6
    FRAMES_IN = 7
    FRAMES_OUT = 8
    FRAMES_BAD = 9
    STALLS = 10
    IDLE_CLOSED = 11
    PROXY_BAD = 12
    PINNING_CLOSED = 13
    UNFINISHED_CLOSED = 14
    UNSENT_CLOSED = 15
    MESSAGES_PUT = 16
    BYTES_PUT = 17
    PUT_FAILED = 18
    BUSY = 19
    SLOW = 20
    ROLLS = 21
    LOG_UNREADABLE = 22
    MESSAGES_GET = 24
    BYTES_GET = 25
    PULLS = 26
    PULL_MISS = 27
    SUSPENDED = 28  # gauge: suspended pulls
    SUSPENDED_BYTES = 29  # gauge
    SUSPEND_REFUSED = 30
    SUSPENDED_STEPS = 31
    DISPATCHED = 32
    INDEXED = 33
    FLUSHES = 34
    FLUSH_NS = 35
    KEYS_CUT_SHORT = 36
    STORE_FAULTS = 37
    WAITING = 38
    WAITING_SINCE_NS = 39
    TIMERS_ACCEPTED = 40
    TIMERS_DELIVERED = 41
    TIMERS_DEAD_LETTERS = 42
    TIMERS_SKIPPED = 43
    HALF_MESSAGES = 44
    TRANSACTIONS_COMMITTED = 45
    TRANSACTIONS_ROLLED_BACK = 46
    TRANSACTIONS_DISCARDED = 47
    ENDS_REFUSED = 48
    GET_TIME_MAX_US = 49
    TIMERS_PENDING = 50  # gauge
    TIMERS_NEXT_DUE_MS = 51  # gauge
    TIMERS_OLDEST = 52  # gauge
    TIMERS_RENEWED = 53
    TRANSACTIONS_RENEWED = 54
    PUT_LATENCY = 64  # the first of PUT_LATENCY_BUCKETS; bucket k counts what took up to 2^k microseconds
    PUT_LATENCY_SUM_US = 88
    TIMER_LATENESS = 96  # the first of TIMER_LATENESS_BUCKETS; bucket k counts what was up to 2^k milliseconds late
    TIMER_LATENESS_SUM_MS = 116
    FOLLOWING = 120  # gauge
    BAD_RECORDS = 121
    STREAMS = 122
    STREAMS_ENDED = 123
    MASTER_END = 124  # gauge
    REPORTED = 125  # gauge
