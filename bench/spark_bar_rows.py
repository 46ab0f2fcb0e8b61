"""The rows of `python -m bench.spark_bars`: each makes what it needs, measures in turns, and yields lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from rocketpy.bench.own_broker import HOST
from rocketpy.client import Message, Producer, ProducerOptions
from rocketpy.spark import read
from rocketpy.spark.jobs.archive import archive

from .spark_bar_cluster import ask_cluster
from .spark_bar_inputs import Inputs, Line, Turn, in_turns
from .spark_bar_stream import ask_steady
from .spark_inputs import QUEUES, SIZES, TOPICS, counted, fill, frame_rows

PARQUET_BARS = {"min": 0.7, "std": 0.8, "all": 0.8}
SMALL_BARS = {"min": 4e6, "std": 3e6}
BROKER_SETS = ("min", "std")
AWAITED = 20_000


def ratios(above: list[Turn], below: list[Turn]) -> tuple[float, ...]:
    """Time of the first by time of the second, turn by turn."""
    return tuple(one.seconds / other.seconds for one, other in zip(above, below, strict=True))


def speeds(row: str, what: str, turns: list[Turn], bar: float | None = None) -> Iterator[Line]:
    """Rows a second, and CPU time of a row."""
    yield Line(row, what, "rows/s", tuple(turn.rows_per_s for turn in turns), bar)
    yield Line(row, f"{what}, CPU", "µs/row", tuple(turn.cpu_us for turn in turns))


def ask_scan(inputs: Inputs) -> Iterator[Line]:
    """A store at rest, 1 KiB, beside Parquet files of the same rows with random bodies."""
    from pyspark.sql import functions as f

    size, spark = "1 KiB", inputs.spark
    path, rows, files = str(inputs.store(size)), inputs.rows(size), str(inputs.directory / "parquet")
    stored = read(spark, "rocketmq_store", path=path, columns="all")
    # The driver's bodies are alike, and a dictionary of Parquet would hold a dozen of them.
    stored.withColumn("body", f.randstr(SIZES[size]).cast("binary")).write.parquet(files)
    for columns, bar in PARQUET_BARS.items():
        frame = read(spark, "rocketmq_store", path=path, columns=columns)
        names = frame.columns

        def of_parquet(names: list[str] = names) -> int:
            return counted(spark.read.parquet(files).select(*names), rows)

        of_store = partial(frame_rows, spark, "rocketmq_store", rows, path=path, columns=columns)
        turns = in_turns({"store": of_store, "parquet": of_parquet}, [inputs.jvm], inputs.repeat, inputs.warm_up)
        yield Line("scan", f"{columns}, time of Parquet", "x", ratios(turns["store"], turns["parquet"]), bar, True)
        for name, found in turns.items():
            yield from speeds("scan", f"{columns}, {name}", found)


def ask_small(inputs: Inputs) -> Iterator[Line]:
    """A store at rest, 100 B, on both cores."""
    size, spark = "100 B", inputs.spark
    path, rows = str(inputs.store(size)), inputs.rows(size)
    for columns, bar in SMALL_BARS.items():
        work = partial(frame_rows, spark, "rocketmq_store", rows, path=path, columns=columns)
        turns = in_turns({"store": work}, [inputs.jvm], inputs.repeat, inputs.warm_up)["store"]
        yield from speeds("small", f"100 B, {columns}", turns, bar)


def ask_archive(inputs: Inputs) -> Iterator[Line]:
    """A store to Parquet with all columns (zstd), by Spark's workers."""
    target = inputs.directory / "archive"

    def work(path: Path) -> int:
        shutil.rmtree(target, ignore_errors=True)
        return sum(manifest.rows for manifest in archive(inputs.spark, path, target, broker="broker-a"))

    works = {size: partial(work, inputs.store(size)) for size in SIZES}
    turns = in_turns(works, [inputs.jvm], inputs.repeat, inputs.warm_up)
    gigabytes = inputs.log_bytes("1 KiB") / 1e9
    yield Line("archive", "1 KiB, log", "GB/s", tuple(gigabytes / turn.seconds for turn in turns["1 KiB"]), 1.5)
    yield from speeds("archive", "1 KiB", turns["1 KiB"])
    yield from speeds("archive", "100 B", turns["100 B"], 2.5e6)


def ask_broker(inputs: Inputs) -> Iterator[Line]:
    """A running broker, 1 KiB, beside a scan of its store, which has the same messages."""
    size, spark, broker = "1 KiB", inputs.spark, inputs.broker
    topic, rows = TOPICS[size], inputs.count(size)
    fill(broker, topic, QUEUES, SIZES[size], rows)
    pulled = {"nameServer": f"{HOST}:{broker.namesrv_port}", "topic": topic}
    scanned = {"path": str(broker.store), "topics": topic, "liveTail": "true"}
    for columns in BROKER_SETS:
        works = {
            "broker": partial(frame_rows, spark, "rocketmq", rows, columns=columns, **pulled),
            "its store": partial(frame_rows, spark, "rocketmq_store", rows, columns=columns, **scanned),
        }
        turns = in_turns(works, [inputs.jvm], inputs.repeat, inputs.warm_up)
        ratio = ratios(turns["its store"], turns["broker"])
        yield Line("broker", f"{columns}, speed of the store scan", "x", ratio, 0.8)
        for name, found in turns.items():
            yield from speeds("broker", f"{columns}, {name}", found)


def ask_sink(inputs: Inputs) -> Iterator[Line]:
    """Bodies of 1 KiB to a topic by the sink, beside a producer that awaits each send."""
    from pyspark.sql import functions as f

    spark, broker, count, topic = inputs.spark, inputs.broker, inputs.messages // 2, "sink"
    broker.create_topic(topic, QUEUES)
    name_server = f"{HOST}:{broker.namesrv_port}"

    def sink() -> int:
        frame = spark.range(0, count, 1, 2).select(f.lit(bytes(SIZES["1 KiB"])).alias("body"))
        frame.write.format("rocketmq").mode("append").options(nameServer=name_server, topic=topic).save()
        return count

    awaited = min(AWAITED, count)
    works: dict[str, Callable[[], int]] = {"sink": sink}
    works["awaited sends"] = partial(trio.run, send_awaited, name_server, topic, awaited)
    turns = in_turns(works, [inputs.jvm], inputs.repeat, inputs.warm_up)
    alone = turns["awaited sends"]
    yield from speeds("sink", "sink", turns["sink"], 100e3)
    yield Line("sink", "awaited sends", "rows/s", tuple(turn.rows_per_s for turn in alone))
    gains = tuple(one.rows_per_s / other.rows_per_s for one, other in zip(turns["sink"], alone, strict=True))
    yield Line("sink", "speed of awaited sends", "x", gains, 3)


async def send_awaited(name_server: str, topic: str, count: int) -> int:
    """Send so many messages, each when the one before is stored."""
    message = Message(topic, bytes(SIZES["1 KiB"]))
    async with Producer("bench", ProducerOptions(name_servers=name_server)) as producer:
        for _ in range(count):
            await producer.send(message)
    return count


ROWS: dict[str, Callable[[Inputs], Iterator[Line]]] = {
    "scan": ask_scan,
    "small": ask_small,
    "archive": ask_archive,
    "broker": ask_broker,
    "sink": ask_sink,
    "steady": ask_steady,
    "cluster": ask_cluster,
}
"""The last one needs a session of its own."""
