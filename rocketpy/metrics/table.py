"""The metrics of a broker and of a name server under names of rocketpy. replication.py has those of replication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from .counters import COUNTERS, PLACES, Counter
from .metric import Buckets, Metric, Samples, counter, gauge, seconds
from .replication import REPLICATION_METRICS
from .snapshot import (
    AccessSnapshot,
    NamesrvSnapshot,
    QueueSnapshot,
    RegistrationSnapshot,
    Snapshot,
    StoreSnapshot,
    TlsSnapshot,
    TopicSnapshot,
    TransactionSnapshot,
    WorkerSnapshot,
)

# --- counters of workers: the rows of counters.py ---------------------------------------------------------------------


def _of_workers(row: Counter) -> Metric[Snapshot]:
    """Return the metric of one row."""
    first = PLACES[row.name]

    def samples(snapshot: Snapshot) -> Samples:
        for worker in snapshot.workers:
            value = worker.cell(first)
            if worker.role in row.roles or value:
                yield (worker.name,), value / row.per_unit

    def buckets(snapshot: Snapshot) -> Buckets:
        """Yield the histogram of each worker. The last bucket also holds what took longer, so it has no bound."""
        for worker in snapshot.workers:
            if worker.role in row.roles:
                total, found = 0, []
                for k in range(row.buckets):
                    total += worker.cell(first + k)
                    bound = "+Inf" if k == row.buckets - 1 else repr(2**k / row.per_unit)
                    found.append((bound, float(total)))
                yield (worker.name,), found, worker.cell(first + row.buckets) / row.per_unit

    return Metric(row.metric, row.kind, ("worker",), row.text, samples, buckets)


def _open_connections(worker: WorkerSnapshot) -> int:
    return worker.cell(PLACES["CONNECTIONS_OPENED"]) - worker.cell(PLACES["CONNECTIONS_CLOSED"])


# --- parts of a snapshot that may be absent ---------------------------------------------------------------------------


def _store(read: Callable[[StoreSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: () if snapshot.store is None else [((), read(snapshot.store))]


def _transactions(read: Callable[[TransactionSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: () if snapshot.transactions is None else [((), read(snapshot.transactions))]


def _registration(read: Callable[[RegistrationSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: () if snapshot.registration is None else [((), read(snapshot.registration))]


def _topics(read: Callable[[TopicSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: [((topic.topic,), read(topic)) for topic in snapshot.topics or ()]


# --- TLS of any server ------------------------------------------------------------------------------------------------

_S = TypeVar("_S")


def _tls_metrics(part: str, tls: Callable[[_S], TlsSnapshot | None]) -> tuple[Metric[_S], ...]:
    """Return the metrics of a server's TLS; they have no samples where it is off."""

    def of(read: Callable[[TlsSnapshot], Samples]) -> Callable[[_S], Samples]:
        return lambda snapshot: () if (found := tls(snapshot)) is None else read(found)

    return (
        counter(f"rocketpy_{part}tls_handshakes", "", "Accepted TLS connections.", of(lambda t: [((), t.handshakes)])),
        counter(f"rocketpy_{part}tls_plain", "", "Accepted plain connections, where TLS is permissive.",
                of(lambda t: [((), t.plain)])),
        counter(f"rocketpy_{part}tls_refused", "reason", "Refused connections; docs/run/tls.md has the reasons.",
                of(lambda t: [((reason,), count) for reason, count in sorted(t.refused.items())])),
        counter(f"rocketpy_{part}tls_reloads", "result", "Changed certificates: `loaded`, or `failed` to load.",
                of(lambda t: [(("loaded",), t.reloads), (("failed",), t.reload_failures)])),
        gauge(f"rocketpy_{part}tls_certificate_not_after_seconds", "",
              "Time since 1970 at which the first certificate of the chain expires.",
              of(lambda t: [((), t.not_after_s)])),
    )  # fmt: skip


def _access_metrics(part: str, access: Callable[[_S], AccessSnapshot | None]) -> tuple[Metric[_S], ...]:
    """Return the metrics of a server's access control; they have no samples where it is off."""

    def of(read: Callable[[AccessSnapshot], Samples]) -> Callable[[_S], Samples]:
        return lambda snapshot: () if (found := access(snapshot)) is None else read(found)

    return (
        counter(f"rocketpy_{part}access_refused", "reason", "Requests refused by access control.",
                of(lambda a: [((reason,), count) for reason, count in sorted(a.refused.items())])),
        gauge(f"rocketpy_{part}access_accounts", "", "Accounts of all files.", of(lambda a: [((), a.accounts)])),
        counter(f"rocketpy_{part}access_reload_failures", "", "Changed files of accounts that could not be read.",
                of(lambda a: [((), a.reload_failures)])),
        gauge(f"rocketpy_{part}access_failing_files", "", "Files of accounts whose former content is in effect.",
              of(lambda a: [((), a.failing_files)])),
    )  # fmt: skip


# --- the broker -------------------------------------------------------------------------------------------------------

OWN_METRICS: tuple[Metric[Snapshot], ...] = (
    gauge("rocketpy_build_info", "version cluster broker address", "Always 1; names this broker.",
          lambda s: [((s.version, s.cluster, s.broker, s.broker_addr), 1)]),
    gauge("rocketpy_clock_seconds", "", "Time of the broker's machine, seconds since 1970.",
          lambda s: [((), seconds(s.clock_ms))]),
    gauge("rocketpy_broker_start_time_seconds", "",
          "Start of the broker, seconds since 1970; a member with automatic failover also starts with each role.",
          lambda s: [((), s.start_s)]),
    gauge("rocketpy_worker_ready", "worker role", "1 while the worker serves.",
          lambda s: [((w.name, w.role), int(w.ready)) for w in s.workers]),
    gauge("rocketpy_worker_heartbeat_age_seconds", "worker", "Time since the worker's loop last turned.",
          lambda s: [((w.name,), w.heartbeat_age_s) for w in s.workers]),
    counter("rocketpy_worker_restarts", "worker", "Times the worker was replaced.",
            lambda s: [((w.name,), max(0, w.starts - 1)) for w in s.workers]),
    gauge("rocketpy_worker_rss_bytes", "worker", "Resident memory, shared pages included.",
          lambda s: [((w.name,), w.rss_bytes) for w in s.workers]),
    gauge("rocketpy_worker_pss_bytes", "worker", "Fair share of memory, up to a minute old; adds up over workers.",
          lambda s: [((w.name,), w.pss_bytes) for w in s.workers]),
    *(_of_workers(row) for row in COUNTERS if row.metric),
    gauge("rocketpy_remoting_connections", "worker", "Open connections.",
          lambda s: [((w.name,), _open_connections(w)) for w in s.workers if w.role == "selector"]),
    gauge("rocketpy_ring_used_bytes", "source target", "Bytes waiting in the ring.",
          lambda s: [((ring.source, ring.target), ring.used_bytes) for ring in s.rings]),
    gauge("rocketpy_ring_capacity_bytes", "source target", "Size of the ring.",
          lambda s: [((ring.source, ring.target), ring.capacity_bytes) for ring in s.rings]),
    gauge("rocketpy_pool_waiting_requests", "pool", "Requests waiting for a pool.",
          lambda s: [((pool.name,), pool.waiting) for pool in s.pools]),
    gauge("rocketpy_pool_queue_max_requests", "pool", "Requests that may wait per serving process.",
          lambda s: [((pool.name,), pool.queue_max) for pool in s.pools]),
    gauge("rocketpy_pool_head_wait_seconds", "pool", "Wait of the pool's oldest request.",
          lambda s: [((pool.name,), pool.head_wait_s) for pool in s.pools]),
    gauge("rocketpy_store_min_offset_bytes", "", "Start of the CommitLog.",
          _store(lambda store: store.min_phy_offset)),
    gauge("rocketpy_store_published_offset_bytes", "", "Records below it are complete.",
          _store(lambda store: store.published_phy_offset)),
    gauge("rocketpy_store_durable_offset_bytes", "", "Records below it are on the disk.",
          _store(lambda store: store.durable_phy_offset)),
    gauge("rocketpy_store_dispatched_offset_bytes", "", "Records below it can be consumed.",
          _store(lambda store: store.dispatched_phy_offset)),
    gauge("rocketpy_store_replicated_offset_bytes", "", "Records below it are on a slave.",
          _store(lambda store: store.replicated_phy_offset)),
    gauge("rocketpy_store_disk_used_ratio", "", "Fill level of the CommitLog's disk, 0 to 1.",
          lambda s: [((), float(ratio))] if (ratio := (s.runtime or {}).get("commitLogDiskRatio")) else ()),
    gauge("rocketpy_broker_topics", "", "Topics, system topics included.",
          lambda s: [((), s.topic_count if s.topics is None else len(s.topics))]),
    gauge("rocketpy_broker_groups", "", "Subscription groups.", lambda s: [((), s.groups)]),
    gauge("rocketpy_topic_queues", "topic", "Queues of the topic.", _topics(lambda topic: topic.queues)),
    gauge("rocketpy_topic_messages", "topic", "Readable messages of the topic.",
          _topics(lambda topic: topic.max_offset_sum - topic.min_offset_sum)),
    gauge("rocketpy_consumer_lag_messages", "group topic", "Unconsumed messages.",
          lambda s: [((row.group, row.topic), row.lag_messages) for row in s.consumption]),
    gauge("rocketpy_consumer_oldest_age_seconds", "group topic", "Age of the oldest unconsumed message; 0: none.",
          lambda s: [((row.group, row.topic), seconds(row.lag_ms)) for row in s.consumption]),
    gauge("rocketpy_group_differing_subscriptions", "group",
          "Different subscriptions of a group's members; groups with more than one, at most 100.",
          lambda s: [((group,), count) for group, count in s.differing_groups.items()]),
    gauge("rocketpy_consumer_behind_bytes", "group topic",
          "Log between the group's last message and the end (GROUP_GET_FALL_SIZE); "
          "a group far back reads from the disk.",
          lambda s: [((row.group, row.topic), row.behind_bytes) for row in s.consumption]),
    gauge("rocketpy_consumer_backlog_alarms", "",
          "Pairs of group and topic beyond backlogAlarmMessages or backlogAlarmAgeMillis.",
          lambda s: [((), s.backlog_alarms)]),
    gauge("rocketpy_table_entries", "table", "Entries of a table that clients fill.",
          lambda s: [((bound.name,), bound.entries) for bound in s.tables]),
    gauge("rocketpy_table_entries_max", "table",
          "Limit of the table (topicsMax, groupsMax, consumerOffsetsMax, queueLocksMax, clientGroupsMax, "
          "groupTopicsMax); of online clients, the bytes kept for a restarted manager.",
          lambda s: [((bound.name,), bound.maximum) for bound in s.tables]),
    counter("rocketpy_table_refused", "table", "Requests refused, or clients and groups not kept: table full.",
            lambda s: [((bound.name,), bound.refused) for bound in s.tables]),
    counter("rocketpy_broker_faults", "place", "Faults in requests and background duties; see the log.",
            lambda s: [((place,), count) for place, count in sorted(s.faults.items())]),
    gauge("rocketpy_transaction_open_messages", "", "Undecided half messages.", _transactions(lambda sums: sums.open)),
    gauge("rocketpy_transaction_oldest_open_seconds", "", "Age of the oldest open half message; absent: none.",
          _transactions(lambda sums: seconds(sums.oldest_age_ms))),
    counter("rocketpy_transaction_checks", "", "Questions sent to producers.", _transactions(lambda sums: sums.checks)),
    counter("rocketpy_transaction_checks_unreachable", "", "Checks without a connected producer.",
            _transactions(lambda sums: sums.unreachable)),
    *REPLICATION_METRICS,
    gauge("rocketpy_registration_topics", "", "Topics of the last registration.",
          _registration(lambda last: last.topics)),
    gauge("rocketpy_registration_bytes", "", "Size of the last registration, all parts.",
          _registration(lambda last: last.bytes)),
    gauge("rocketpy_registration_parts", "", "Requests of the last registration; several for very many topics.",
          _registration(lambda last: last.parts)),
    counter("rocketpy_registration_failures", "", "Registrations refused or unanswered by a name server.",
            _registration(lambda last: last.failures)),
    gauge("rocketpy_registration_last_success_seconds", "", "Last accepted registration, seconds since 1970.",
          _registration(lambda last: seconds(last.last_success_ms))),
    counter("rocketpy_limits", "event", "Requests refused at limits of accounts, addresses shut out, and what was let "
            "through because a table is full.",
            lambda s: [((event,), count) for event, count in sorted(s.limits.items())]),
    *_access_metrics("", lambda s: s.access),
)  # fmt: skip

# --- queues, for scrapes that name topics -----------------------------------------------------------------------------

Queues = Sequence[QueueSnapshot]


def _queues(read: Callable[[QueueSnapshot], float]) -> Callable[[Queues], Samples]:
    return lambda queues: [((queue.topic, str(queue.queue_id)), read(queue)) for queue in queues]


def _consumed(read: Callable[[QueueSnapshot, int], float]) -> Callable[[Queues], Samples]:
    return lambda queues: [
        ((group, queue.topic, str(queue.queue_id)), read(queue, offset))
        for queue in queues
        for group, offset in queue.consumed.items()
    ]


QUEUE_METRICS: tuple[Metric[Queues], ...] = (
    gauge("rocketpy_queue_min_offset", "topic queue", "First offset of the queue.", _queues(lambda q: q.min_offset)),
    gauge("rocketpy_queue_max_offset", "topic queue", "End of the queue.", _queues(lambda q: q.max_offset)),
    gauge("rocketpy_queue_consumer_offset", "group topic queue", "Committed offset.", _consumed(lambda q, at: at)),
    gauge("rocketpy_queue_lag_messages", "group topic queue", "Unconsumed messages.",
          _consumed(lambda q, at: max(0, q.max_offset - max(at, q.min_offset)))),
)  # fmt: skip

# --- the name server --------------------------------------------------------------------------------------------------

NAMESRV_METRICS: tuple[Metric[NamesrvSnapshot], ...] = (
    gauge("rocketpy_namesrv_brokers", "", "Live broker addresses.", lambda s: [((), s.brokers)]),
    gauge("rocketpy_namesrv_clusters", "", "Clusters.", lambda s: [((), s.clusters)]),
    gauge("rocketpy_namesrv_topics", "", "Topics with a route.", lambda s: [((), s.topics)]),
    gauge("rocketpy_namesrv_connections", "", "Open connections.", lambda s: [((), s.connections)]),
    counter("rocketpy_namesrv_requests", "code", "Requests served, by request code.",
            lambda s: [((code,), count) for code, count in sorted(s.requests.items())]),
    counter("rocketpy_namesrv_faults", "place", "Faults in requests and background duties; see the log.",
            lambda s: [((place,), count) for place, count in sorted(s.faults.items())]),
    counter("rocketpy_namesrv_registrations_refused", "",
            "Registrations refused at brokersMax, topicsMax, topicRoutesMax or topicBrokersMax.",
            lambda s: [((), s.registrations_refused)]),
    gauge("rocketpy_namesrv_rss_bytes", "", "Resident memory.", lambda s: [((), s.rss_bytes)]),
    *_tls_metrics("namesrv_", lambda s: s.tls),
    *_access_metrics("namesrv_", lambda s: s.access),
)  # fmt: skip
