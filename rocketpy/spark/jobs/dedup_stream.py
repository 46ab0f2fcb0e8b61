"""Job dedup of a stream: messages of a topic without their copies, as Parquet that grows from run to run.

Each micro-batch is compared with the keys of the messages that were kept before. These keys are a table of their own,
the state: it has the keys of messages stored at most `within_s` before the newest one, so it does not grow with the
topic. Spark repeats a micro-batch that was cut short with the same messages; it then finds the same state, and replaces
what it has written. Spark's own dropDuplicatesWithinWatermark drops messages that are read late, whether they are
copies or not; here they are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.errors import StoreError

from ..columns import SETS
from ..session import register
from .dedup import DROPPED, FIRST, KEPT, KEYS, mark
from .report import JobReport
from .target import CHECKPOINT, asked_of, claimed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHIN_S = 600
TABLE, STATE, UNFINISHED = "table", "state", "unfinished"
STATE_SCHEMA = "topic string, dedupKey string, storeTimestamp timestamp"  # one row without key: the newest message


@attrs.frozen
class DedupStream:
    """The topics that are read, and the rule by which a message is a copy.

    Attributes:
        key: as of `dedup`.
        within_s: a copy is recognized if its first message is in the same micro-batch, or was stored at most so long
            before the newest message.
        connection: options of the connection beside nameServer, like credentialsFile.
    """

    name_server: str
    topics: tuple[str, ...]
    key: str = "msgId"
    within_s: int = WITHIN_S
    connection: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def within_ms(self) -> int:
        return self.within_s * 1000


def dedup_stream(
    spark: SparkSession, wanted: DedupStream, target: Path, *, max_per_trigger: int | None = None
) -> JobReport:
    """Read all that is there now, from where the run before stopped.

    Args:
        target: gets `table/` with place=messages/batch=N/ and place=duplicates/batch=N/, `state/`, and `checkpoint/`.
        max_per_trigger: messages of a micro-batch.
    Raises:
        ConfigError: the target was made by a run with other settings. StoreError: its state is gone, or another run is
        using it.
    """
    target = target.absolute()
    with claimed(target, "dedup.json", asked_of(wanted)):
        return _run(spark, wanted, target, max_per_trigger)


def _run(spark: SparkSession, wanted: DedupStream, target: Path, max_per_trigger: int | None) -> JobReport:
    register(spark)
    limits = {"maxOffsetsPerTrigger": max_per_trigger} if max_per_trigger else {}
    reader = spark.readStream.format("rocketmq").options(startingOffsets="earliest", columns=SETS[-1], **limits)
    reader = reader.options(**wanted.connection, nameServer=wanted.name_server, subscribe=",".join(wanted.topics))
    batches = BatchWriter(target, wanted)
    writer = reader.load().writeStream.foreachBatch(batches.write)
    query = writer.option("checkpointLocation", str(target / CHECKPOINT)).trigger(availableNow=True).start()
    query.awaitTermination()
    counts = batches.counts
    return JobReport(
        "dedup",
        totals=attrs.asdict(counts),
        checks={"every message is in one of the two tables": counts.messages + counts.duplicates == counts.input},
        files=[target / TABLE],
    )


@attrs.define
class Counts:
    """Of the micro-batches of a run.

    Attributes:
        late: messages that were read after others stored more than `within_s` later: copies of them may be kept.
        state_keys: after the last batch.
    """

    batches: int = attrs.field(init=False, default=0)
    input: int = attrs.field(init=False, default=0)
    messages: int = attrs.field(init=False, default=0)
    duplicates: int = attrs.field(init=False, default=0)
    without_key: int = attrs.field(init=False, default=0)
    late: int = attrs.field(init=False, default=0)
    state_keys: int = attrs.field(init=False, default=0)


@attrs.define
class BatchWriter:
    """Writes micro-batches; runs in the driver, one after the other."""

    target: Path
    wanted: DedupStream
    counts: Counts = attrs.field(factory=Counts)

    def write(self, messages: DataFrame, number: int) -> None:
        """Divide a micro-batch into messages and duplicates, and make the state after it."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        spark, read = messages.sparkSession, Observation("read")
        before = self._state(spark, number - 1)
        known = before.select("topic", "dedupKey", sql.lit(True).alias("isKnown"))
        key = KEYS.get(self.wanted.key, self.wanted.key)
        marked = mark(messages.observe(read, sql.count("*").alias("n")), key, FIRST)
        place = sql.when(sql.col("isKnown"), DROPPED).otherwise(sql.col("place"))
        divided = marked.join(known, ["topic", "dedupKey"], "left").withColumn("place", place).drop("isKnown")
        unfinished = self.target / UNFINISHED
        shutil.rmtree(unfinished, ignore_errors=True)
        divided.write.partitionBy("place").parquet(str(unfinished))
        self.counts.batches += 1
        self.counts.input += read.get["n"]
        self._write_state(before, spark.read.schema(divided.schema).parquet(str(unfinished)), number)
        for name in (KEPT, DROPPED):
            self._publish(unfinished / f"place={name}", self.target / TABLE / f"place={name}" / f"batch={number}")
        shutil.rmtree(self.target / STATE / str(number - 2), ignore_errors=True)

    def _state(self, spark: SparkSession, number: int) -> DataFrame:
        """The state after a batch."""
        path = self.target / STATE / str(number)
        if number < 0:
            return spark.createDataFrame([], STATE_SCHEMA)
        if not path.exists():
            raise StoreError(f"{path} is gone: without it copies are not recognized; name another target")
        return spark.read.schema(STATE_SCHEMA).parquet(str(path))

    def _write_state(self, before: DataFrame, written: DataFrame, number: int) -> None:
        """The keys that later batches are compared with, and what is counted of this one."""
        from pyspark.sql import functions as sql

        spark, within_ms = written.sparkSession, self.wanted.within_ms
        stored_ms, is_kept = sql.unix_millis("storeTimestamp"), sql.col("place") == KEPT
        newest_before = before.agg(sql.max(stored_ms)).collect()[0][0] or 0
        row = written.agg(
            sql.max(stored_ms).alias("newest"),
            sql.count_if(is_kept).alias("messages"),
            sql.count_if(~is_kept).alias("duplicates"),
            sql.count_if(sql.col("dedupKey").isNull()).alias("without_key"),
            sql.count_if(stored_ms < newest_before - within_ms).alias("late"),
        ).collect()[0]
        kept = written.where(is_kept & sql.col("dedupKey").isNotNull()).select(*before.columns)
        newest = max(newest_before, row["newest"] or 0)
        marker = spark.range(1).selectExpr(
            "string(null) topic", "string(null) dedupKey", f"timestamp_millis({newest}) storeTimestamp"
        )
        keys = before.where("dedupKey is not null").unionByName(kept).where(stored_ms >= newest - within_ms)
        path = str(self.target / STATE / str(number))
        keys.unionByName(marker).write.mode("overwrite").parquet(path)
        for name in ("messages", "duplicates", "without_key", "late"):
            setattr(self.counts, name, getattr(self.counts, name) + row[name])
        self.counts.state_keys = spark.read.schema(STATE_SCHEMA).parquet(path).count() - 1

    def _publish(self, source: Path, place: Path) -> None:
        """Put a batch's part into the table, in place of what a run that was cut short has left."""
        shutil.rmtree(place, ignore_errors=True)
        if source.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            source.rename(place)
