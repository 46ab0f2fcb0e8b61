"""Brokers, filled stores, a session and timed turns for the rows of `python -m bench.spark_bars`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.bench import proc
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.store_source import plan

from .brokers import Broker, boot
from .spark_inputs import QUEUES, SIZES, TOPICS, fill, start_spark
from .spark_kernels import record_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class Line:
    """One figure: a value of each turn, and the bar that their median must reach."""

    row: str
    what: str
    unit: str
    values: tuple[float, ...]
    bar: float | None = None
    is_most: bool = False  # the bar is the most, else the least

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def holds(self) -> bool | None:
        """None: it has no bar."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.is_most else self.value >= self.bar


@attrs.frozen
class Turn:
    """One run of some work: its rows, its time, and the CPU time of the JVM, its workers and executors."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_us(self) -> float:
        """For each row."""
        return self.cpu_s / self.rows * 1e6


def in_turns(
    works: Mapping[str, Callable[[], int]], roots: list[int], repeat: int, warm_up: int
) -> dict[str, list[Turn]]:
    """Do each work, which returns rows, `warm_up` times and then `repeat` times, one after the other.

    Args:
        roots: processes whose trees do the work.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in works}
    for number in range(warm_up + repeat):
        for name, work in works.items():
            began_s, before = time.perf_counter(), proc.cpu_s_by_process(roots)
            rows = work()
            turn = Turn(rows, time.perf_counter() - began_s, cpu_used_s(before, proc.cpu_s_by_process(roots)))
            if number >= warm_up:
                turns[name].append(turn)
    return turns


def cpu_used_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the CPU seconds that processes used between two samples. A process that ended in between is left out:
    PySpark's daemon does not wait for its workers, so their time is lost."""
    return sum(cpu_s - before.get(pid, 0.0) for pid, cpu_s in after.items())


def jvm_of(spark: SparkSession) -> int:
    """Return the process id of a session's JVM, which is the parent of local workers."""
    return int(spark.sparkContext._gateway.proc.pid)  # there is one outside of Connect


@attrs.define(eq=False)
class Inputs:
    """Made when a row first asks for them, and kept for the rows after it.

    Attributes:
        messages: of 1 KiB in a store or topic; there are four times as many of 100 B.
        warm_up: turns before those that count: in the first ones the JVM's compilers take as much time as the work.
        windows: number and seconds of the measurements of a steady stream, after `warm_up_s`.
    """

    directory: Path
    messages: int
    repeat: int
    warm_up: int = 4
    windows: tuple[int, float] = (5, 12.0)
    warm_up_s: float = 20.0
    _open: ExitStack = attrs.field(init=False, factory=ExitStack)
    _stores: dict[str, Path] = attrs.field(init=False, factory=dict)
    _spark: SparkSession | None = attrs.field(init=False, default=None)
    _broker: Broker | None = attrs.field(init=False, default=None)

    def __enter__(self) -> Inputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_spark()
        self.stop_broker()

    def count(self, size: str) -> int:
        return self.messages * (4 if size == "100 B" else 1)

    def store(self, size: str) -> Path:
        """Make a store at rest."""
        if size not in self._stores:
            home = self.directory / TOPICS[size]
            home.mkdir()
            broker = boot("rocketpy", home)
            try:
                fill(broker, TOPICS[size], QUEUES, SIZES[size], self.count(size))
            finally:
                broker.stop()
            self._stores[size] = broker.store
        return self._stores[size]

    def rows(self, size: str) -> int:
        """Number of messages in a store: with the one that was sent to see whether its broker serves."""
        return self.count(size) + 1

    def log_bytes(self, size: str) -> int:
        """Bytes of a store's records."""
        return sum(map(record_bytes, plan(StoreOptions(path=self.store(size)))))

    @property
    def broker(self) -> Broker:
        """A running broker."""
        if self._broker is None:
            home = self.directory / "running"
            home.mkdir()
            self._broker = boot("rocketpy", home)
        return self._broker

    def stop_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            self._spark = start_spark(2)
        return self._spark

    def stop_spark(self) -> None:
        """Let another session begin."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    @property
    def jvm(self) -> int:
        return jvm_of(self.spark)
