"""Job stats: what topics hold, and how far behind consumer groups are.

The backlog of a group is what comes after its committed offset among the messages that were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.names import DLQ_PREFIX, RETRY_PREFIX

from .committed import Committed, committed
from .draining import NO_RATES, Look, rates
from .inputs import Input
from .plots import Panel, draw
from .report import JobReport, Row, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = ("topic", "queueId", "queueOffset", "brokerName", "keys", "storeSize", "storeTimestamp", "bornHost")
QUEUE = ("topic", "brokerName", "queueId")
WINDOW_S = 60
ROWS_MAX = 1_000  # of a table in the report
WINDOWS_MAX = 100_000
KEYS_SHOWN = 10
LINES_MAX = 8  # of a plot: the topics with the most messages


def stats(
    spark: SparkSession,
    source: Input,
    *,
    groups: tuple[str, ...] = (),
    window_s: int = WINDOW_S,
    plot: Path | None = None,
    now_s: float | None = None,
    watch_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> JobReport:
    """Count the messages of topics.

    Args:
        groups: whose backlog is wanted; a store knows all of its groups.
        window_s: of the throughput over time.
        plot: a PNG file to write.
        now_s: the time from which the age of a backlog counts; None: now.
        watch_s: look at the positions of groups twice, so far apart, for their rates; 0: once. Consumers commit every
            few seconds.
    Raises:
        ConfigError: brokers are read and know nothing of a group; there is nothing to watch. StoreError: the file of
            offsets cannot be read.
    """
    check_watch(source, groups, watch_s)
    first = Look.now(source, groups, clock) if watch_s else None
    messages = source.frame(spark, COLUMNS).persist()
    try:
        windows = _windows(messages, window_s)
        report = JobReport("stats")
        _topics(report, messages, windows, window_s)
        report.tables["keys"] = _keys(messages)
        if found := committed(source, groups):
            report.tables["backlog"] = _backlog(spark, messages, found, time.time() if now_s is None else now_s)
        if first is not None:
            sleep(max(0.0, first.at_s + watch_s - clock()))
            watched = rates(first, Look.now(source, groups, clock))
            for row in report.tables["backlog"]:
                row.update(watched.get((row["group"], row["topic"]), NO_RATES))
        report.tables["over_time"] = series = _over_time(windows, window_s)
        if plot is not None:
            report.files.append(_draw(plot, series, [row["topic"] for row in report.tables["topics"]]))
        return report
    finally:
        messages.unpersist()


def check_watch(source: Input, groups: tuple[str, ...], watch_s: float) -> None:
    """Raises ConfigError if there is nothing to watch."""
    if watch_s and not (source.name_server and groups):
        raise ConfigError("needs --name-server and --group: positions of groups are watched on brokers", key="--watch")


def _windows(messages: DataFrame, window_s: int) -> DataFrame:
    """The messages of each queue and window of time; everything that is a sum comes from here."""
    from pyspark.sql import functions as sql

    second = sql.floor(sql.unix_seconds("storeTimestamp") / window_s) * window_s
    queue = ["topic", "brokerName", "queueId"]
    return messages.groupBy(*queue, second.alias("second")).agg(
        sql.count("*").alias("messages"),
        sql.sum("storeSize").alias("bytes"),
        sql.min("storeTimestamp").alias("first"),
        sql.max("storeTimestamp").alias("last"),
        sql.min("queueOffset").alias("low"),
        sql.max("queueOffset").alias("high"),
        sql.sum(sql.col("queueOffset").cast("decimal(20,0)")).alias("sum"),
    )


def _topics(report: JobReport, messages: DataFrame, windows: DataFrame, window_s: int) -> None:
    from pyspark.sql import functions as sql

    queues = windows.groupBy(*QUEUE).agg(
        sql.sum("messages").alias("messages"),
        sql.sum("bytes").alias("bytes"),
        sql.min("first").alias("first"),
        sql.max("last").alias("last"),
        (sql.max("high") - sql.min("low") + 1 - sql.sum("messages")).alias("left"),
        # Without gap the offsets have this sum: it shows a gap beside as many repeated offsets.
        (sql.sum("sum") * 2 != (sql.max("high") + sql.min("low")).cast("decimal(20,0)") * sql.sum("messages")).alias(
            "is_other"
        ),
    )
    for name, sign in (("missing", 1), ("repeated", -1)):  # each for itself: otherwise one queue makes up for another
        least = sql.when((sql.col("left") == 0) & sql.col("is_other"), 1).otherwise(0)
        queues = queues.withColumn(name, sql.greatest(sign * sql.col("left"), least))
    sums = queues.groupBy("topic").agg(
        sql.count("*").alias("queues"),
        sql.sum("messages").alias("messages"),
        sql.sum("bytes").alias("bytes"),
        (sql.max("messages") / sql.avg("messages")).alias("skew"),
        sql.sum("missing").alias("missing"),
        sql.sum("repeated").alias("repeated"),
        sql.min("first").alias("first"),
        sql.max("last").alias("last"),
    )
    in_window = windows.groupBy("topic", "second").agg(sql.sum("messages").alias("messages"))
    peaks = in_window.groupBy("topic").agg((sql.max("messages") / window_s).alias("peak_per_second"))
    sizes = sql.percentile_approx("storeSize", [0.5, 0.99, 1.0])
    names = ("p50_bytes", "p99_bytes", "max_bytes")
    details = messages.groupBy("topic").agg(
        *(sql.get(sizes, sql.lit(at)).alias(name) for at, name in enumerate(names)),
        sql.approx_count_distinct(sql.regexp_replace("bornHost", ":[0-9]+$", "")).alias("producers"),
    )
    found = sums.join(peaks, "topic").join(details, "topic").orderBy(sql.desc("messages"), "topic")
    report.tables["topics"] = rows_of(found.limit(ROWS_MAX).collect())
    (total,) = rows_of(sums.agg(*_totals()).collect())
    report.totals = {name: value or 0 for name, value in total.items()}
    report.checks = {
        "the offsets of every queue are without gap": report.totals.pop("missing") == 0,
        "no offset is there twice": report.totals.pop("repeated") == 0,
    }


def _totals() -> list[Column]:
    """Sum up all topics; messages to be retried and dead letters also by themselves."""
    from pyspark.sql import functions as sql

    counted = [sql.count("*").alias("topics")]
    counted += [sql.sum(name).alias(name) for name in ("queues", "messages", "bytes", "missing", "repeated")]
    for name, prefix in (("retry_messages", RETRY_PREFIX), ("dead_letters", DLQ_PREFIX)):
        counted.append(sql.sum(sql.when(sql.col("topic").startswith(prefix), sql.col("messages"))).alias(name))
    return counted


def _keys(messages: DataFrame) -> list[Row]:
    """The keys of the most messages; a message has as many as its producer gave it."""
    from pyspark.sql import functions as sql

    keys = messages.select("topic", sql.explode(sql.split("keys", " ")).alias("key"))
    counted = keys.groupBy("topic", "key").agg(sql.count("*").alias("messages"))
    return rows_of(counted.orderBy(sql.desc("messages"), "topic", "key").limit(KEYS_SHOWN).collect())


def _backlog(spark: SparkSession, messages: DataFrame, found: list[Committed], now_s: float) -> list[Row]:
    """Return the backlog of each group and topic, and the age of its oldest message. A queue without messages counts
    nothing."""
    from pyspark.sql import functions as sql

    schema = "group string, topic string, broker string, queueId int, position bigint"
    positions = spark.createDataFrame([attrs.astuple(one) for one in found], schema)
    joined = messages.join(sql.broadcast(positions), ["topic", "queueId"])
    known = joined.where(sql.col("broker").isNull() | (sql.col("broker") == sql.col("brokerName")))
    is_behind = sql.col("queueOffset") >= sql.col("position")
    counted = known.groupBy("group", "topic").agg(
        sql.count_if(is_behind).alias("backlog"),
        sql.min(sql.when(is_behind, sql.unix_millis("storeTimestamp"))).alias("oldest"),
    )
    age = sql.greatest(sql.lit(now_s) - sql.col("oldest") / 1000, sql.lit(0.0)).alias("oldest_age_s")
    rows = counted.select("group", "topic", "backlog", age).orderBy(sql.desc("backlog"), "group", "topic")
    return rows_of(rows.limit(ROWS_MAX).collect())


def _over_time(windows: DataFrame, window_s: int) -> list[Row]:
    from pyspark.sql import functions as sql

    found = windows.groupBy("second", "topic").agg(
        sql.sum("messages").alias("messages"),
        (sql.sum("messages") / window_s).alias("messages_per_second"),
        (sql.sum("bytes") / window_s).alias("bytes_per_second"),
    )
    return rows_of(found.orderBy("second", "topic").limit(WINDOWS_MAX).collect())


def _draw(path: Path, series: list[Row], topics: list[str]) -> Path:
    series = [row for row in series if row["second"] is not None]  # of a store time that is no time of Spark
    begin = series[0]["second"] if series else 0

    def lines(column: str, scale: float) -> dict[str, list[tuple[float, float]]]:
        points: dict[str, list[tuple[float, float]]] = {topic: [] for topic in topics[:LINES_MAX]}
        for row in series:
            if row["topic"] in points:
                points[row["topic"]].append((row["second"] - begin, row[column] * scale))
        return points

    return draw(
        path,
        [
            Panel("Stored messages", "messages/s", lines("messages_per_second", 1)),
            Panel("Stored bytes", "MB/s", lines("bytes_per_second", 1e-6)),
        ],
        axis="seconds since the first window",
    )
