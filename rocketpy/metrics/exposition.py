"""Writes the text of a scrape: gauges and counters here, histograms by prometheus_client.

prometheus_client makes an object, a dict and a sorted copy of it of every sample. At 10 000 queues that is 0.3 s of the
processor in a process that serves. Here the names of a row are put in order once, rows of one scrape share the text of
their labels, and other threads run after each row. tests/unit/metrics/test_exposition.py compares both, byte by byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .counters import Kind
from .metric import Metric

_S = TypeVar("_S")
Encoder = Callable[[Collector], bytes]
PLAIN_SIZE = 9  # a shorter number has at most six digits before its point: nothing of it is an exponent in Go
YIELD_LINES = 500  # about a third of a millisecond


class Families(Collector):
    """Families that are there already, for an encoder."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


class Row(Generic[_S]):
    """A gauge or counter, and what of its text is the same in each scrape."""

    def __init__(self, metric: Metric[_S]) -> None:
        self.metric, self.labels = metric, metric.labels
        order = sorted(range(len(self.labels)), key=self.labels.__getitem__)
        pairs = ",".join(f'{self.labels[at]}="{{{at}}}"' for at in order)
        self._form = f"{{{{{pairs}}}}} " if pairs else " "
        kind, text = metric.kind.value, metric.help.replace("\\", r"\\").replace("\n", r"\n")
        self.plain_head = f"# HELP {metric.exposed_name} {text}\n# TYPE {metric.exposed_name} {kind}\n"
        text = text.replace('"', r"\"")
        self.openmetrics_head = f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"

    def lines(self, snapshot: _S, texts: dict[tuple[str, ...], str]) -> Iterator[str]:
        """Yield a line for each sample; those of value None are left out.

        Args:
            texts: of the labels that another row of this scrape with the same names has written.
        """
        name, form = self.metric.exposed_name, self._form
        for labels, value in self.metric.samples(snapshot):
            if value is None:
                continue
            key = tuple(labels)
            if (text := texts.get(key)) is None:
                text = texts[key] = form.format(*map(escaped, key))
            yield f"{name}{text}{number(value)}\n"


class Page(Generic[_S]):
    """The rows of a collector."""

    def __init__(self, rows: Iterable[Metric[_S]]) -> None:
        self._rows = [Row(row) for row in rows if row.kind is not Kind.HISTOGRAM]

    def text(self, snapshot: _S, rest: Sequence[Family], encoder: Encoder, *, is_openmetrics: bool) -> bytes:
        """Return the whole text.

        Args:
            rest: the families of `snapshot` that are no rows here.
            encoder: of prometheus_client, for `rest` and for the end of the text.
        """
        written: list[str] = []
        texts: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
        passed = 0
        for row in self._rows:
            written.append(row.openmetrics_head if is_openmetrics else row.plain_head)
            before = len(written)
            written += row.lines(snapshot, texts.setdefault(row.labels, {}))
            if len(written) == before:
                written.pop()  # a family without samples is not shown
            if len(written) - passed > YIELD_LINES:
                passed = len(written)
                time.sleep(0)  # the loop that serves has waited for this thread
        return "".join(written).encode() + encoder(Families(rest))


def escaped(value: str) -> str:
    """Return the value of a label as it stands between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: float) -> str:
    """Return a value as Go writes it."""
    text = repr(float(value))
    return text if len(text) < PLAIN_SIZE and text[-1] not in "fn" else _in_go(value)  # inf, nan


def _in_go(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
