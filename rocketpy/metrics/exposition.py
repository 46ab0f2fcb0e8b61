"""Writes the text of a usual scrape: what prometheus_client would write, without the library.

prometheus_client makes an object, a dict and a sorted copy of it of every sample. At 10 000 queues that is 0.3 s of the
processor in a process that serves. Here the names of a row are put in order once, rows of one scrape share the text of
their labels, and other threads run after each row. The library with the HTTP server that it imports is also 5 MiB of
memory of that process. tests/unit/metrics/test_exposition.py compares both, byte by byte.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import attrs

from .counters import Kind
from .metric import Metric

_S = TypeVar("_S")
OPENMETRICS, PLAIN = "application/openmetrics-text", "text/plain"
LATEST, DEFAULT_ESCAPING = "1.0.0", "underscores"
ESCAPINGS = (DEFAULT_ESCAPING, "allow-utf-8")  # by which no name of ours is changed
_OLDER = re.compile(r"0(\.\d+)*")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
PLAIN_SIZE = 9  # a shorter number has at most six digits before its point: nothing of it is an exponent in Go
DIGITS_MAX = 6  # before the point of a number without exponent
YIELD_LINES = 500  # about a third of a millisecond


@attrs.frozen
class Form:
    """Content type of a scrape, and its syntax."""

    content_type: str
    is_openmetrics: bool


def usual_form(accept: str) -> Form | None:
    """Return the form that prometheus_client chooses for an Accept header; None: one that is not written here.

    A version that is no number counts as none: prometheus_client raises an exception.
    """
    for part in accept.split(","):
        kind, *rest = (text.strip() for text in part.split(";"))
        if kind not in (OPENMETRICS, PLAIN):
            continue
        parameters = dict(text.split("=", 1) for text in reversed(rest) if "=" in text)  # the first of a name counts
        version, escaping = parameters.get("version", ""), parameters.get("escaping", DEFAULT_ESCAPING)
        version = version if _VERSION.fullmatch(version) else ""
        if kind == OPENMETRICS and not version:
            return Form(f"{OPENMETRICS}; version={LATEST}; charset=utf-8", is_openmetrics=True)
        if not version or _OLDER.fullmatch(version):
            continue
        if version != LATEST or escaping not in ESCAPINGS:
            return None
        content_type = f"{kind}; version={LATEST}; charset=utf-8; escaping={escaping}"
        return Form(content_type, is_openmetrics=kind == OPENMETRICS)
    return Form(f"{PLAIN}; version=0.0.4; charset=utf-8", is_openmetrics=False)


class Row(Generic[_S]):
    """A metric, and the parts of its text that are the same in each scrape."""

    def __init__(self, metric: Metric[_S]) -> None:
        self.metric, self.labels = metric, metric.labels
        self._form = _form_of(self.labels)
        kind, text = metric.kind.value, metric.help.replace("\\", r"\\").replace("\n", r"\n")
        self.plain_head = f"# HELP {metric.exposed_name} {text}\n# TYPE {metric.exposed_name} {kind}\n"
        text = text.replace('"', r"\"")
        self.openmetrics_head = f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"

    def lines(self, snapshot: _S, texts: dict[tuple[str, ...], str]) -> Iterator[str]:
        """Yield a line for each sample; those of value None are left out.

        Args:
            texts: of the labels that another row of this scrape with the same names has written.
        """
        if self.metric.kind is Kind.HISTOGRAM:
            yield from self._histogram(snapshot)
            return
        name, form = self.metric.exposed_name, self._form
        for labels, value in self.metric.samples(snapshot):
            if value is None:
                continue
            key = tuple(labels)
            if (text := texts.get(key)) is None:
                text = texts[key] = form.format(*map(escaped, key))
            yield f"{name}{text}{number(value)}\n"

    def _histogram(self, snapshot: _S) -> Iterator[str]:
        name, bucket_form = self.metric.name, _form_of((*self.labels, "le"))
        for labels, buckets, total in self.metric.buckets(snapshot):
            values = [*map(escaped, labels)]
            for bound, count in buckets:
                yield f"{name}_bucket{bucket_form.format(*values, bound)}{number(count)}\n"
            text = self._form.format(*values)
            yield f"{name}_count{text}{number(buckets[-1][1])}\n"
            yield f"{name}_sum{text}{number(total)}\n"


class Page(Generic[_S]):
    """The rows of a collector."""

    def __init__(self, rows: Iterable[Metric[_S]]) -> None:
        self._rows = [Row(row) for row in rows]

    def text(self, snapshot: _S, *, is_openmetrics: bool) -> bytes:
        """Return the whole text."""
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
        if is_openmetrics:
            written.append("# EOF\n")
        return "".join(written).encode()


def _form_of(labels: Sequence[str]) -> str:
    """Return the format of labels with these names and of the space behind them."""
    order = sorted(range(len(labels)), key=labels.__getitem__)
    pairs = ",".join(f'{labels[at]}="{{{at}}}"' for at in order)
    return f"{{{{{pairs}}}}} " if pairs else " "


def escaped(value: str) -> str:
    """Return the value of a label as it stands between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: float) -> str:
    """Return a value as Go writes it."""
    text = repr(float(value))
    return text if len(text) < PLAIN_SIZE and text[-1] not in "fn" else _in_go(float(value), text)  # inf, nan


def _in_go(value: float, text: str) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    point = text.find(".")
    if value <= 0 or point <= DIGITS_MAX:
        return text
    digits = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
    return f"{digits}e+{point - 1:02d}"
