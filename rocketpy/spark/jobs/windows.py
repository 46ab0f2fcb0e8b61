"""Job windows: counts and sums of a topic's messages in windows of time, as a stream into Parquet and a topic.

A worked example of a streaming query: event time, a watermark, JSON in the body, two sinks, and a checkpoint. A query
that was killed goes on where it was, and its windows are those that a batch query counts over the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ..session import register
from .report import JobReport, Row, rows_of
from .target import CHECKPOINT, asked_of, claimed, last_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AMOUNT = "decimal(38,6)"
COLUMNS = "body,tags,keys,storeTimestamp"
SHOWN_MAX = 1_000  # windows in the report: the newest
TABLE, TOPIC = "table", "topic"
PROGRESS_KEPT = 10_000  # micro-batches of a run that are counted; Spark keeps 100 by itself


@attrs.frozen
class Windows:
    """The topic, windows and values that are counted.

    Attributes:
        window, slide, watermark: as Spark writes durations, `10 seconds`; no slide: windows do not overlap.
        by: an SQL expression over tags, keys and `body`, which is the body as text; one result for each value.
        amount: a path into bodies that are JSON, `$.amount`, whose numbers are added up, with six digits after the
            point. A value that is not a number, or has more than 32 digits before the point, is passed over: no message
            may end the query.
        connection: options of the connection beside nameServer, like credentialsFile.
    """

    name_server: str
    topic: str
    window: str = "1 minute"
    slide: str | None = None
    watermark: str = "10 seconds"
    by: str = "tags"
    amount: str | None = None
    connection: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def aggregate(self, messages: DataFrame) -> DataFrame:
        """The same for a table and for a stream."""
        from pyspark.sql import functions as sql

        text = messages.withColumn("body", sql.make_valid_utf8(sql.col("body").cast("string")))
        number = sql.get_json_object("body", self.amount) if self.amount else sql.lit(None)
        rows = text.select(
            "storeTimestamp", sql.expr(self.by).cast("string").alias("by"), number.try_cast(AMOUNT).alias("amount")
        )
        window = sql.window("storeTimestamp", self.window, self.slide)
        counted = rows.groupBy(window, "by").agg(
            sql.count("*").alias("messages"), sql.try_sum("amount").cast(AMOUNT).alias("amount")
        )
        return counted.select(
            sql.col("window.start").alias("begin"), sql.col("window.end").alias("end"), "by", "messages", "amount"
        )


def windows(
    spark: SparkSession,
    wanted: Windows,
    target: Path,
    *,
    to_topic: str | None = None,
    max_per_trigger: int | None = None,
    check: bool = False,
) -> JobReport:
    """Count all that is there now, from where the run before stopped.

    A window is written when the watermark has passed its end. The newest ones wait in the checkpoint for a later run.

    Args:
        target: gets `windows/`, the table, and `checkpoint/`.
        to_topic: where results are also sent, as JSON, at least once.
        max_per_trigger: messages of a micro-batch.
        check: compare the table with a batch query over what the stream has read.
    Raises:
        ConfigError: the target was made by a run with other windows. StoreError: another run is using it.
    """
    with claimed(target, "windows.json", asked_of(wanted)):
        return _run(spark, wanted, target, to_topic, max_per_trigger, check)


def _run(
    spark: SparkSession,
    wanted: Windows,
    target: Path,
    to_topic: str | None,
    max_per_trigger: int | None,
    check: bool,
) -> JobReport:
    register(spark)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", PROGRESS_KEPT)
    connection = {**wanted.connection, "nameServer": wanted.name_server}
    options: Row = {**connection, "topic": wanted.topic, "columns": COLUMNS}
    limits = {"maxOffsetsPerTrigger": max_per_trigger} if max_per_trigger else {}
    reader = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options, **limits)
    counted = wanted.aggregate(reader.load().withWatermark("storeTimestamp", wanted.watermark))
    queries = {TABLE: _start(counted, "parquet", target, TABLE, path=str(target / "windows"))}
    if to_topic is not None:
        sent = counted.selectExpr("to_json(struct(*)) body", "by tags", "by shardingKey")
        queries[TOPIC] = _start(sent, "rocketmq", target, TOPIC, **connection, topic=to_topic)
    for query in queries.values():
        query.awaitTermination()
    written = _written(spark, target)
    report = JobReport("windows", files=[target / "windows"])
    progress = [entry for query in queries.values() for entry in query.recentProgress]
    _describe(report, queries[TABLE].recentProgress, progress)
    report.totals["windows"] = written.count()
    newest = written.orderBy("begin", "by", ascending=[False, True]).limit(SHOWN_MAX)
    report.tables["windows"] = rows_of(newest.collect())
    if check:
        report.checks["the table is what a batch query counts"] = _is_right(spark, wanted, target, written, options)
    return report


def _is_right(spark: SparkSession, wanted: Windows, target: Path, written: DataFrame, options: Row) -> bool:
    """By what the checkpoint says of all runs: this run may have read nothing."""
    batch = last_batch(target / CHECKPOINT / TABLE)
    if batch is None:
        return bool(written.isEmpty())
    reader = spark.read.format("rocketmq").options(startingOffsets="earliest", endingOffsets=batch.ends, **options)
    closed = f"end <= timestamp_millis({batch.watermark_ms})"
    return is_same(written, wanted.aggregate(reader.load()).where(closed))


def _start(frame: DataFrame, sink: str, target: Path, name: str, **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format(sink).outputMode("append").options(**options)
    return writer.option("checkpointLocation", str(target / CHECKPOINT / name)).trigger(availableNow=True).start()


def _written(spark: SparkSession, target: Path) -> DataFrame:
    schema = "begin timestamp, end timestamp, by string, messages bigint, amount decimal(38,6)"
    return spark.read.schema(schema).parquet(str(target / "windows"))


def _describe(report: JobReport, of_table: list[Any], of_all: list[Any]) -> None:
    last = of_table[-1] if of_table else None
    late = sum(state.numRowsDroppedByWatermark for entry in of_table for state in entry.stateOperators)
    report.totals = {
        "messages": sum(entry.numInputRows for entry in of_table),
        "batches": len([entry for entry in of_table if entry.numInputRows]),
        "late": late,
        "windows_that_wait": last.stateOperators[0].numRowsTotal if last and last.stateOperators else 0,
        "state_bytes": max((state.memoryUsedBytes for entry in of_all for state in entry.stateOperators), default=0),
        "watermark": last.eventTime.get("watermark") if last else None,
    }
    report.tables["batches"] = _batches(of_table)
    report.checks["no message came after its window was closed (a larger --watermark helps)"] = late == 0


def _batches(progress: list[Any]) -> list[Row]:
    """The micro-batches that had messages; `at_s` is their end, in seconds since the first one began."""
    rows: list[Row] = []
    at_s = 0.0
    for entry in progress:
        seconds = entry.durationMs.get("triggerExecution", 0) / 1000
        at_s += seconds
        if entry.numInputRows:
            rate = round(entry.numInputRows / max(seconds, 0.001))
            rows.append({"batch": entry.batchId, "messages": entry.numInputRows, "messages_per_second": rate})
            rows[-1] |= {"seconds": seconds, "at_s": round(at_s, 3)}
    return rows


def is_same(one: DataFrame, other: DataFrame) -> bool:
    """Return True if two tables have the same rows, each as often."""
    return bool(one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty())
