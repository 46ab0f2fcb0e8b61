"""Converts a snapshot to the text of a scrape, or to families of prometheus_client; nothing is kept between scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from .counters import Kind
from .exporter import EXPORTER_METRICS, RUNTIME_METRICS
from .exposition import Encoder, Page
from .metric import Metric
from .rocketmq5 import ROCKETMQ5_METRICS, WITH_UNITS
from .snapshot import NamesrvSnapshot, Snapshot, StreamsSnapshot
from .streams import STREAM_METRICS
from .table import NAMESRV_METRICS, OWN_METRICS, QUEUE_METRICS, Queues

_S = TypeVar("_S")
NAMES: Mapping[str, Sequence[Metric[Snapshot]]] = {
    "rocketpy": OWN_METRICS,
    "exporter": (*EXPORTER_METRICS, *RUNTIME_METRICS),
    "rocketmq5": ROCKETMQ5_METRICS,
    "rocketmq5_units": WITH_UNITS,
}
"""The values of `metricsNames`."""


class RowCollector(Collector, Generic[_S]):
    """Samples of the rows of a table.

    `snapshot` is called once per scrape, in a thread of the endpoint: it must read only what may be read from there
    (shared memory, frozen values).
    """

    def __init__(self, snapshot: Callable[[], _S], rows: Sequence[Metric[_S]]) -> None:
        self._snapshot, self._rows = snapshot, rows
        self._page = Page(rows)

    def text(self, encoder: Encoder, *, is_openmetrics: bool) -> bytes:
        """Return what `encoder` of prometheus_client makes of this collector, with its histograms at the end."""
        snapshot = self._snapshot()
        histograms = [_family(row, snapshot) for row in self._rows if row.kind is Kind.HISTOGRAM]
        shown = [family for family in histograms if family.samples]
        return self._page.text(snapshot, shown, encoder, is_openmetrics=is_openmetrics)

    def describe(self) -> Iterable[Family]:
        """Nothing: registering must not take a snapshot before the broker is up."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples."""
        snapshot = self._snapshot()
        for row in self._rows:
            family = _family(row, snapshot)
            if family.samples:
                yield family


class BrokerCollector(RowCollector[Snapshot]):
    """Samples of a broker, under the names that are keys of NAMES."""

    def __init__(self, snapshot: Callable[[], Snapshot], names: Iterable[str] = NAMES) -> None:
        super().__init__(snapshot, [metric for name in names for metric in NAMES[name]])


class QueueCollector(RowCollector[Queues]):
    """Samples of queues."""

    def __init__(self, snapshot: Callable[[], Queues]) -> None:
        super().__init__(snapshot, QUEUE_METRICS)


class NamesrvCollector(RowCollector[NamesrvSnapshot]):
    """Samples of a name server."""

    def __init__(self, snapshot: Callable[[], NamesrvSnapshot]) -> None:
        super().__init__(snapshot, NAMESRV_METRICS)


class StreamsCollector(RowCollector[StreamsSnapshot]):
    """Samples of streaming queries."""

    def __init__(self, snapshot: Callable[[], StreamsSnapshot]) -> None:
        super().__init__(snapshot, STREAM_METRICS)


def _family(metric: Metric[_S], snapshot: _S) -> Family:
    """The family of `metric`; samples of value None are left out."""
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, buckets, total in metric.buckets(snapshot):
            histogram.add_metric(labels, buckets, sum_value=total)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.samples(snapshot):
        if value is not None:
            family.add_metric(labels, value)
    return family
