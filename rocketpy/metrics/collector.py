"""Converts a snapshot to Prometheus samples at scrape time; nothing is kept between scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from . import replication, table
from .counters import PUT_LATENCY_BUCKETS, TIMER_LATENESS_BUCKETS, Count
from .metric import Kind, Metric
from .snapshot import (
    ConsumptionSnapshot,
    NamesrvSnapshot,
    RegistrationSnapshot,
    Snapshot,
    StoreSnapshot,
    TopicSnapshot,
    TransactionSnapshot,
    WorkerSnapshot,
)

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

Samples = Iterable[tuple[Sequence[str], float | None]]


class BrokerCollector(Collector):
    """Samples of a broker.

    `snapshot` is called once per scrape, in a thread of the endpoint: it must read only what may be read from there
    (shared memory, frozen values).
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Family]:
        """Nothing: registering must not take a snapshot before the broker is up."""
        return ()

    def collect(self) -> Iterator[Family]:
        snapshot = self._snapshot()
        yield from self._identity(snapshot)
        yield from _workers(snapshot.workers)
        yield from self._rings(snapshot)
        yield from self._pools(snapshot)
        if snapshot.store is not None:
            yield from _store(snapshot.store)
        yield from self._tables(snapshot)
        yield from _transactions(snapshot.transactions)
        if snapshot.replication is not None:
            for metric, found in replication.samples(snapshot.replication):
                yield from _family(metric, found)
        if snapshot.registration is not None:
            yield from _registration(snapshot.registration)
        yield from _exporter(snapshot)
        yield from _runtime(snapshot)

    def _identity(self, snapshot: Snapshot) -> Iterator[Family]:
        labels = (snapshot.version, snapshot.cluster, snapshot.broker, snapshot.broker_addr)
        yield from _family(table.BUILD_INFO, [(labels, 1)])

    def _rings(self, snapshot: Snapshot) -> Iterator[Family]:
        rings = snapshot.rings
        yield from _family(table.RING_USED, [((ring.source, ring.target), ring.used_bytes) for ring in rings])
        yield from _family(table.RING_CAPACITY, [((ring.source, ring.target), ring.capacity_bytes) for ring in rings])

    def _pools(self, snapshot: Snapshot) -> Iterator[Family]:
        pools = snapshot.pools
        yield from _family(table.POOL_WAITING, [((pool.name,), pool.waiting) for pool in pools])
        yield from _family(table.POOL_QUEUE_MAX, [((pool.name,), pool.queue_max) for pool in pools])
        yield from _family(table.POOL_HEAD_WAIT, [((pool.name,), pool.head_wait_s) for pool in pools])

    def _tables(self, snapshot: Snapshot) -> Iterator[Family]:
        topics = snapshot.topics
        count = snapshot.topic_count if topics is None else len(topics)
        yield from _family(table.TOPICS, [((), count)])
        yield from _family(table.GROUPS, [((), snapshot.groups)])
        yield from _family(table.TOPIC_QUEUES, [((topic.topic,), topic.queues) for topic in topics or ()])
        yield from _family(
            table.TOPIC_MESSAGES,
            [((topic.topic,), topic.max_offset_sum - topic.min_offset_sum) for topic in topics or ()],
        )
        yield from _family(
            table.CONSUMER_LAG, [((item.group, item.topic), item.lag_messages) for item in snapshot.consumption]
        )
        yield from _family(
            table.CONSUMER_OLDEST,
            [
                ((item.group, item.topic), None if item.lag_ms is None else item.lag_ms / 1000)
                for item in snapshot.consumption
            ],
        )
        differing = [((group,), count) for group, count in snapshot.differing_groups.items()]
        yield from _family(table.GROUP_DIFFERING, differing)
        yield from _family(
            table.CONSUMER_BEHIND, [((item.group, item.topic), item.behind_bytes) for item in snapshot.consumption]
        )
        yield from _family(table.BACKLOG_ALARMS, [((), snapshot.backlog_alarms)])
        yield from _family(table.TABLE_ENTRIES, [((bound.name,), bound.entries) for bound in snapshot.tables])
        yield from _family(table.TABLE_MAX, [((bound.name,), bound.maximum) for bound in snapshot.tables])
        yield from _family(table.TABLE_REFUSED, [((bound.name,), bound.refused) for bound in snapshot.tables])
        yield from _family(table.FAULTS, [((place,), count) for place, count in sorted(snapshot.faults.items())])


class NamesrvCollector(Collector):
    """Samples of a name server; `snapshot` as for `BrokerCollector`."""

    def __init__(self, snapshot: Callable[[], NamesrvSnapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Family]:
        """Nothing, as for the broker."""
        return ()

    def collect(self) -> Iterator[Family]:
        snapshot = self._snapshot()
        yield from _family(table.NAMESRV_BROKERS, [((), snapshot.brokers)])
        yield from _family(table.NAMESRV_CLUSTERS, [((), snapshot.clusters)])
        yield from _family(table.NAMESRV_TOPICS, [((), snapshot.topics)])
        yield from _family(table.NAMESRV_CONNECTIONS, [((), snapshot.connections)])
        yield from _family(table.NAMESRV_REQUESTS, [((code,), n) for code, n in sorted(snapshot.requests.items())])
        yield from _family(table.NAMESRV_FAULTS, [((place,), n) for place, n in sorted(snapshot.faults.items())])
        yield from _family(table.NAMESRV_REFUSED, [((), snapshot.registrations_refused)])
        yield from _family(table.NAMESRV_RSS, [((), snapshot.rss_bytes)])


def _family(metric: Metric, samples: Samples) -> Iterator[Family]:
    """The family of `metric`, when it has samples; those of value None are left out."""
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        if value is not None:
            family.add_metric(labels, value)
    if family.samples:
        yield family


def _count(worker: WorkerSnapshot, index: int) -> int:
    return worker.counters[index] if index < len(worker.counters) else 0


def _workers(workers: Sequence[WorkerSnapshot]) -> Iterator[Family]:
    yield from _family(table.WORKER_READY, [((w.name, w.role), int(w.ready)) for w in workers])
    yield from _family(table.WORKER_HEARTBEAT, [((w.name,), w.heartbeat_age_s) for w in workers])
    yield from _family(table.WORKER_RESTARTS, [((w.name,), max(0, w.starts - 1)) for w in workers])
    yield from _family(table.WORKER_RSS, [((w.name,), w.rss_bytes) for w in workers])
    yield from _family(table.WORKER_PSS, [((w.name,), w.pss_bytes) for w in workers])
    for row in table.WORKER_COUNTERS:
        shown = [worker for worker in workers if worker.role in row.roles or _count(worker, row.count)]
        yield from _family(row.metric, [((w.name,), _count(w, row.count) * row.scale) for w in shown])
    selectors = [worker for worker in workers if worker.role == "selector"]
    yield from _family(
        table.CONNECTIONS,
        [((w.name,), _count(w, Count.CONNECTIONS_OPENED) - _count(w, Count.CONNECTIONS_CLOSED)) for w in selectors],
    )
    sends = [worker for worker in workers if worker.role == "send"]
    put_sum, late_sum = Count.PUT_LATENCY_SUM_US, Count.TIMER_LATENESS_SUM_MS
    yield from _histogram(table.PUT_LATENCY, sends, Count.PUT_LATENCY, PUT_LATENCY_BUCKETS, put_sum, 1e6)
    yield from _histogram(table.TIMER_LATENESS, sends, Count.TIMER_LATENESS, TIMER_LATENESS_BUCKETS, late_sum, 1e3)


def _histogram(
    metric: Metric, workers: Sequence[WorkerSnapshot], first: int, count: int, sum_at: int, per_second: float
) -> Iterator[Family]:
    """A histogram of `count` buckets, of up to 2^k parts of a second. The last one also holds what took longer, so it
    is the one without a bound."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for worker in workers:
        total = 0
        buckets: list[tuple[str, float]] = []
        for k in range(count):
            total += _count(worker, first + k)
            bound = "+Inf" if k == count - 1 else repr(2**k / per_second)
            buckets.append((bound, total))
        family.add_metric((worker.name,), buckets, sum_value=_count(worker, sum_at) / per_second)
    if family.samples:
        yield family


def _store(store: StoreSnapshot) -> Iterator[Family]:
    yield from _family(table.STORE_MIN, [((), store.min_phy_offset)])
    yield from _family(table.STORE_PUBLISHED, [((), store.published_phy_offset)])
    yield from _family(table.STORE_DURABLE, [((), store.durable_phy_offset)])
    yield from _family(table.STORE_DISPATCHED, [((), store.dispatched_phy_offset)])
    yield from _family(table.STORE_REPLICATED, [((), store.replicated_phy_offset)])


def _transactions(transactions: TransactionSnapshot | None) -> Iterator[Family]:
    if transactions is None:
        return
    age_ms = transactions.oldest_age_ms
    yield from _family(table.TRANSACTIONS_OPEN, [((), transactions.open)])
    yield from _family(table.TRANSACTIONS_OLDEST, [((), None if age_ms is None else age_ms / 1000)])
    yield from _family(table.TRANSACTION_CHECKS, [((), transactions.checks)])
    yield from _family(table.TRANSACTION_UNREACHABLE, [((), transactions.unreachable)])


def _registration(registration: RegistrationSnapshot) -> Iterator[Family]:
    last_ms = registration.last_success_ms
    yield from _family(table.REGISTRATION_TOPICS, [((), registration.topics)])
    yield from _family(table.REGISTRATION_BYTES, [((), registration.bytes)])
    yield from _family(table.REGISTRATION_PARTS, [((), registration.parts)])
    yield from _family(table.REGISTRATION_FAILURES, [((), registration.failures)])
    yield from _family(table.REGISTRATION_LAST_SUCCESS, [((), None if last_ms is None else last_ms / 1000)])


def _exporter(snapshot: Snapshot) -> Iterator[Family]:
    """The metrics of rocketmq-exporter, with its names and labels."""
    cluster, broker = snapshot.cluster, snapshot.broker
    here = (cluster, snapshot.broker_addr, broker)
    yield from _family(table.BROKER_TPS, [(here, snapshot.put_tps)])
    yield from _family(table.BROKER_QPS, [(here, snapshot.get_tps)])
    topics = snapshot.topics or ()
    normal = [topic for topic in topics if not topic.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    yield from _topics(table.PRODUCER_TPS, cluster, broker, normal, lambda topic: topic.put_tps)
    yield from _topics(table.PRODUCER_SIZE, cluster, broker, normal, lambda topic: topic.put_bytes_tps)
    yield from _topics(table.PRODUCER_OFFSET, cluster, broker, normal, lambda topic: topic.max_offset_sum)
    retry = [topic for topic in topics if topic.topic.startswith(RETRY_PREFIX)]
    yield from _topics(table.RETRY_OFFSET, cluster, broker, retry, lambda topic: topic.max_offset_sum)
    yield from _family(
        table.DLQ_OFFSET,
        [
            ((cluster, broker, topic.topic.removeprefix(DLQ_PREFIX)), topic.max_offset_sum)
            for topic in topics
            if topic.topic.startswith(DLQ_PREFIX)
        ],
    )
    yield from _family(
        table.PRODUCER_COUNT, [((cluster, broker, group), n) for group, n in sorted(snapshot.producers.items())]
    )
    yield from _consumption(snapshot)
    online: dict[tuple[str, str, str], int] = {}
    for consumer in snapshot.consumers:
        online[consumer] = online.get(consumer, 0) + 1
    yield from _family(table.GROUP_COUNT, sorted(online.items()))


def _topics(
    metric: Metric,
    cluster: str,
    broker: str,
    topics: Sequence[TopicSnapshot],
    value: Callable[[TopicSnapshot], float | None],
) -> Iterator[Family]:
    yield from _family(metric, [((cluster, broker, topic.topic), value(topic)) for topic in topics])


def _consumption(snapshot: Snapshot) -> Iterator[Family]:
    def by_group(metric: Metric, value: Callable[[ConsumptionSnapshot], float | None]) -> Iterator[Family]:
        rows = snapshot.consumption
        labels = [(snapshot.cluster, snapshot.broker, row.topic, row.group) for row in rows]
        yield from _family(metric, zip(labels, map(value, rows), strict=True))

    def diff(metric: Metric, rows: Sequence[ConsumptionSnapshot]) -> Iterator[Family]:
        samples = [((row.group, row.topic, str(row.online_consumers), "1"), row.lag_messages) for row in rows]
        yield from _family(metric, samples)

    yield from by_group(table.CONSUMER_TPS, lambda row: row.get_tps)
    yield from by_group(table.CONSUMER_SIZE, lambda row: row.get_bytes_tps)
    yield from by_group(table.CONSUMER_OFFSET, lambda row: row.consumer_offset_sum)
    yield from by_group(table.SEND_BACK, lambda row: row.send_back_last_minute)
    yield from by_group(table.GET_LATENCY, lambda row: row.lag_ms)
    clustering = [row for row in snapshot.consumption if not row.is_broadcasting]
    yield from diff(
        table.GROUP_DIFF, [row for row in clustering if not row.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    )
    yield from diff(table.GROUP_RETRY_DIFF, [row for row in clustering if row.topic.startswith(RETRY_PREFIX)])


def _runtime(snapshot: Snapshot) -> Iterator[Family]:
    """The table of code 28 as numbers; an entry that is absent or no number is left out, alone."""
    runtime = snapshot.runtime
    if runtime is None:
        return
    version = runtime.get("brokerVersionDesc", "")
    labels = (
        snapshot.cluster,
        snapshot.broker_addr,
        "",
        version,
        runtime.get("bootTimestamp", ""),
        runtime.get("brokerVersion", ""),
    )
    for row in table.RUNTIME_METRICS:
        text = runtime.get(row.key)
        if text is None:
            continue
        try:
            value = row.read(text)
        except (ValueError, IndexError):
            continue
        yield from _family(row.metric, [(labels, value)])
