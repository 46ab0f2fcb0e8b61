"""Every counter in a worker's block, once: its name in C, its metric and its meaning are one row of `COUNTERS`.

Made from the rows: `RP_COUNT_*` of csrc/ipc/worker_counters.h (the build writes that file), the metrics of workers
(table.py) and their lines in docs/run/metrics.md. The C adds to a counter with
`rp_add(&worker->counters[RP_COUNT_X], 1)`.
The build runs this file alone, with the standard library only.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Counter(NamedTuple):
    """A row: one cell of each worker's block; of a histogram its buckets, then the sum of what they count.

    Bucket k of a histogram counts what was up to 2^k units; the last one also what was more. Counters only grow, over
    restarts of the worker too.
    """

    name: str  # RP_COUNT_<name> in C
    metric: str  # a counter's without `_total`; "": no metric of its own
    roles: tuple[str, ...]  # shown for these workers always, for others when it is not zero
    text: str
    kind: Kind = Kind.COUNTER
    per_unit: float = 1.0  # units counted by C in one unit of the metric
    buckets: int = 0

    @property
    def cells(self) -> int:
        return self.buckets + 1


def _counter(name: str, metric: str, roles: str, text: str, *, per_unit: float = 1.0) -> Counter:
    return Counter(name, metric, tuple(roles.split()), text, Kind.COUNTER, per_unit)


def _gauge(name: str, metric: str, roles: str, text: str, *, per_unit: float = 1.0) -> Counter:
    return Counter(name, metric, tuple(roles.split()), text, Kind.GAUGE, per_unit)


def _histogram(name: str, buckets: int, metric: str, roles: str, text: str, *, per_unit: float) -> Counter:
    return Counter(name, metric, tuple(roles.split()), text, Kind.HISTOGRAM, per_unit, buckets)


def _hidden(name: str, text: str) -> Counter:
    """Return a counter that is no metric: other code reads it."""
    return Counter(name, "", (), text)


COUNTERS = (
    _counter("LOOPS", "rocketpy_worker_loops", "selector codec send pull store", "Turns of the worker's loop."),
    _counter("SLEEPS", "rocketpy_worker_sleeps", "selector codec send pull store",
             "Times the worker slept without work. Near to loops: idle; far below: busy."),
    _counter("CONNECTIONS_OPENED", "rocketpy_remoting_connections_opened", "selector", "Connections taken over."),
    _counter("CONNECTIONS_CLOSED", "rocketpy_remoting_connections_closed", "selector",
             "Connections closed, by either side."),
    _counter("CONNECTIONS_REFUSED", "rocketpy_remoting_connections_refused", "selector",
             "Connections refused at connectionsMax or the limit of open files."),
    _counter("ADDRESS_REFUSED", "rocketpy_remoting_address_refused", "selector",
             "Connections refused at addressConnectionsMax or failedAuthenticationsMax."),
    _counter("ADDRESS_CLOSED", "rocketpy_remoting_address_closed", "selector",
             "Open connections closed at addressConnectionsMax or failedAuthenticationsMax."),
    _counter("THROTTLED", "rocketpy_remoting_throttled", "selector",
             "Waits of connections at addressRequestsPerSecond or addressBytesPerSecond."),
    _counter("BYTES_IN", "rocketpy_remoting_received_bytes", "selector", "Bytes read from clients."),
    _counter("BYTES_OUT", "rocketpy_remoting_sent_bytes", "selector", "Bytes written to clients."),
    _counter("FRAMES_IN", "rocketpy_remoting_frames_received", "selector", "Frames read from clients."),
    _counter("FRAMES_OUT", "rocketpy_remoting_frames_sent", "selector", "Frames written to clients."),
    _counter("FRAMES_BAD", "rocketpy_remoting_frames_bad", "selector codec",
             "Unreadable frames; each closed its connection."),
    _counter("STALLS", "rocketpy_worker_stalls", "selector codec send pull", "Waits for a full ring: back-pressure."),
    _counter("IDLE_CLOSED", "rocketpy_remoting_idle_closed", "selector",
             "Connections closed without traffic (serverChannelMaxIdleTimeSeconds)."),
    _counter("PROXY_BAD", "rocketpy_remoting_proxy_bad", "selector",
             "Connections from proxyProtocolFrom closed without a PROXY header."),
    _counter("TLS_COMPLETED", "rocketpy_tls_handshakes", "tls", "TLS handshakes completed."),
    _counter("TLS_FAILED", "rocketpy_tls_handshakes_failed", "tls",
             "TLS handshakes that failed, and sessions closed for records without data."),
    _counter("TLS_TIMED_OUT", "rocketpy_tls_handshakes_timed_out", "tls",
             "TLS handshakes that were not complete after tlsHandshakeTimeoutMillis."),
    _counter("TLS_REFUSED", "rocketpy_tls_handshakes_refused", "selector tls",
             "TLS handshakes closed at the limits of unfinished handshakes or of open files; by a selector, because "
             "the TLS worker was behind."),
    _counter("TLS_UNREAD_CLOSED", "rocketpy_tls_unread_closed", "tls",
             "TLS connections closed because clients left more than 64 MiB unread, or the rest for 10 s."),
    _counter("TLS_RELOADS", "rocketpy_tls_reloads", "tls", "Changed certificates that were loaded."),
    _counter("TLS_RELOADS_FAILED", "rocketpy_tls_reloads_failed", "tls",
             "Changed certificates that cannot be loaded; new connections get the one before."),
    _gauge("TLS_CONNECTIONS", "rocketpy_tls_connections", "tls", "Connections with TLS."),
    _gauge("TLS_NOT_AFTER_S", "rocketpy_tls_certificate_not_after_seconds", "tls",
           "Time at which the certificate expires, seconds since 1970; 0: there is no file."),
    _counter("PLAIN_REFUSED", "rocketpy_remoting_plain_refused", "selector",
             "Connections without TLS closed (tls.server.mode=enforcing)."),
    _counter("PINNING_CLOSED", "rocketpy_remoting_pinning_closed", "selector",
             "Connections closed with unread answers from CommitLog files deleted a while ago."),
    _counter("UNFINISHED_CLOSED", "rocketpy_remoting_unfinished_closed", "selector",
             "Connections closed at unfinishedInputMax."),
    _counter("UNSENT_CLOSED", "rocketpy_remoting_unsent_closed", "selector", "Connections closed at unsentOutputMax."),
    _counter("MESSAGES_PUT", "rocketpy_send_messages", "send", "Messages appended to the CommitLog."),
    _counter("BYTES_PUT", "rocketpy_send_bytes", "send", "Bytes appended to the CommitLog."),
    _counter("PUT_FAILED", "rocketpy_send_failures", "send manager", "Sends answered with an error."),
    _counter("BUSY", "rocketpy_worker_busy_replies", "send pull", "Requests that waited too long: SYSTEM_BUSY."),
    _counter("SLOW", "rocketpy_worker_slow_requests", "send pull", "Requests left to the manager (slow path)."),
    _counter("ROLLS", "rocketpy_store_file_rolls", "send", "New files of the CommitLog."),
    _counter("LOG_UNREADABLE", "rocketpy_pull_log_unreadable", "pull",
             "SQL92 pulls refused: a CommitLog file cannot be opened."),
    _counter("MESSAGES_GET", "rocketpy_pull_messages", "pull", "Messages returned by pulls."),
    _counter("BYTES_GET", "rocketpy_pull_bytes", "pull", "Bytes returned by pulls."),
    _counter("PULLS", "rocketpy_pull_requests", "pull", "Pulls served."),
    _counter("PULL_MISS", "rocketpy_pull_misses", "pull", "Pulls that found nothing."),
    _gauge("SUSPENDED", "rocketpy_pull_suspended_requests", "pull", "Suspended pulls (long polling)."),
    _gauge("SUSPENDED_BYTES", "rocketpy_pull_suspended_bytes", "pull", "Memory of suspended pulls."),
    _counter("SUSPEND_REFUSED", "rocketpy_pull_suspend_refused", "pull",
             "Pulls answered at once: too many are suspended, in total or of the connection "
             "(pullThreadPoolQueueCapacity)."),
    _counter("COMMITS_DROPPED", "rocketpy_pull_offsets_dropped", "pull",
             "Offsets in pulls that were dropped, because offsets of 65536 other queues and groups waited for "
             "the manager."),
    _counter("SUSPENDED_STEPS", "rocketpy_pull_suspended_steps", "pull",
             "Suspended pulls examined, for new messages and deadlines."),
    _counter("DISPATCHED", "rocketpy_store_dispatched_messages", "store", "Messages entered in consume queues."),
    _counter("INDEXED", "rocketpy_store_indexed_keys", "store", "Keys entered in the index."),
    _counter("FLUSHES", "rocketpy_store_flushes", "store", "Flushes of the CommitLog."),
    _counter("FLUSH_NS", "rocketpy_store_flush_seconds", "store", "Time spent in flushes of the CommitLog.",
             per_unit=1e9),
    _counter("KEYS_CUT_SHORT", "rocketpy_store_keys_cut_short", "store",
             "Messages with more than 128 KEYS; the index has the first 128."),
    _counter("STORE_FAULTS", "rocketpy_store_faults", "store",
             "Failed background steps (cleaning, allocation, flushing units), tried again; see the log."),
    _hidden("WAITING", "gauge, of a query worker: requests that wait for its tasks"),
    _hidden("WAITING_SINCE_NS", "gauge: when the first of them was received; 0: none waits"),
    _counter("TIMERS_ACCEPTED", "rocketpy_timer_accepted", "send", "Timers accepted."),
    _counter("TIMERS_DELIVERED", "rocketpy_timer_delivered", "send", "Timers delivered, also to dead letters."),
    _counter("TIMERS_DEAD_LETTERS", "rocketpy_timer_dead_letters", "send",
             "Timers of deleted topics, delivered to %DLQ%rmq_sys_wheel_timer."),
    _counter("TIMERS_SKIPPED", "rocketpy_timer_skipped", "send",
             "Timers whose records are unreadable, or whose delivery crashed three send workers."),
    _counter("HALF_MESSAGES", "rocketpy_transaction_half_messages", "send", "Half messages stored."),
    _counter("TRANSACTIONS_COMMITTED", "rocketpy_transaction_commits", "send", "Transactions committed."),
    _counter("TRANSACTIONS_ROLLED_BACK", "rocketpy_transaction_rollbacks", "send", "Transactions rolled back."),
    _counter("TRANSACTIONS_DISCARDED", "rocketpy_transaction_discards", "send",
             "Undecided transactions moved to TRANS_CHECK_MAX_TIME_TOPIC."),
    _counter("ENDS_REFUSED", "rocketpy_transaction_ends_refused", "send",
             "END_TRANSACTION requests refused: no such half message, another group, or another end before."),
    _hidden("GET_TIME_MAX_US", "gauge: the longest service of a pull since the start"),
    _gauge("TIMERS_PENDING", "rocketpy_timer_pending_messages", "store", "Timers not delivered yet."),
    _gauge("TIMERS_NEXT_DUE_MS", "rocketpy_timer_next_due_seconds", "store",
           "Time of the first pending timer, seconds since 1970; 0: none.", per_unit=1e3),
    _gauge("TIMERS_OLDEST", "rocketpy_timer_oldest_phy_offset", "store",
           "1 + log offset of the oldest pending timer; keeps the log from there. 0: none."),
    _counter("TIMERS_RENEWED", "rocketpy_timer_renewed", "send", "Timers stored again to free their log files."),
    _counter("TRANSACTIONS_RENEWED", "rocketpy_transaction_renewals", "send",
             "Half messages open for long, stored again at the end of the half queue."),
    _histogram("PUT_LATENCY", 24, "rocketpy_send_latency_seconds", "send",
               "From the last byte of a send to its reply, in the broker.", per_unit=1e6),
    _histogram("TIMER_LATENESS", 20, "rocketpy_timer_lateness_seconds", "send",
               "From the time of a timer to its delivery.", per_unit=1e3),
    _hidden("FOLLOWING", "gauge, of a slave's replicator: RP_FOLLOWING_*"),
    _counter("BAD_RECORDS", "rocketpy_ha_bad_records", "replicator",
             "Slave: damaged records from the master, fetched again."),
    _counter("STREAMS", "rocketpy_ha_streams", "replicator", "Slave: connections that brought the master's log."),
    _counter("STREAMS_ENDED", "rocketpy_ha_streams_ended", "replicator",
             "Slave: connections that ended; it tries again."),
    _gauge("MASTER_END", "rocketpy_ha_master_end_bytes", "replicator", "Slave: known end of the master's log."),
    _gauge("REPORTED", "rocketpy_ha_reported_offset_bytes", "replicator", "Slave: position reported to the master."),
    _counter("REQUEST_LOG_DROPPED", "rocketpy_worker_request_log_dropped", "send pull manager",
             "Lines left out of the request log (requestLogSample): the manager was behind, or too many sends waited."),
)  # fmt: skip


def _places() -> dict[str, int]:
    found, place = {}, 0
    for row in COUNTERS:
        found[row.name] = place
        place += row.cells
    return found


PLACES = _places()
"""Name -> index of the (first) cell in a block: RP_COUNT_<name>."""


def c_header() -> str:
    """Return the text of csrc/ipc/worker_counters.h."""
    lines = []
    for row in COUNTERS:
        constants = {"": PLACES[row.name]}
        if row.buckets:
            constants |= {"_BUCKETS": row.buckets, "_SUM": PLACES[row.name] + row.buckets}
        lines += [f"    RP_COUNT_{row.name}{end} = {value}," for end, value in constants.items()]
        lines[-len(constants)] += f" /* {row.metric or row.text} */"
    return _C_HEADER.format(constants="\n".join(lines))


_C_HEADER = """\
#ifndef ROCKETPY_WORKER_COUNTERS_H
#define ROCKETPY_WORKER_COUNTERS_H
/* Indexes of the counters in a worker's block (worker.h). The build makes this file of rocketpy/metrics/counters.py,
 * which says what each counter means: add a counter there. */

enum {{
{constants}
}};
#endif
"""
