"""A stream for Spark whose rows are made in memory: what a micro-batch costs that asks nobody for anything.

The micro-batches of a topic beside it show what offsets and messages add. Both plan and read in Python processes, keep
a checkpoint, and send their rows to the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rocketpy.spark.columns import arrow_schema, ddl_of, parse_columns
from rocketpy.spark.worker import prepare_worker

FLOOR = "rocketmq_floor"
BODY = bytes(100)


class FloorSource(DataSource):
    """Options: `rows` of each micro-batch, and how many `batches` there are. It has the columns of `min`."""

    @classmethod
    def name(cls) -> str:
        return FLOOR

    def schema(self) -> str:
        return ddl_of(parse_columns("min", diagnostics=False))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return FloorReader(int(self.options["rows"]), int(self.options["batches"]))


class FloorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are counts of batches. A batch is one task, as that of a topic with few messages."""

    def __init__(self, rows: int, batches: int) -> None:
        self.rows = rows
        self.batches = batches

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """All batches are there from the beginning."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        following = self.batches if isinstance(limit, ReadAllAvailable) else start["batch"] + 1
        return {"batch": min(self.batches, following)}

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"batch": self.batches}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((end["batch"] - start["batch"]) * self.rows)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        prepare_worker()
        schema = arrow_schema(parse_columns("min", diagnostics=False))
        of_kind = {pa.int32(): 0, pa.int64(): 0, pa.binary(): BODY}
        arrays = [pa.repeat(pa.scalar(of_kind[field.type], field.type), partition.value) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
