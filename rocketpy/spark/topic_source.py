"""Source `rocketmq`: topics of running brokers as tables and streams."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from .cluster import CLUSTERS
from .columns import columns_of
from .data_lost import DataLost
from .options import OF_SPARK, parse_options
from .outgoing import SinkOptions
from .ranges import Ranges, check_order, slice_within
from .sink import TopicStreamWriter, TopicWriter, make_task_writer
from .slices import mean_message_bytes, partitions_of, read_partition
from .stream import TopicStreamReader
from .table_options import options_of_new_table, options_of_table, parse_table_options, schema_with
from .topic_options import TopicOptions
from .worker import reason_first


class TopicSource(DataSource):
    """`spark.read.format("rocketmq")`, `readStream`, `df.write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @reason_first()
    def schema(self) -> Any:
        table = options_of_new_table(self.options)
        if table is None:
            return parse_options(TopicOptions, self.options, ignored=OF_SPARK).ddl()
        return schema_with(table, parse_table_options(table)[0].ddl())

    @reason_first()
    def reader(self, schema: Any) -> DataSourceReader:
        options = _source_options(self.options, schema)
        return TopicReader(options, _columns(options, schema))

    @reason_first()
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        options = _source_options(self.options, schema)
        return TopicStreamReader(options, _columns(options, schema))

    @reason_first()
    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return TopicWriter(make_task_writer(schema, _sink_options(self.options, schema), overwrite=overwrite))

    @reason_first()
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return TopicStreamWriter(make_task_writer(schema, _sink_options(self.options, schema), overwrite=overwrite))


def _sink_options(given: MutableMapping[str, str], schema: Any) -> SinkOptions:
    table = options_of_table(given, schema, TopicSource.name())
    return parse_options(SinkOptions, given, ignored=OF_SPARK) if table is None else parse_table_options(table)[1]


def _source_options(given: MutableMapping[str, str], schema: Any) -> TopicOptions:
    table = options_of_table(given, schema, TopicSource.name())
    return parse_options(TopicOptions, given, ignored=OF_SPARK) if table is None else parse_table_options(table)[0]


def _columns(options: TopicOptions, schema: Any) -> tuple[str, ...]:
    return columns_of(schema, json_properties=options.properties_as == "json")


class TopicReader(DataSourceReader):
    """Plans in the driver, reads in the executors; pickled between them. `load()` is a snapshot: one plan serves all
    actions on its DataFrame."""

    def __init__(self, options: TopicOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    @reason_first()
    def partitions(self) -> list[InputPartition]:
        ranges = Ranges(self.options, CLUSTERS.get(self.options.client_options()))
        bounds = ranges.cluster.bounds(ranges.queues())
        starts, ends = ranges.starts(bounds, "earliest"), ranges.ends(bounds)
        check_order(self.options, starts, ends)
        fail = self.options.fail_on_data_loss
        behind = min((queue for queue, bound in bounds.items() if starts[queue] > bound.max_offset), default=None)
        if fail and behind is not None:
            raise DataLost(behind, starts[behind], bounds[behind].min_offset, bounds[behind].max_offset)
        found = (slice_within(queue, starts[queue], ends[queue], bounds[queue], fail=fail) for queue in bounds)
        slices = [one for one in found if one is not None]
        return partitions_of(self.options, slices, mean_message_bytes(self.options, slices))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self.options, self.columns, partition)
