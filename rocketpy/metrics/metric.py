"""The parts of a row in the table of metrics."""

from __future__ import annotations

import enum

import attrs

from .counters import Count


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@attrs.frozen
class Metric:
    """One family of samples. A counter's `name` is without the `_total` that it is exposed with."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def exposed_name(self) -> str:
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


@attrs.frozen
class WorkerCounter:
    """A metric that is one cell of each worker's counters.

    Shown for workers of `roles` always, for others when it is not zero.
    """

    metric: Metric
    count: Count
    roles: tuple[str, ...]
    scale: float = 1.0


_WORKER = ("worker",)


def worker_counter(
    name: str, count: Count, roles: str, text: str, *, kind: Kind = Kind.COUNTER, scale: float = 1.0
) -> WorkerCounter:
    return WorkerCounter(Metric(name, kind, _WORKER, text), count, tuple(roles.split()), scale)
