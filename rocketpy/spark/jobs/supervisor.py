"""Keeps streaming queries running: restarts those that fail, from their checkpoints.

A query that fails is started again after a delay that doubles with each failure in a row, up to DELAY_MAX_S. An error
that a restart cannot repair, like a wrong option, is reported once, and its query stays down; the others go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from rocketpy.errors import ConfigError

from ..lag import QueueLags, lag_text
from ..session import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

DELAY_FIRST_S, DELAY_MAX_S = 1.0, 60.0
SOUND_S = 60.0  # a query that has run so long begins again with the first delay
OF_SPARK = frozenset({"AnalysisException", "IllegalArgumentException", "ParseException"})
OURS = re.compile(
    r"rocketpy\.[\w.]+\.(?:ConfigError|DataLost|FilterInvalid|MessageInvalid|RecordsGone|RowRefused|TopicRemade): "
)


class Startable(Protocol):
    """A query that can be started again and again, like queries.QuerySpec."""

    @property
    def name(self) -> str: ...

    def start(self, spark: SparkSession) -> StreamingQuery: ...


def is_final(error: Exception) -> bool:
    """Return True if a restart would fail in the same way: wrong options or SQL, messages that are gone, a row or a
    name that the sink refuses."""
    return isinstance(error, ConfigError) or type(error).__name__ in OF_SPARK or OURS.search(str(error)) is not None


def delay_s(failures: int) -> float:
    """Return the seconds before the next start, after so many failures in a row."""
    return float(min(DELAY_MAX_S, DELAY_FIRST_S * 2 ** min(failures - 1, 16)))


@attrs.define(eq=False)
class _Run:
    """A query, and its state: running, due at a time of the clock, or over."""

    spec: Startable
    due_s: float
    query: StreamingQuery | None = None
    started_s: float = 0.0
    failures: int = 0  # in a row
    is_over: bool = False


@attrs.define(eq=False)
class Supervisor:
    """Starts queries and starts them again.

    Attributes:
        say: gets a line for people: a start, a failure with its reason, an end.
        lags: of the queries by name, for reports.
        has_given_up: on a query.
    """

    spark: SparkSession
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    lags: Callable[[], Mapping[str, QueueLags]] = dict
    has_given_up: bool = attrs.field(init=False, default=False)
    _runs: list[_Run] = attrs.field(init=False, factory=list)

    def add(self, specs: Sequence[Startable]) -> None:
        """Take queries over; `step` starts them."""
        self._runs += [_Run(spec, self.clock()) for spec in specs]

    def step(self) -> bool:
        """Look at all queries, and start those that are due. Returns False when all are over."""
        for run in self._runs:
            if run.query is not None and not run.query.isActive:
                self._ended(run, run.query)
            if not run.is_over and run.query is None and run.due_s <= self.clock():
                self._start(run)
        return not all(run.is_over for run in self._runs)

    def stop(self) -> None:
        """Stop all queries. The next start repeats a micro-batch that is cut short, with the same messages."""
        for run in self._runs:
            if run.query is not None:
                run.query.stop()
                self.say(f"{run.spec.name}: stopped")

    def report(self) -> None:
        """Say how far each query is."""
        lags = self.lags()
        for run in self._runs:
            if run.query is not None and (progress := run.query.lastProgress) is not None:
                batch, rows = progress["batchId"], progress["processedRowsPerSecond"]
                behind = f", {lag_text(lags[run.spec.name])}" if run.spec.name in lags else ""
                self.say(f"{run.spec.name}: batch {batch}, {rows:.0f} rows/s{behind}")

    def _start(self, run: _Run) -> None:
        run.started_s = self.clock()
        try:
            run.query = run.spec.start(self.spark)
        except Exception as error:  # of Spark, py4j or a worker: all that a start may raise
            self._failed(run, error)
        else:
            self.say(f"{run.spec.name}: started")

    def _ended(self, run: _Run, query: StreamingQuery) -> None:
        run.query = None
        error = query.exception()
        if error is not None:
            self._failed(run, error)
        else:
            run.is_over = True
            self.say(f"{run.spec.name}: done")

    def _failed(self, run: _Run, error: Exception) -> None:
        reason = reason_of(error)
        if is_final(error):
            run.is_over = self.has_given_up = True
            self.say(f"{run.spec.name}: gave up, as a restart cannot repair this: {reason}")
            return
        run.failures = 1 if self.clock() - run.started_s >= SOUND_S else run.failures + 1
        wait_s = delay_s(run.failures)
        run.due_s = self.clock() + wait_s
        self.say(f"{run.spec.name}: failed, starts again in {wait_s:.0f} s: {reason}")
