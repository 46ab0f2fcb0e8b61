"""Job dedup: one message of each key, as Parquet, and beside it what was left out.

Producers send again what was not acknowledged in time, and a repeated task of Spark sends its rows again with the same
SPARK_ID. A message without key is nobody's duplicate.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.errors import ConfigError

from ..columns import SETS, parse_columns
from .inputs import Input
from .report import JobReport, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = {"keys": "keys", "msgId": "msgId", "SPARK_ID": "properties['SPARK_ID']"}
FIRST, LATEST = "first", "latest"
KEPT, DROPPED = "messages", "duplicates"
MOST_SHOWN = 20
MARK = "of-job-dedup"  # in TARGET.unfinished: a file that says who made the directory


def dedup(spark: SparkSession, source: Input, target: Path, *, key: str = "msgId", keep: str = FIRST) -> JobReport:
    """Write the messages of an input without duplicates.

    Args:
        target: made by this run: `place=messages/` and `place=duplicates/`, all columns and `dedupKey`. A run that was
            cut short leaves `TARGET.unfinished`, which the next run replaces. So does one whose result is not right.
        key: keys, msgId, SPARK_ID, or an SQL expression over the columns. Messages of two topics are never duplicates.
        keep: `first` or `latest`, by storeTimestamp, then broker and physicalOffset.
    Raises:
        ConfigError: the target is there already.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    if target.exists():
        raise ConfigError(f"{target} is there already: name a directory that is not")
    unfinished = _make_unfinished(target)
    read = Observation("read")
    messages = source.frame(spark, parse_columns(SETS[-1], diagnostics=False)).observe(read, sql.count("*").alias("n"))
    marked = mark(messages, KEYS.get(key, key), keep)
    table = unfinished / "table"
    marked.write.partitionBy("place").parquet(str(table))
    report = _describe(spark.read.schema(marked.schema).parquet(str(table)), read.get["n"])
    report.files = [table]
    if report.is_sound:
        table.rename(target)
        shutil.rmtree(unfinished)
        report.files = [target]
    return report


def _make_unfinished(target: Path) -> Path:
    """The directory beside the target that has the table until it is checked, empty.

    Raises:
        ConfigError: there is one that no run of this job has made.
    """
    unfinished = target.with_name(target.name + ".unfinished")
    if unfinished.is_dir() and any(unfinished.iterdir()) and not (unfinished / MARK).exists():
        raise ConfigError(f"{unfinished} is in the way and not of this job: move it away, or name another target")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / MARK).touch()
    return unfinished


def mark(messages: DataFrame, key: str, keep: str) -> DataFrame:
    """The messages with `dedupKey` and with `place`: messages, or duplicates."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    own = sql.concat_ws("/", "brokerName", "queueId", "queueOffset")  # otherwise one task would get all without key
    keyed = messages.withColumn("dedupKey", sql.expr(key).cast("string"))
    order = [sql.col(name) for name in ("storeTimestamp", "brokerName", "physicalOffset")]
    alike = Window.partitionBy("topic", sql.col("dedupKey").isNull(), sql.coalesce("dedupKey", own)).orderBy(
        *(column.desc() if keep == LATEST else column.asc() for column in order)
    )
    place = sql.when(sql.row_number().over(alike) == 1, KEPT).otherwise(DROPPED)
    return keyed.withColumn("place", place)


def _describe(written: DataFrame, count: int) -> JobReport:
    """The result as it is in the files."""
    from pyspark.sql import functions as sql

    counts = {row["place"]: row["count"] for row in written.groupBy("place").count().collect()}
    kept = written.where(sql.col("place") == KEPT)
    repeated = kept.where("dedupKey is not null").groupBy("topic", "dedupKey").count().where("count > 1")
    dropped = written.where(sql.col("place") == DROPPED).groupBy("topic", "dedupKey")
    most = dropped.agg(sql.count("*").alias("duplicates")).orderBy(sql.desc("duplicates"), "topic", "dedupKey")
    return JobReport(
        "dedup",
        totals={
            "input": count,
            KEPT: counts.get(KEPT, 0),
            DROPPED: counts.get(DROPPED, 0),
            "without_key": kept.where("dedupKey is null").count(),
        },
        tables={"most_repeated": rows_of(most.limit(MOST_SHOWN).collect())},
        checks={
            "every message is in one of the two tables": sum(counts.values()) == count,
            "no key is kept twice": repeated.isEmpty(),
        },
    )
