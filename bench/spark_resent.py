"""A source for Spark that sends one batch of a store again and again: what Spark and its sockets take by themselves.

The scan of a store beside it shows what finding and decoding records adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rocketpy.spark.columns import ddl_of, parse_columns
from rocketpy.spark.options import parse_options
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.store_source import PieceReader, plan
from rocketpy.spark.worker import prepare_worker

RESENT = "rocketmq_resent"


class ResentSource(DataSource):
    """Options: `path` of a store, `columns`, `rows` of all tasks together, and `tasks`."""

    @classmethod
    def name(cls) -> str:
        return RESENT

    def schema(self) -> str:
        return ddl_of(parse_columns(self.options["columns"], diagnostics=False))

    def reader(self, schema: Any) -> DataSourceReader:
        return ResentReader(dict(self.options))


class ResentReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        rows, tasks = int(self.options["rows"]), int(self.options["tasks"])
        return [InputPartition(rows * (at + 1) // tasks - rows * at // tasks) for at in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        prepare_worker()
        store = parse_options(StoreOptions, {"path": self.options["path"]})
        names = parse_columns(self.options["columns"], diagnostics=False)
        batch = next(PieceReader(store, names, plan(store)[0]).batches())
        left = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows
