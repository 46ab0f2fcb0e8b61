"""Job dedup: one message of each key, as Parquet, and beside it what was left out.

Producers send again what was not acknowledged in time, and a repeated task of Spark sends its rows again with the same
SPARK_ID. A message without key is nobody's duplicate.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.errors import ConfigError
from rocketpy.store.files import translated

from ..columns import SETS, parse_columns
from .inputs import Input
from .report import JobReport, rows_of
from .running import locked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = {"keys": "keys", "msgId": "msgId", "SPARK_ID": "properties['SPARK_ID']"}
FIRST, LATEST = "first", "latest"
KEPT, DROPPED = "messages", "duplicates"
MOST_SHOWN = 20
TABLE, MARK = "table", "of-job-dedup"  # in TARGET.unfinished; the second, a lock, says who made the directory


def dedup(spark: SparkSession, source: Input, target: Path, *, key: str = "msgId", keep: str = FIRST) -> JobReport:
    """Write the messages of an input without duplicates.

    Args:
        target: made by this run: `place=messages/` and `place=duplicates/`, all columns and `dedupKey`. A run that was
            cut short leaves `TARGET.unfinished`, which the next run replaces. So does one whose result is not right.
        key: keys, msgId, SPARK_ID, or an SQL expression over the columns. Messages of two topics are never duplicates.
        keep: `first` or `latest`, by storeTimestamp, then broker and physicalOffset.
    Raises:
        ConfigError: the target is there already. StoreError: another run is making it.
    """
    with _unfinished(target) as unfinished:
        return _write(spark, source, target, unfinished, key, keep)


def _write(spark: SparkSession, source: Input, target: Path, unfinished: Path, key: str, keep: str) -> JobReport:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    read = Observation("read")
    messages = source.frame(spark, parse_columns(SETS[-1], diagnostics=False)).observe(read, sql.count("*").alias("n"))
    marked = mark(messages, KEYS.get(key, key), keep)
    table = unfinished / TABLE
    marked.write.partitionBy("place").parquet(str(table))
    report = _describe(spark.read.schema(marked.schema).parquet(str(table)), read.get["n"])
    report.files = [table]
    if report.is_sound:
        table.rename(target)
        shutil.rmtree(unfinished)
        report.files = [target]
    return report


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """The directory beside the target that has the table until it is checked, empty, and held for this run.

    Raises:
        ConfigError: the target is there, or a directory of this name that no run of this job has made.
        StoreError: another run holds it.
    """
    unfinished = target.with_name(target.name + ".unfinished")
    if unfinished.is_dir() and any(unfinished.iterdir()) and not (unfinished / MARK).exists():
        raise ConfigError(f"{unfinished} is in the way and not of this job: move it away, or name another target")
    _check_new(target)
    with translated(unfinished, "write"):
        unfinished.mkdir(parents=True, exist_ok=True)
    with locked(unfinished / MARK, f"{target}: another run is making it"):
        _check_new(target)  # by a run that has ended meanwhile
        shutil.rmtree(unfinished / TABLE, ignore_errors=True)
        yield unfinished


def _check_new(target: Path) -> None:
    if target.exists():
        raise ConfigError(f"{target} is there already: name a directory that is not")


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
