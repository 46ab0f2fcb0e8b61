"""Collectors: the rows of a kind of server, and how its snapshot is taken; nothing is kept between scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from .exporter import EXPORTER_METRICS, RUNTIME_METRICS
from .exposition import Page
from .metric import Metric
from .rocketmq5 import ROCKETMQ5_METRICS, WITH_UNITS
from .snapshot import NamesrvSnapshot, Snapshot, StreamsSnapshot
from .streams import STREAM_METRICS
from .table import NAMESRV_METRICS, OWN_METRICS, QUEUE_METRICS, Queues

_S = TypeVar("_S")
Make = Callable[[Callable[[], bytes]], bytes]
NAMES: Mapping[str, Sequence[Metric[Snapshot]]] = {
    "rocketpy": OWN_METRICS,
    "exporter": (*EXPORTER_METRICS, *RUNTIME_METRICS),
    "rocketmq5": ROCKETMQ5_METRICS,
    "rocketmq5_units": WITH_UNITS,
}
"""The values of `metricsNames`."""


def make_here(work: Callable[[], bytes]) -> bytes:
    """Do the work of an answer in this process."""
    return work()


class RowCollector(Generic[_S]):
    """Samples of the rows of a table.

    Args:
        snapshot: called once per scrape, in a thread of the endpoint: it must read only what may be read from there
            (shared memory, frozen values).
        make: does the work of an answer, which calls `snapshot`; one at a time. Raises: ScrapeFailed.
    """

    def __init__(self, snapshot: Callable[[], _S], rows: Sequence[Metric[_S]], make: Make = make_here) -> None:
        self.snapshot, self.rows, self.make = snapshot, rows, make
        self._page = Page(rows)

    def text(self, *, is_openmetrics: bool) -> bytes:
        """Return the text of a scrape."""
        return self._page.text(self.snapshot(), is_openmetrics=is_openmetrics)


class BrokerCollector(RowCollector[Snapshot]):
    """Samples of a broker, under the names that are keys of NAMES."""

    def __init__(self, snapshot: Callable[[], Snapshot], names: Iterable[str] = NAMES, make: Make = make_here) -> None:
        super().__init__(snapshot, [metric for name in names for metric in NAMES[name]], make)


class QueueCollector(RowCollector[Queues]):
    """Samples of queues."""

    def __init__(self, snapshot: Callable[[], Queues], make: Make = make_here) -> None:
        super().__init__(snapshot, QUEUE_METRICS, make)


class NamesrvCollector(RowCollector[NamesrvSnapshot]):
    """Samples of a name server."""

    def __init__(self, snapshot: Callable[[], NamesrvSnapshot]) -> None:
        super().__init__(snapshot, NAMESRV_METRICS)


class StreamsCollector(RowCollector[StreamsSnapshot]):
    """Samples of streaming queries."""

    def __init__(self, snapshot: Callable[[], StreamsSnapshot]) -> None:
        super().__init__(snapshot, STREAM_METRICS)
