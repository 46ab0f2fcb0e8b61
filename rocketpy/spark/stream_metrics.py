"""Tells Prometheus of the streaming queries of a session: how far they are behind, what they read, and if they run.

from rocketpy.spark.stream_metrics import StreamMetrics

metrics = StreamMetrics(spark, port=5560, nameServer="127.0.0.1:9876")
metrics.lags()                      # {query: {queue: QueueLag}}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rocketpy.client.options import ClientOptions
from rocketpy.metrics.address import listen

from .connection import ConnectionOptions
from .group_progress import read_document
from .lag import QueueLags, StreamLags
from .offsets import Offsets
from .options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.metrics.endpoint import Endpoint


class LagListener(StreamingQueryListener):
    """Tells `lags` of the queries that read topics.

    Args:
        client_of: the connection of a query, by its name.
    """

    def __init__(self, lags: StreamLags, client_of: Callable[[str], ClientOptions | None]) -> None:
        super().__init__()
        self._lags, self._client_of = lags, client_of
        self._names: dict[str, str] = {}  # of running queries, by run id: an end does not tell the name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._name_of(event.runId, event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if (name := self._name_of(progress.runId, progress.name or str(progress.id))) is None:
            return
        ends: Offsets = {}
        for source in progress.sources:
            if document := read_document(source.endOffset):
                ends |= document.ends
        batch_ms = progress.durationMs.get("triggerExecution")
        self._lags.progressed(name, ends, progress.numInputRows, None if batch_ms is None else batch_ms / 1000)

    def _name_of(self, run_id: object, name: str) -> str | None:
        """Return the name of a run, which may have begun before this listener; None if the query reads no topic."""
        if str(run_id) not in self._names and (client := self._client_of(name)) is not None:
            self._names[str(run_id)] = name
            self._lags.started(name, client)
        return self._names.get(str(run_id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """An idle query has read all there was; its offsets are those of its last batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if (name := self._names.pop(str(event.runId), None)) is not None:
            self._lags.ended(name)


class StreamMetrics:
    """The figures of all queries that a session starts from now on.

    Args:
        port: where Prometheus scrapes them; 0: a free port; None: nowhere.
        host: of that port.
        options: nameServer and credentials, as of the source.
    Raises:
        ConfigError: an option is wrong, or the port is taken.
    """

    def __init__(
        self, spark: SparkSession, *, port: int | None = None, host: str = "127.0.0.1", **options: Any
    ) -> None:
        given = {key: str(value) for key, value in options.items()}
        client = parse_options(ConnectionOptions, given).client_options()
        self._streams, self._lags = spark.streams, StreamLags()
        self.endpoint = None if port is None else serve(self._lags, host, port)
        self._listener = LagListener(self._lags, lambda name: client)
        self._streams.addListener(self._listener)

    def lags(self) -> dict[str, QueueLags]:
        """Return the lag of each query by queue: messages, bytes and seconds."""
        return self._lags.now()

    def close(self) -> None:
        """Stop watching."""
        self._streams.removeListener(self._listener)
        if self.endpoint is not None:
            self.endpoint.close()


def serve(lags: StreamLags, host: str, port: int) -> Endpoint:
    """Return an endpoint for Prometheus. Raises ConfigError if the port is taken."""
    from rocketpy.metrics.collector import StreamsCollector
    from rocketpy.metrics.endpoint import Endpoint

    return Endpoint(listen(host, port), StreamsCollector(lags.snapshot))
