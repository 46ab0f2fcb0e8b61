"""A metric is one row: name, kind, labels, meaning, and how its samples are read from a snapshot.

The collector shows the rows and docs/run/metrics.md lists them, so nothing else names a metric. Rows are in table.py,
replication.py, exporter.py, rocketmq5.py and streams.py; counters.py has those of the workers.
Short: the tables import it, and the collector imports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import attrs

from .counters import Kind

Samples = Iterable[tuple[Sequence[str], float | None]]
"""Values by their labels; those that are None are left out."""
Buckets = Iterable[tuple[Sequence[str], Sequence[tuple[str, float]], float]]
"""Histograms by labels: bounds with the counts up to them, and the sum."""
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
_S = TypeVar("_S")


@attrs.frozen
class Metric(Generic[_S]):
    """One family of samples, of a snapshot of type `S`."""

    name: str  # a counter's without the `_total` that it is exposed with
    kind: Kind
    labels: tuple[str, ...]
    help: str
    samples: Callable[[_S], Samples]
    buckets: Callable[[_S], Buckets] = attrs.field(default=lambda snapshot: ())  # of a histogram, instead of samples

    @property
    def exposed_name(self) -> str:
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def gauge(name: str, labels: str, text: str, samples: Callable[[_S], Samples]) -> Metric[_S]:
    return Metric(name, Kind.GAUGE, tuple(labels.split()), text, samples)


def counter(name: str, labels: str, text: str, samples: Callable[[_S], Samples]) -> Metric[_S]:
    return Metric(name, Kind.COUNTER, tuple(labels.split()), text, samples)


def histogram(name: str, labels: str, text: str, buckets: Callable[[_S], Buckets]) -> Metric[_S]:
    return Metric(name, Kind.HISTOGRAM, tuple(labels.split()), text, lambda snapshot: (), buckets)


def is_inner(topic: str) -> bool:
    """Return True for a retry topic and for a topic of dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
