"""The answers that prometheus_client writes: to scrapes of single names or in other forms, and to other requests than
scrapes.

Imported with the first of them: the library and the HTTP server that it imports are 5 MiB of memory of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from .collector import RowCollector
from .counters import Kind
from .metric import Metric
from .scrape import encoded

_S = TypeVar("_S")


@attrs.frozen(eq=False)
class Families(Collector):
    """The families of a collector."""

    rows: RowCollector[Any]

    def describe(self) -> Iterable[Family]:
        """Yield the families without samples: by their names a scrape of `name[]` finds them. It takes no snapshot."""
        for row in self.rows.rows:
            yield Family(row.name, row.help, row.kind.value)

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples."""
        snapshot = self.rows.snapshot()
        for row in self.rows.rows:
            shown = family(row, snapshot)
            if shown.samples:
                yield shown


def registry_of(collector: RowCollector[Any]) -> CollectorRegistry:
    """Return a registry with the families of this collector."""
    registry = CollectorRegistry()
    registry.register(Families(collector))
    return registry


def answer(collector: RowCollector[Any], environ: Mapping[str, str]) -> bytes:
    """Return the whole answer to a request, given as the `environ` of WSGI."""
    begun: list[tuple[str, list[tuple[str, str]]]] = []
    parts = make_wsgi_app(registry_of(collector))(environ, lambda *head: begun.append(head))
    return encoded(*begun[0], b"".join(parts))


def family(metric: Metric[_S], snapshot: _S) -> Family:
    """Return the family of `metric`; samples of value None are left out."""
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, buckets, total in metric.buckets(snapshot):
            histogram.add_metric(labels, buckets, sum_value=total)
        return histogram
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    shown = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.samples(snapshot):
        if value is not None:
            shown.add_metric(labels, value)
    return shown
