"""Job trace: how long sends and consumptions took, and what was sent and never consumed, by the message trace.

Clients write records of sends (Pub), of messages that a listener is about to get (SubBefore) and of what it made of
them (SubAfter) into the trace topic; `rocketpy.message.trace` has their fields. Spark's SQL takes the bodies apart and
joins the records, so a topic of any size is read, and no row passes through Python.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.trace import FIELD_END, FIELDS_MIN, RECORD_END, EndTransaction, Pub, SubAfter, SubBefore

from .inputs import Input
from .plots import Panel, draw
from .report import JobReport, Row, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
EXACT_MAX = 1_000_000  # records; of more, percentiles are approximate
ACCURACY = 10_000  # of approximate percentiles: the rank is wrong by at most one in so many
SLOWEST = 10
GROUPS_MAX = 1_000  # rows of a table in the report
WINDOW_S = 60
WINDOWS_MAX = 10_000
MS = 1000
INTEGER = r"^[+-]?[0-9]+$"
ROLLED_BACK = "ROLLBACK_MESSAGE"  # of Java's LocalTransactionState


def trace(spark: SparkSession, source: Input, **options: Any) -> JobReport:
    """Analyse the message trace of an input. Its topics are trace topics; without any, TRACE_TOPIC is read.

    Args:
        options: of `analyse`.
    """
    source = attrs.evolve(source, topics=source.topics or (TRACE_TOPIC,))
    return analyse(source.frame(spark, ("body",)), **options)


def analyse(
    messages: DataFrame, *, window_s: int = WINDOW_S, slowest: int = SLOWEST, plot: Path | None = None
) -> JobReport:
    """Analyse messages of a trace topic.

    Args:
        messages: with a column `body`.
        window_s: of the figures over time.
        slowest: so many of the messages that took the longest are named.
        plot: a PNG file to write.
    """
    contexts = split_records(messages).persist()
    count = contexts.count()
    is_exact = count <= EXACT_MAX
    sends, deliveries = sends_of(contexts).persist(), deliveries_of(contexts).persist()
    joined = join(sends, deliveries).persist()
    try:
        report = JobReport("trace")
        report.totals = {"records": count, "percentiles": "exact" if is_exact else "approximate"}
        _tables(report, sends, deliveries, joined, is_exact, slowest)
        series = over_time(joined, window_s, is_exact)
        report.tables["over_time"] = series
        if plot is not None:
            report.files.append(_draw(plot, series))
        return report
    finally:
        for frame in (joined, deliveries, sends, contexts):
            frame.unpersist()


def split_records(messages: DataFrame) -> DataFrame:
    """The records of the bodies: `kind`, and `fields` after it. Kinds that are not known, and torn records, are left
    out."""
    from pyspark.sql import functions as sql

    text = sql.make_valid_utf8(sql.col("body").cast("string"))
    records = messages.select(sql.explode(sql.split(text, RECORD_END)).alias("record"))
    parts = records.select(sql.split("record", FIELD_END).alias("parts"))
    kinds = parts.select(
        sql.col("parts")[0].alias("kind"), sql.expr("slice(parts, 2, size(parts) - 1)").alias("fields")
    )
    whole = ((sql.col("kind") == kind) & (sql.size("fields") >= count) for kind, count in FIELDS_MIN.items())
    return kinds.where(reduce(or_, whole))


def typed(contexts: DataFrame, kind: type) -> DataFrame:
    """The records of one kind, a column for each attribute of its class."""
    from pyspark.sql import functions as sql

    columns = [
        _value(sql.get("fields", sql.lit(index)), field.type).alias(field.name)
        for index, field in enumerate(attrs.fields(kind))
    ]
    return contexts.where(sql.col("kind") == kind.__name__).select(*columns)


def _value(text: Column, kind: Any) -> Column:
    """A field as `rocketpy.message.trace` reads it: a number that cannot be read is 0. The type is text there."""
    from pyspark.sql import functions as sql

    if kind == "int":
        return sql.coalesce(sql.when(text.rlike(INTEGER), text.try_cast("bigint")), sql.lit(0))
    return text == sql.lit("true") if kind == "bool" else sql.coalesce(text, sql.lit(""))


def sends_of(contexts: DataFrame) -> DataFrame:
    """Each message that was sent, once: a trace may be written twice, and a batch has one record for all of its ids.

    `is_rolled_back`: it was sent in a transaction that its producer rolled back, so nobody gets it.
    """
    from pyspark.sql import functions as sql

    records = typed(contexts, Pub).withColumn("msg_id", sql.explode(sql.split("msg_id", ",")))
    first = sql.min_by(sql.struct("topic", "group", "timestamp_ms", "cost_ms", "is_success"), _first_sent())
    sends = records.groupBy("msg_id").agg(first.alias("send")).select("msg_id", "send.*")
    rolled_back = typed(contexts, EndTransaction).where(sql.col("state") == ROLLED_BACK).select("msg_id").distinct()
    ended = sends.join(rolled_back.withColumn("ended", sql.lit(True)), "msg_id", "left")
    return ended.withColumn("is_rolled_back", sql.col("ended").isNotNull()).drop("ended")


def _first_sent() -> Column:
    """Successful sends come before failed ones, early ones before late ones."""
    from pyspark.sql import functions as sql

    return sql.struct((~sql.col("is_success")).alias("failed"), "timestamp_ms")


def deliveries_of(contexts: DataFrame) -> DataFrame:
    """Each call of a listener with a message, once. `is_success` is null where its end is not in the trace."""
    from pyspark.sql import functions as sql

    call = ["request_id", "msg_id"]
    begins = typed(contexts, SubBefore).groupBy(*call)
    begin = begins.agg(sql.min(sql.struct("timestamp_ms", "group", "retry_times")).alias("begin"))
    ends = typed(contexts, SubAfter).groupBy(*call)
    end = ends.agg(sql.min(sql.struct("timestamp_ms", "group", "cost_ms", "is_success")).alias("end"))
    known = sql.when(sql.col("begin.group").isNotNull(), sql.col("begin.group")).otherwise(sql.col("end.group"))
    return begin.join(end, call, "full").select(
        "msg_id",
        known.alias("group"),
        sql.col("begin.timestamp_ms").alias("begin_ms"),
        sql.coalesce("begin.retry_times", sql.lit(0)).alias("retry_times"),
        sql.col("end.cost_ms").alias("consume_ms"),
        sql.col("end.is_success").alias("is_success"),
    )


def join(sends: DataFrame, deliveries: DataFrame) -> DataFrame:
    """A row for each delivery, with its send if it is known, and one for each send that was not delivered.

    `wait_ms` is from the answer to the send up to the listener. Clocks of two hosts may differ, so it is 0 at least.
    """
    from pyspark.sql import functions as sql

    sent = sends.withColumnsRenamed({"group": "producer_group", "is_success": "is_sent", "cost_ms": "send_ms"})
    both = sent.join(deliveries, "msg_id", "full")
    waited = sql.try_subtract(sql.try_subtract("begin_ms", "timestamp_ms"), sql.col("send_ms"))  # anybody writes traces
    known = sql.coalesce("topic", sql.lit("?"))
    wait = sql.when(waited.isNotNull(), sql.greatest(waited, sql.lit(0)))
    return both.withColumns({"wait_ms": wait, "topic": known})


def percentiles(column: str, is_exact: bool) -> list[Column]:
    """Columns `p50_ms` and so on of one column in milliseconds."""
    from pyspark.sql import functions as sql

    prefix = column.removesuffix("ms")
    function = sql.percentile if is_exact else lambda name, ranks: sql.percentile_approx(name, ranks, ACCURACY)
    found = function(column, list(PERCENTILES.values()))
    return [sql.get(found, sql.lit(at)).alias(f"{prefix}{name}_ms") for at, name in enumerate(PERCENTILES)]


def _tables(
    report: JobReport, sends: DataFrame, deliveries: DataFrame, joined: DataFrame, is_exact: bool, slowest: int
) -> None:
    from pyspark.sql import functions as sql

    consumed = deliveries.where("begin_ms is not null").select("msg_id").distinct()
    marked = sends.join(consumed.withColumn("consumed", sql.lit(True)), "msg_id", "left")
    sent = marked.groupBy("topic", "group").agg(
        sql.count("*").alias("sends"),
        sql.count_if(~sql.col("is_success")).alias("failed"),
        sql.count_if(sql.col("is_rolled_back")).alias("rolled_back"),
        sql.count_if(sql.col("is_success") & sql.col("consumed").isNull() & ~sql.col("is_rolled_back")).alias(
            "not_consumed"
        ),
        *percentiles("cost_ms", is_exact),
    )
    heard = joined.where(sql.col("group").isNotNull())
    consumptions = heard.groupBy("topic", "group").agg(
        sql.count("*").alias("deliveries"),
        sql.count_if(~sql.col("is_success")).alias("failed"),
        sql.count_if(sql.col("is_success").isNull()).alias("unfinished"),
        sql.count_if(sql.col("retry_times") > 0).alias("redelivered"),
        sql.count_if(sql.col("producer_group").isNull()).alias("send_unknown"),
        *percentiles("wait_ms", is_exact),
        *percentiles("consume_ms", is_exact),
    )
    total = sql.try_add(sql.coalesce("wait_ms", sql.lit(0)), sql.coalesce("consume_ms", sql.lit(0)))
    worst = heard.select("msg_id", "topic", "group", "wait_ms", "consume_ms", total.alias("total_ms"))
    report.tables["sends"] = rows_of(sent.orderBy("topic", "group").limit(GROUPS_MAX).collect())
    report.tables["consumptions"] = rows_of(consumptions.orderBy("topic", "group").limit(GROUPS_MAX).collect())
    report.tables["slowest"] = rows_of(worst.orderBy(sql.desc("total_ms"), "msg_id").limit(slowest).collect())
    _totals(report, sends.count(), deliveries.count(), heard.count())


def _totals(report: JobReport, sends: int, deliveries: int, joined: int) -> None:
    """A join that multiplied or lost rows would show here."""
    sent, consumed = report.tables["sends"], report.tables["consumptions"]
    report.totals |= {
        "messages_sent": sends,
        "deliveries": deliveries,
        "not_consumed": sum(row["not_consumed"] for row in sent),
        "send_unknown": sum(row["send_unknown"] for row in consumed),
        "failed_deliveries": sum(row["failed"] for row in consumed),
    }
    report.checks = {
        "every message that was sent is counted once": (
            len(sent) == GROUPS_MAX or sum(row["sends"] for row in sent) == sends
        ),
        "every delivery is counted once": deliveries == joined,
    }


def over_time(joined: DataFrame, window_s: int, is_exact: bool) -> list[Row]:
    """Sends and deliveries of each window, by the time of the send or of the call; empty windows are left out."""
    from pyspark.sql import functions as sql

    def window(column: str) -> Column:
        return (sql.floor(sql.col(column) / (window_s * MS)) * window_s).alias("second")

    sent = joined.where("producer_group is not null").dropDuplicates(["msg_id"]).groupBy(window("timestamp_ms"))
    sends = sent.agg(sql.count("*").alias("sends"), *_two("send_ms", is_exact))
    heard = joined.where("begin_ms is not null").groupBy(window("begin_ms"))
    deliveries = heard.agg(sql.count("*").alias("deliveries"), *_two("wait_ms", is_exact))
    return rows_of(sends.join(deliveries, "second", "full").orderBy("second").limit(WINDOWS_MAX).collect())


def _two(column: str, is_exact: bool) -> list[Column]:
    """The middle and the ninety-ninth percentile."""
    found = percentiles(column, is_exact)
    names = list(PERCENTILES)
    return [found[names.index("p50")], found[names.index("p99")]]


def _draw(path: Path, series: list[Row]) -> Path:
    begin = series[0]["second"] if series else 0

    def points(column: str) -> list[tuple[float, float]]:
        return [(row["second"] - begin, row[column]) for row in series if row[column] is not None]

    counts = {"sent": points("sends"), "delivered": points("deliveries")}
    send = {"p50": points("send_p50_ms"), "p99": points("send_p99_ms")}
    wait = {"p50": points("wait_p50_ms"), "p99": points("wait_p99_ms")}
    return draw(
        path,
        [
            Panel("Messages of each window", "messages", counts),
            Panel("Duration of sends", "ms", send),
            Panel("From the send to the listener", "ms", wait),
        ],
        axis="seconds since the first record",
    )
