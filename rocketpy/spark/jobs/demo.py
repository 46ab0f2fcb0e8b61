"""Job demo: a million messages through a broker, a table, a stream and an archive, with what each step took.

It is the first thing to run on a machine, and shows in a few lines how the parts of this package are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.client.options import ClientOptions
from rocketpy.message.names import AUTO_CREATE_TOPIC_KEY_TOPIC
from rocketpy.store.inspection.findings import ProgressListener

from ..cluster import CLUSTERS
from ..session import read
from .archive import archive
from .plots import Panel, draw
from .progress import Watch, watch_tasks, watching
from .report import JobReport, Row, rows_of
from .windows import Windows, windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Point = tuple[float, float]
TOPIC = "Orders"
BROKER = "demo"  # its name in the archive
TASKS = 4
BATCHES = 8  # of the stream
BUCKET_MS = 200  # of the plots
LATENCY = {"max": 1.0, "p90": 0.9, "p50": 0.5}  # in the order of drawing: messages of a request have one time
MB = 1e6
REGISTERED_S = 30.0


@attrs.define(eq=False)
class Demo:
    """The demo: its steps, the brokers and directories that it uses, and its report.

    Attributes:
        target: has the broker's store in `store/`; gets `archive/`, `windows/` and two PNG files.
        count: messages.
        say: called with one line for each finished step.
    """

    spark: SparkSession
    name_server: str
    target: Path
    count: int
    listener: ProgressListener
    say: Callable[[str], None]
    report: JobReport = attrs.field(init=False, factory=lambda: JobReport("demo"))
    _begun_ms: dict[str, int] = attrs.field(init=False, factory=dict)  # by step, on the clock of the store

    def run(self) -> JobReport:
        """All steps. A step that does not give as many messages as were sent is a check that does not hold."""
        self._send()
        messages = self._read()
        progress = self._stream()
        self._archive(messages)
        self._draw(messages, progress)
        return self.report

    @contextmanager
    def _step(self, name: str, watch: Watch) -> Iterator[Row]:
        """The step fills in what it gave; this adds how long it took."""
        row: Row = {"step": name, "messages": 0, "seconds": 0.0, "messages_per_second": 0, "gave": ""}
        began_s, self._begun_ms[name] = time.monotonic(), time.time_ns() // 1_000_000
        with watching(watch):
            yield row
        row["seconds"] = round(time.monotonic() - began_s, 2)
        row["messages_per_second"] = round(row["messages"] / max(row["seconds"], 0.01))
        self.report.tables.setdefault("steps", []).append(row)
        self.report.checks[f"{name}: {self.count:,} messages"] = row["messages"] == self.count
        self.say(f"{name:<8} {row['seconds']:>7.2f} s {row['messages_per_second']:>11,}/s   {row['gave']}")

    def _send(self) -> None:
        """Orders with an amount, made and sent by Spark's workers."""
        orders = self.spark.range(self.count, numPartitions=TASKS).selectExpr(
            "to_json(named_struct('order', id, 'amount', id % 997)) body",
            "element_at(array('books', 'music', 'tools'), cast(id % 3 as int) + 1) tags",
            "cast(id as string) keys",
        )
        cluster = CLUSTERS.get(ClientOptions(name_servers=self.name_server))
        cluster.queues({AUTO_CREATE_TOPIC_KEY_TOPIC}, REGISTERED_S)  # the name server knows the broker
        self.listener.begin("send", self.count, "messages")

        def stored() -> None:
            self.listener.reached(sum(cluster.max_offsets(cluster.queues({TOPIC})).values()))

        with self._step("send", stored) as row:
            orders.write.format("rocketmq").mode("append").options(nameServer=self.name_server, topic=TOPIC).save()
            found = cluster.max_offsets(cluster.queues({TOPIC}))
            row["messages"] = sum(found.values())
            row["gave"] = f"topic {TOPIC} with {len(found)} queues"

    def _read(self) -> DataFrame:
        messages = read(
            self.spark, nameServer=self.name_server, topic=TOPIC, columns="tags,bornTimestamp,storeTimestamp"
        )
        with self._step("read", watch_tasks(self.spark, self.listener, "read")) as row:
            counts = {one["tags"]: one["count"] for one in messages.groupBy("tags").count().orderBy("tags").collect()}
            row["messages"] = sum(counts.values())
            row["gave"] = "a table; by tag: " + ", ".join(f"{tag} {count:,}" for tag, count in counts.items())
        return messages

    def _stream(self) -> list[Row]:
        """Counts and sums of each second, by tag."""
        self.listener.begin("stream", self.count, "messages")

        def processed() -> None:
            for query in self.spark.streams.active:
                self.listener.reached(sum(entry.numInputRows for entry in query.recentProgress))

        wanted = Windows(self.name_server, TOPIC, window="1 second", watermark="5 seconds", amount="$.amount")
        with self._step("stream", processed) as row:
            limit = max(1, self.count // BATCHES)
            found = windows(self.spark, wanted, self.target / "stream", max_per_trigger=limit)
            row["messages"] = found.totals["messages"]
            row["gave"] = (
                f"{found.totals['batches']} micro-batches, windows of 1 s by tag: {found.totals['windows']} written, "
                f"{found.totals['windows_that_wait']} open"
            )
        return found.tables["batches"]

    def _archive(self, messages: DataFrame) -> None:
        place = self.target / "archive"
        with self._step("archive", watch_tasks(self.spark, self.listener, "archive")) as row:
            manifests = archive(self.spark, self.store, place, broker=BROKER, live_tail=True)
            files = [file for manifest in manifests for file in manifest.files if f"topic={TOPIC}/" in file.path]
            row["messages"] = sum(file.rows for file in files)
            size = sum(file.bytes for file in files)
            row["gave"] = f"{len(files)} Parquet files, {size / MB:.1f} MB, of {self._log_bytes() / MB:.1f} MB of log"
        self.report.files.append(place)
        back = self.spark.read.parquet(str(place)).where(f"topic = '{TOPIC}'").count()
        self.report.checks["the archive has what the topic has"] = back == messages.count()

    @property
    def store(self) -> Path:
        """Directory of the broker's store."""
        return self.target / "store"

    def _log_bytes(self) -> int:
        sizes = self.spark.read.format("rocketmq_store").options(path=str(self.store), columns="storeSize")
        return int(sizes.option("liveTail", "true").load().groupBy().sum("storeSize").collect()[0][0] or 0)

    def _draw(self, messages: DataFrame, batches: list[Row]) -> None:
        series = over_time(messages)
        steps = {row["step"]: row for row in self.report.tables["steps"]}
        begin_ms = self._begun_ms["send"]

        def points(column: str) -> list[Point]:
            return [(seconds_after(begin_ms, row["bucket"]), row[column]) for row in series]

        counts = {row["bucket"]: row["messages"] for row in series}
        stored = stored_rates(counts, begin_ms, steps["send"]["seconds"])
        begun_s = max(0.0, steps["stream"]["seconds"] - max((row["at_s"] for row in batches), default=0.0))
        rates = [(begun_s + row["at_s"], row["messages_per_second"]) for row in batches]
        durations = [(begun_s + row["at_s"], row["seconds"] * 1000) for row in batches]
        throughput = [
            Panel("Sent: messages stored by the broker", "messages/s", {"stored": stored, **mean_of(steps["send"])}),
            Panel("Stream: messages of each micro-batch", "messages/s", {"counted": rates, **mean_of(steps["stream"])}),
        ]
        latency = [
            Panel("Sent: from the producer to the store", "ms", {name: points(name) for name in LATENCY}),
            Panel("Stream: duration of each micro-batch", "ms", {"micro-batch": durations}),
        ]
        axis = "seconds since the step began"
        self.report.files.append(draw(self.target / "throughput.png", throughput, axis=axis))
        self.report.files.append(draw(self.target / "latency.png", latency, axis=axis))


def seconds_after(begin_ms: int, bucket: int) -> float:
    """Return the begin of a bucket as seconds of a step; 0 for one that began before the step."""
    return max(0.0, (bucket * BUCKET_MS - begin_ms) / 1000)


def stored_rates(counts: Mapping[int, int], begin_ms: int, seconds: float) -> list[Point]:
    """Messages per second in each bucket of a step, also in those before the first message and after the last one: so
    their mean is that of the table."""
    first, last = begin_ms // BUCKET_MS, int(begin_ms + seconds * 1000) // BUCKET_MS
    buckets = range(min([first, *counts]), max([last, *counts]) + 1)
    return [(seconds_after(begin_ms, bucket), counts.get(bucket, 0) * 1000 / BUCKET_MS) for bucket in buckets]


def mean_of(step: Row) -> dict[str, list[Point]]:
    """The figure of the table, as a line over the whole step."""
    rate = step["messages_per_second"]
    return {f"the table's {rate:,}/s": [(0.0, rate), (step["seconds"], rate)]}


def over_time(messages: DataFrame) -> list[Row]:
    """Messages and their latency, for each fraction of a second in which they were stored."""
    from pyspark.sql import functions as sql

    stored = sql.unix_millis("storeTimestamp")
    waited = sql.percentile(stored - sql.unix_millis("bornTimestamp"), list(LATENCY.values()))
    found = messages.groupBy(sql.floor(stored / BUCKET_MS).alias("bucket")).agg(
        sql.count("*").alias("messages"), *(sql.get(waited, sql.lit(at)).alias(name) for at, name in enumerate(LATENCY))
    )
    return rows_of(found.orderBy("bucket").collect())
