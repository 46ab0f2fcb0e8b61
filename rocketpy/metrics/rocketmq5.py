"""The metrics of a broker under the names, labels, kinds and units of RocketMQ 5.x, for dashboards made for it.

Left out is what a 4.x broker does not know: sizes and kinds of messages, times of creations, pulled but unconsumed
messages, the pop path; and the figures of the timer wheel. Counters of transactions and timers have an empty label
`topic`: they are counted together.

Source: RocketMQ 5.x `BrokerMetricsManager`, `DefaultStoreMetricsManager`, `RemotingMetricsManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from .counters import COUNTERS, PLACES
from .metric import DLQ_PREFIX, RETRY_PREFIX, Buckets, Metric, Samples, counter, gauge, histogram, is_inner
from .snapshot import ConsumptionSnapshot, Snapshot, StoreSnapshot, TopicSnapshot

NODE = "cluster node_type node_id "
_STORAGE = NODE + "storage_type storage_medium"
_IN = NODE + "topic message_type is_system"
_OUT = NODE + "topic consumer_group is_system"
_GROUP = NODE + "consumer_group topic is_retry is_system"
_CALL = NODE + "protocol_type request_code response_code is_long_polling result"
_PROCESSORS = {
    "send": "send", "pull": "pull", "query": "query_message", "client": "heartbeat", "transaction": "transaction",
    "consumer": "consumer_manager", "admin": "admin", "reply": "reply",
}  # fmt: skip
"""The pool of ours that does the work of a processor of the reference."""


def _node(snapshot: Snapshot) -> tuple[str, str, str]:
    return snapshot.cluster, "broker", snapshot.broker


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def _with_node(
    samples: Callable[[Snapshot], Iterable[tuple[tuple[str, ...], float | None]]],
) -> Callable[[Snapshot], Samples]:
    """Put the labels that every metric has before those of the samples."""
    return lambda s: [((*_node(s), *labels), value) for labels, value in samples(s)]


def _of_topics(read: Callable[[TopicSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return _with_node(
        lambda s: [((t.topic, "normal", _text(t.is_system)), read(t)) for t in s.topics or () if not is_inner(t.topic)]
    )


def _got(read: Callable[[ConsumptionSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return _with_node(
        lambda s: [
            ((row.topic, row.group, _text(row.is_system)), read(row))
            for row in s.consumption
            if not is_inner(row.topic)
        ]
    )


def _lag(read: Callable[[ConsumptionSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return _with_node(
        lambda s: [
            ((row.group, row.topic, _text(row.topic.startswith(RETRY_PREFIX)), _text(row.is_system)), read(row))
            for row in s.consumption
        ]
    )


def _counted(name: str) -> Callable[[Snapshot], Samples]:
    """Return the samples of one counter or gauge of the workers, all topics together."""
    place = PLACES[name]
    return _with_node(lambda s: [(("",), sum(worker.cell(place) for worker in s.workers))] if s.workers else [])


def _storage(read: Callable[[StoreSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return _with_node(lambda s: [] if s.store is None else [(("local", "disk"), read(s.store))])


def _sends(snapshot: Snapshot) -> Buckets:
    """Return the histogram of the send workers, in ms; its bounds are powers of two, in microseconds."""
    (row,) = (row for row in COUNTERS if row.name == "PUT_LATENCY")
    first = PLACES[row.name]
    workers = [worker for worker in snapshot.workers if worker.role in row.roles]
    if not workers:
        return ()
    counts = [sum(worker.cell(first + k) for worker in workers) for k in range(row.buckets + 1)]
    bounds = [*(repr(2**k / 1000) for k in range(row.buckets - 1)), "+Inf"]
    totals = [float(sum(counts[: k + 1])) for k in range(row.buckets)]
    labels = (*_node(snapshot), "remoting", "send_message_v2", "success", "false", "success")
    return [(labels, list(zip(bounds, totals, strict=True)), counts[-1] / 1000)]


ROCKETMQ5_METRICS: tuple[Metric[Snapshot], ...] = (
    gauge("rocketmq_processor_watermark", NODE + "processor", "Requests that wait for the processor.",
          _with_node(lambda s: [((_PROCESSORS[pool.name],), pool.waiting) for pool in s.pools
                                if pool.name in _PROCESSORS])),
    gauge("rocketmq_broker_permission", NODE, "brokerPermission: 2 write, 4 read, 6 both.",
          _with_node(lambda s: [((), s.permission)])),
    gauge("rocketmq_topic_number", NODE, "Topics, system topics included.",
          _with_node(lambda s: [((), s.topic_count)])),
    gauge("rocketmq_consumer_group_number", NODE, "Subscription groups.", _with_node(lambda s: [((), s.groups)])),
    counter("rocketmq_messages_in", _IN, "Messages put; `message_type` is always `normal`.",
            _of_topics(lambda topic: topic.put_total)),
    counter("rocketmq_throughput_in", _IN, "Bytes put.", _of_topics(lambda topic: topic.put_bytes_total)),
    counter("rocketmq_messages_out", _OUT, "Messages got.", _got(lambda row: row.get_total)),
    counter("rocketmq_throughput_out", _OUT, "Bytes got.", _got(lambda row: row.get_bytes_total)),
    gauge("rocketmq_producer_connections", NODE + "language version protocol_type",
          "Producers online, once for each of their groups.",
          _with_node(lambda s: [((*key, "remoting"), count) for key, count in sorted(s.producer_clients.items())])),
    gauge("rocketmq_consumer_connections",
          NODE + "consumer_group language version consume_mode protocol_type is_system", "Consumers online.",
          _with_node(lambda s: [((*key[:4], "remoting", _text(is_system)), count)
                                for (*key, is_system), count in sorted(s.consumer_clients.items())])),
    gauge("rocketmq_consumer_lag_messages", _GROUP, "Unconsumed messages.", _lag(lambda row: row.lag_messages)),
    gauge("rocketmq_consumer_lag_latency", _GROUP, "Age of the oldest unconsumed message, ms.",
          _lag(lambda row: row.lag_ms)),
    counter("rocketmq_send_to_dlq_messages", _OUT.replace("topic consumer_group", "consumer_group topic"),
            "Dead letters; `topic` is their topic.",
            _with_node(lambda s: [((t.topic.removeprefix(DLQ_PREFIX), t.topic, _text(t.is_system)), t.max_offset_sum)
                                  for t in s.topics or () if t.topic.startswith(DLQ_PREFIX)])),
    counter("rocketmq_commit_messages", NODE + "topic", "Transactions committed.", _counted("TRANSACTIONS_COMMITTED")),
    counter("rocketmq_rollback_messages", NODE + "topic", "Transactions rolled back.",
            _counted("TRANSACTIONS_ROLLED_BACK")),
    gauge("rocketmq_half_messages", NODE + "topic", "Undecided half messages.",
          _with_node(lambda s: [] if s.transactions is None else [(("",), s.transactions.open)])),
    histogram("rocketmq_rpc_latency", _CALL, "Sends, ms. Bounds are powers of two of a microsecond.", _sends),
    gauge("rocketmq_storage_size", _STORAGE, "Bytes of the CommitLog.",
          _storage(lambda store: store.published_phy_offset - store.min_phy_offset)),
    gauge("rocketmq_storage_flush_behind_bytes", _STORAGE, "Bytes that are not on the disk.",
          _storage(lambda store: store.published_phy_offset - store.durable_phy_offset)),
    gauge("rocketmq_storage_dispatch_behind_bytes", _STORAGE, "Bytes that are not in consume queues.",
          _storage(lambda store: store.published_phy_offset - store.dispatched_phy_offset)),
    gauge("rocketmq_storage_message_reserve_time", _STORAGE, "Age of the oldest message, ms.",
          _storage(lambda store: store.oldest_age_ms)),
    gauge("rocketmq_timing_messages", NODE + "topic", "Timers not delivered yet.", _counted("TIMERS_PENDING")),
    counter("rocketmq_timer_enqueue", NODE + "topic", "Timers accepted.", _counted("TIMERS_ACCEPTED")),
    counter("rocketmq_timer_dequeue", NODE + "topic", "Timers delivered.", _counted("TIMERS_DELIVERED")),
)  # fmt: skip

_UNITS = {
    "rocketmq_throughput_in": "bytes",
    "rocketmq_throughput_out": "bytes",
    "rocketmq_consumer_lag_latency": "milliseconds",
    "rocketmq_rpc_latency": "milliseconds",
    "rocketmq_storage_size": "bytes",
    "rocketmq_storage_message_reserve_time": "milliseconds",
}
WITH_UNITS: tuple[Metric[Snapshot], ...] = tuple(
    attrs.evolve(metric, name=f"{metric.name}_{_UNITS[metric.name]}")
    for metric in ROCKETMQ5_METRICS
    if metric.name in _UNITS
)
"""As newer releases of OpenTelemetry spell them: with the unit."""
