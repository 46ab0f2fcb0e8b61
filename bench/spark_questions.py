"""The questions of `python -m bench.spark`: each makes what it needs, measures, and yields figures."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.bench import proc
from rocketpy.bench.own_broker import HOST
from rocketpy.spark.columns import parse_columns
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.running import run_parts

from .brokers import running
from .spark_floor import FLOOR
from .spark_inputs import QUEUES, SIZES, TOPICS, fill, frame_rows, start_spark, stopped_stores
from .spark_kernels import decode, decode_image, in_processes, nothing, pieces_of, pull, record_bytes, scan, slices_of
from .spark_resent import RESENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IMAGE_BYTES = 32 << 20
STREAM_BARS = {64: 120, 1000: 200}  # queues: milliseconds of a micro-batch
PHASES = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")  # of a micro-batch
SETS = ("min", "std", "all")
WORKERS, QUEUE_NUMBERS = (1, 2, 4), (10, 100, 1000)


@attrs.frozen
class Figure:
    """One measurement: the best and the median of several runs of the same work.

    `cpu_us`: CPU time of this process and all below it, JVM and workers, for each row of the best run. `phases`: median
    milliseconds of the parts of a micro-batch, as Spark names them.
    """

    question: str
    what: str
    rows: int
    best_s: float
    median_s: float
    cpu_us: float
    body: int = 0  # bytes of a body; 0: it does not matter
    bar: str = ""
    holds: bool | None = None
    phases: dict[str, float] = attrs.field(factory=dict)

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.best_s


@attrs.frozen
class Scale:
    """The size of a measurement."""

    messages: int
    repeat: int
    tasks: tuple[int, ...] = (4, 64, 256)
    micro_batches: int = 20
    scan_bytes: int = 8 << 30  # of log, read by one job: what a job costs by itself is a small part of it
    has_bars: bool = True


def measured(question: str, what: str, work: Callable[[], int], scale: Scale, body: int = 0) -> Figure:
    """Run `work`, which returns rows, once unmeasured and then `repeat` times."""
    work()
    runs: list[tuple[float, float]] = []
    rows = 0
    for _ in range(scale.repeat):
        began_s, cpu_s = time.perf_counter(), proc.cpu_s([os.getpid()])
        rows = work()
        runs.append((time.perf_counter() - began_s, proc.cpu_s([os.getpid()]) - cpu_s))
    best_s, cpu_s = min(runs)
    median_s = statistics.median(seconds for seconds, _ in runs)
    return Figure(question, what, rows, best_s, median_s, cpu_s / max(1, rows) * 1e6, body)


def barred(figure: Figure, bar: str, holds: bool) -> Figure:
    return attrs.evolve(figure, bar=bar, holds=holds)


# --- one function for each question -----------------------------------------------------------------------------------


def ask_decode(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Measure one core, no Spark: from log bytes in memory to Arrow."""
    bars = {("100 B", "min"): 18e6, ("100 B", "all"): 8e6}
    stores = stopped_stores(directory, scale.messages)
    for size, path in stores.items():
        piece = pieces_of(str(path), splitBytes=str(IMAGE_BYTES))[0]
        image = (piece.segment.path.read_bytes())[: piece.end - piece.segment.start]
        for columns in SETS:
            names = parse_columns(columns, diagnostics=False)
            figure = measured("decode", f"{size}, {columns}", partial(decode_image, names, image), scale, SIZES[size])
            bar = bars.get((size, columns))
            yield figure if bar is None else barred(figure, f"{bar / 1e6:g} M rows/s", figure.rows_per_s >= bar)


def ask_scan(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Measure a store at rest: by two plain processes, inside of Spark's workers, and as a DataFrame."""
    stores = stopped_stores(directory, scale.messages)
    spark = start_spark(2)
    try:
        for size, path in stores.items():
            yield from _scans(spark, size, str(path), scale)
    finally:
        spark.stop()


def _scans(spark: SparkSession, size: str, path: str, scale: Scale) -> Iterator[Figure]:
    body, pieces = SIZES[size], pieces_of(path)
    passes = max(1, scale.scan_bytes // sum(map(record_bytes, pieces)))
    to_arrow = partial(decode, parse_columns("min", diagnostics=False), path)
    ask = partial(measured, "scan", scale=scale, body=body)
    many = pieces * passes
    raw = ask(f"{size}, raw scan with CRC, 2 processes", in_processes(scan, many))
    yield raw
    yield ask(f"{size}, to Arrow with body, 2 processes", in_processes(to_arrow, many))
    within = ask(f"{size}, to Arrow with body, Spark's workers", lambda: sum(run_parts(spark, to_arrow, many)))
    is_held = within.rows_per_s >= raw.rows_per_s / 2
    yield (
        barred(within, "half of the raw scan", is_held) if size == "1 KiB" else within
    )  # 100 B have a bar of their own
    yield ask(f"{size}, a job that reads nothing, Spark's workers", lambda: sum(run_parts(spark, nothing, many)))
    rows = raw.rows // passes
    for columns in SETS:
        options = {"path": path, "columns": columns}
        resent = {"path": path, "columns": columns, "rows": rows, "tasks": len(pieces)}
        again = ask(f"{size}, one batch sent again, {columns}", partial(frame_rows, spark, RESENT, rows, **resent))
        figure = ask(f"{size}, DataFrame, {columns}", partial(frame_rows, spark, "rocketmq_store", rows, **options))
        is_barred = (size, columns) == ("100 B", "min")
        yield barred(figure, "1 M rows/s", figure.rows_per_s >= 1e6) if is_barred else figure
        yield again


def ask_broker(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Measure a running broker: the reader in plain processes, and DataFrames."""
    with running("rocketpy", directory) as broker:
        for size, topic in TOPICS.items():
            fill(broker, topic, QUEUES, SIZES[size], scale.messages)
        spark = start_spark(2)
        try:
            for size, topic in TOPICS.items():
                yield from _pulls(spark, size, {"nameServer": f"{HOST}:{broker.namesrv_port}", "topic": topic}, scale)
        finally:
            spark.stop()


def _pulls(spark: SparkSession, size: str, given: dict[str, str], scale: Scale) -> Iterator[Figure]:
    body, slices = SIZES[size], slices_of(given)
    for processes in (1, 2):
        work = in_processes(
            partial(pull, given | {"columns": "min"}), [slices[at::processes] for at in range(processes)], processes
        )
        what = f"{size}, reader alone, {processes} process{'es' if processes > 1 else ''}"
        yield measured("broker", what, work, scale, body)
    for columns in SETS:
        figure = measured(
            "broker",
            f"{size}, DataFrame, {columns}",
            partial(frame_rows, spark, "rocketmq", scale.messages, columns=columns, **given),
            scale,
            body,
        )
        is_barred = (size, columns) == ("1 KiB", "min")
        yield barred(figure, "300 k rows/s", figure.rows_per_s >= 300e3) if is_barred else figure


def ask_archive(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Measure a store to Parquet with all columns: in one process, and by Spark's workers."""
    stores = stopped_stores(directory, scale.messages)
    spark = start_spark(2)
    try:
        for size, path in stores.items():
            for where, how in (("one process", None), ("local[2]", spark)):
                work = partial(_archived, how, path, directory / "archive")
                figure = measured("archive", f"{size}, {where}", work, scale, SIZES[size])
                rate = figure.rows_per_s * SIZES[size] / 1e6
                is_barred = (size, where) == ("1 KiB", "local[2]")
                yield barred(figure, "100 MB/s of bodies", rate >= 100) if is_barred else figure
    finally:
        spark.stop()


def _archived(spark: SparkSession | None, path: Path, target: Path) -> int:
    shutil.rmtree(target, ignore_errors=True)
    return sum(manifest.rows for manifest in archive(spark, path, target, broker="broker-a"))


def ask_scale(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Read the same number of messages from 10, 100 and 1 000 queues by 1, 2 and 4 local workers.

    More tasks for the same messages give the cost of a task.
    """
    with running("rocketpy", directory) as broker:
        for queues in QUEUE_NUMBERS:
            fill(broker, f"queues{queues}", queues, SIZES["1 KiB"], scale.messages)
        given = {"nameServer": f"{HOST}:{broker.namesrv_port}", "columns": "min"}
        for workers in WORKERS:
            spark = start_spark(workers)
            try:
                for queues in QUEUE_NUMBERS:
                    options = {**given, "topic": f"queues{queues}"}
                    work = partial(frame_rows, spark, "rocketmq", scale.messages, **options)
                    yield measured("scale", f"{workers} workers, {queues} queues", work, scale, SIZES["1 KiB"])
                for tasks in scale.tasks:
                    numbers = {"minPartitions": str(tasks), "maxPartitions": str(tasks)}
                    options = {**given, "topic": "queues10", **numbers}
                    work = partial(frame_rows, spark, "rocketmq", scale.messages, **options)
                    yield measured("tasks", f"{workers} workers, {tasks} tasks", work, scale, SIZES["1 KiB"])
            finally:
                spark.stop()


def ask_stream(scale: Scale, directory: Path) -> Iterator[Figure]:
    """Measure a micro-batch that has one message of each queue, without a sink; and one whose rows are made in memory,
    which is Spark's own part."""
    spark = start_spark(2)
    try:
        with running("rocketpy", directory) as broker:
            for queues, p50_ms in STREAM_BARS.items():
                topic = f"stream{queues}"
                fill(broker, topic, queues, SIZES["100 B"], queues * scale.micro_batches)
                options = {"nameServer": f"{HOST}:{broker.namesrv_port}", "topic": topic, "columns": "min"}
                options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(queues)}
                read = partial(_micro_batches, spark, "rocketmq", options, queues, directory)
                figure = read(f"{queues} queues, one message of each")
                yield barred(figure, f"median {p50_ms} ms", figure.median_s * 1000 <= p50_ms)
                options = {"rows": str(queues), "batches": str(scale.micro_batches)}
                yield _micro_batches(spark, FLOOR, options, queues, directory, f"{queues} rows made in memory")
    finally:
        spark.stop()


def _micro_batches(
    spark: SparkSession, source: str, options: dict[str, str], rows: int, directory: Path, what: str
) -> Figure:
    """Run a stream to its end twice, and measure the second time."""
    frame = spark.readStream.format(source).options(**options).load()
    for turn in ("not counted", "counted"):
        cpu_s = proc.cpu_s([os.getpid()])
        stream = frame.writeStream.format("noop").option("checkpointLocation", str(directory / f"{what}, {turn}"))
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        cpu_s = proc.cpu_s([os.getpid()]) - cpu_s
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    found = {phase: statistics.median(batch["durationMs"].get(phase, 0) for batch in batches) for phase in PHASES}
    seconds = [batch["durationMs"]["triggerExecution"] / 1000 for batch in batches]
    cpu_us = cpu_s / len(batches) / rows * 1e6
    return Figure("stream", what, rows, min(seconds), statistics.median(seconds), cpu_us, SIZES["100 B"], phases=found)


QUESTIONS: dict[str, Callable[[Scale, Path], Iterator[Figure]]] = {
    "decode": ask_decode,
    "scan": ask_scan,
    "broker": ask_broker,
    "archive": ask_archive,
    "scale": ask_scale,
    "stream": ask_stream,
}
