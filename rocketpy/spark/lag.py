"""The lag of streaming queries behind their topics, by queue: messages, bytes and seconds.

Spark shows such figures of its own sources in `StreamingQueryProgress.sources[].metrics`. It asks no Python source for
them, so that mapping stays empty. Here they come from the offsets of a query's last batch and from the brokers, at the
time when somebody asks: the lag of a query that has stopped goes on to grow.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

import attrs

from rocketpy.client.options import ClientOptions
from rocketpy.errors import RocketError
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import TOOLS_CONSUMER_GROUP
from rocketpy.message.record import store_timestamp_of
from rocketpy.metrics.snapshot import QuerySnapshot, StreamsSnapshot, UnreadSnapshot

from .cluster import CLUSTERS, Cluster
from .offsets import Offsets
from .pulls import PullSettings, Slice
from .stored_queue import HEAD

logger = logging.getLogger(__name__)

FRESH_S = 5.0  # figures serve so long: a scrape and a report together ask the brokers once
QUERIES_MAX = 1000  # that have ended and are still shown; the oldest is forgotten
PULLS = PullSettings(group=TOOLS_CONSUMER_GROUP, batch_size=32, timeout_s=10.0, fail_on_data_loss=False)


@attrs.frozen
class QueueLag:
    """The unread part of a queue for a query.

    Attributes:
        size: bytes in the log, if all unread messages are as large as the first one; None: that one is gone.
        age_s: since the first unread message was stored, by this machine's clock; 0: nothing is unread.
    """

    messages: int
    size: int | None
    age_s: float | None


QueueLags = dict[MessageQueue, QueueLag]


def lags_of(cluster: Cluster, ends: Mapping[MessageQueue, int], now_s: float) -> QueueLags:
    """Return the lag of each queue that exists. One message of each queue with unread messages is pulled.

    Args:
        ends: the offsets at which the last batch ended.
        now_s: seconds since 1970.
    Raises:
        RocketError: a broker cannot be asked.
    """
    queues, _ = cluster.existing({queue.topic for queue in ends}, 0.0)
    bounds = cluster.bounds(ends.keys() & queues)
    unread = {queue: Slice(queue, max(ends[queue], one.min_offset), one.max_offset) for queue, one in bounds.items()}
    first = _first_records(cluster, {queue: one.begin for queue, one in unread.items() if one.count > 0})
    return {queue: _lag(max(0, one.count), first.get(queue), now_s) for queue, one in unread.items()}


def _lag(messages: int, record: bytes | None, now_s: float) -> QueueLag:
    if not messages:
        return QueueLag(0, 0, 0.0)
    if record is None or (stored_ms := store_timestamp_of(record)) is None:
        return QueueLag(messages, None, None)
    return QueueLag(messages, messages * int(HEAD.unpack_from(record)[0]), max(0.0, now_s - stored_ms / 1000))


def _first_records(cluster: Cluster, begins: Mapping[MessageQueue, int]) -> dict[MessageQueue, bytes]:
    """Return the records that begin at these offsets, or after messages that are gone; none of queues without."""
    found: dict[MessageQueue, bytes] = {}
    if begins:
        pulls = cluster.start_pulls([Slice(queue, at, at + 1) for queue, at in begins.items()], PULLS)
        try:
            while answers := cluster.take(pulls):
                found |= {answer.run.queue: answer.pulled.body for answer in answers if answer.pulled.body}
        finally:
            cluster.stop_pulls(pulls)
    return found


@attrs.define(eq=False)
class _Query:
    """A query as its listener and the brokers told it; `rows` since this process began to watch."""

    client: ClientOptions
    ends: Offsets = attrs.field(init=False, factory=dict)
    rows: int = attrs.field(init=False, default=0)
    batch_s: float | None = attrs.field(init=False, default=None)
    is_running: bool = attrs.field(init=False, default=True)
    lags: QueueLags = attrs.field(init=False, factory=dict)
    asked_s: float = attrs.field(init=False, default=float("-inf"))


class StreamLags:
    """The streaming queries of a process by their names. For several threads: listeners tell, scrapes ask."""

    def __init__(
        self,
        get_cluster: Callable[[ClientOptions], Cluster] = CLUSTERS.get,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get_cluster, self._clock = get_cluster, clock
        self._queries: dict[str, _Query] = {}
        self._lock = threading.Lock()
        self._asking = threading.Lock()  # one thread asks the brokers; others wait for its figures
        self._limit = LogLimit()

    def started(self, name: str, client: ClientOptions) -> None:
        """Note that a query was started, perhaps again: rows that it has read before stay counted."""
        with self._lock:
            query = self._queries.setdefault(name, _Query(client))
            query.client, query.is_running = client, True
            for ended in [key for key, one in self._queries.items() if not one.is_running][:-QUERIES_MAX]:
                del self._queries[ended]

    def progressed(self, name: str, ends: Offsets, rows: int, batch_s: float | None) -> None:
        """Note the offsets at which a batch of a started query has ended."""
        with self._lock:
            if (query := self._queries.get(name)) is not None:
                query.ends = dict(ends)
                query.rows += rows
                query.batch_s = batch_s
                query.asked_s = float("-inf")

    def ended(self, name: str) -> None:
        """Note that a query has ended or failed; its lag is shown further on."""
        with self._lock:
            if (query := self._queries.get(name)) is not None:
                query.is_running = False

    def now(self) -> dict[str, QueueLags]:
        """Return the lag of each query by queue, up to FRESH_S old. A query whose brokers cannot be asked has none."""
        with self._asking:
            with self._lock:
                due = [one for one in self._queries.items() if self._clock() - one[1].asked_s >= FRESH_S]
            for name, query in due:
                ends, query.asked_s = query.ends, self._clock()
                query.lags = self._ask(name, query.client, ends) if ends else {}
            with self._lock:
                return {name: query.lags for name, query in self._queries.items() if query.lags}

    def _ask(self, name: str, client: ClientOptions, ends: Offsets) -> QueueLags:
        try:
            return lags_of(self._get_cluster(client), ends, time.time())
        except RocketError as error:
            if told := self._limit.take():
                logger.warning("the lag of query %s is unknown: %s%s", name, error, and_more(told))
            return {}

    def snapshot(self) -> StreamsSnapshot:
        """Return the figures for Prometheus."""
        lags = self.now()
        with self._lock:
            queries = {
                name: QuerySnapshot(is_running=query.is_running, rows=query.rows, batch_s=query.batch_s)
                for name, query in self._queries.items()
            }
        unread = [
            UnreadSnapshot(
                query=name,
                topic=topic,
                messages=[lag.messages for queue, lag in of_query.items() if queue.topic == topic],
                sizes=[lag.size for queue, lag in of_query.items() if queue.topic == topic and lag.size is not None],
                ages_s=[lag.age_s for queue, lag in of_query.items() if queue.topic == topic and lag.age_s is not None],
            )
            for name, of_query in lags.items()
            for topic in sorted({queue.topic for queue in of_query})
        ]
        return StreamsSnapshot(queries=queries, unread=unread)


def lag_text(lags: QueueLags) -> str:
    """Return the lag of a query in a line for people: sums, and the age of the oldest unread message."""
    messages = sum(lag.messages for lag in lags.values())
    size = sum(lag.size or 0 for lag in lags.values())
    age_s = max((lag.age_s or 0.0 for lag in lags.values()), default=0.0)
    return f"{messages} messages, {size / 1e6:.1f} MB, {age_s:.0f} s behind"
