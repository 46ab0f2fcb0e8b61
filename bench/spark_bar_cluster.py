"""The row `cluster` of `python -m bench.spark_bars`: executors of a standalone cluster on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rocketpy.bench.own_broker import HOST
from rocketpy.spark import session
from tests.spark_cluster.standalone import Cluster, running_cluster
from tests.support.waiting import wait_until

from .spark_bar_inputs import Inputs, Line, Turn, in_turns, jvm_of
from .spark_inputs import OF_SESSION, frame_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = (1, 2, 4)
BEGINS_S = 240.0
CPU_BAR = 1.25


def ask_cluster(inputs: Inputs) -> Iterator[Line]:
    """A scan of the store, 1 KiB, by one, two and four workers of a standalone cluster, each of one core."""
    inputs.stop_spark()
    path, rows, found = str(inputs.store("1 KiB")), inputs.rows("1 KiB"), {}
    home = inputs.directory / "cluster"
    home.mkdir()
    with running_cluster(home, max(WORKERS)) as cluster:
        for workers in WORKERS:
            spark = start_on(cluster, workers)
            try:
                work = partial(frame_rows, spark, "rocketmq_store", rows, path=path, columns="min")
                roots = [jvm_of(spark), *(process.pid for process in cluster.workers.values())]
                # Each executor compiles for itself, and gets a part of the rows of a turn.
                found[workers] = in_turns({"scan": work}, roots, inputs.repeat, inputs.warm_up * workers)["scan"]
            finally:
                spark.stop()
    yield from _lines(found)


def _lines(found: dict[int, list[Turn]]) -> Iterator[Line]:
    alone = found[1]
    for workers, turns in found.items():
        yield Line("cluster", f"{workers} workers", "rows/s", tuple(turn.rows_per_s for turn in turns))
        yield Line("cluster", f"{workers} workers, CPU", "µs/row", tuple(turn.cpu_us for turn in turns))
    for workers, turns in found.items():
        if workers > 1:
            ratio = tuple(one.cpu_us / other.cpu_us for one, other in zip(turns, alone, strict=True))
            yield Line("cluster", f"{workers} workers, CPU of one worker", "x", ratio, CPU_BAR, True)


def start_on(cluster: Cluster, workers: int) -> SparkSession:
    """Start a session with so many executors; return when all of them are there."""
    config = {"spark.cores.max": str(workers), "spark.driver.host": HOST, "spark.driver.bindAddress": HOST}
    spark = session(cluster.url, name="rocketpy-bench", config=OF_SESSION | config, advises=False)
    known = spark.sparkContext._jsc.sc()  # Spark has no public way to count executors
    wait_until(lambda: known.getExecutorMemoryStatus().size() > workers, f"{workers} executors", BEGINS_S)
    return spark
