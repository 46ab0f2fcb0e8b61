"""Where an analytics job reads messages: topics of running brokers, a store directory, or an archive of job archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.errors import ConfigError

from ..columns import SETS, ddl_of, parse_columns
from ..session import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class Input:
    """Exactly one of `name_server`, `store` and `archive`; with `name_server` at least one topic.

    `store` and `archive` must be at the same path on every worker. Without topics all of them are read.
    """

    name_server: str | None = None
    store: Path | None = None
    archive: Path | None = None
    topics: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if sum(bool(one) for one in (self.name_server, self.store, self.archive)) != 1:
            raise ConfigError("name one input: --name-server with --topic, --store, or --archive")
        if self.name_server and not self.topics:
            raise ConfigError("which topics of the brokers? name them with --topic")
        for directory in (self.store, self.archive):
            if directory is not None and not directory.is_dir():
                raise ConfigError(f"{directory} is not a directory")

    def frame(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The messages that are there now, with these columns."""
        if self.archive is not None:
            return self._archived(spark, columns)
        if self.store is not None:
            topics = {"topics": ",".join(self.topics)} if self.topics else {}
            path = str(self.store.absolute())
            return read(spark, "rocketmq_store", columns=columns, path=path, liveTail=True, **topics)
        return read(spark, columns=columns, nameServer=self.name_server, subscribe=",".join(self.topics))

    def _archived(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """A schema is given, so that topics whose names are numbers stay text."""
        schema = ddl_of(parse_columns(SETS[-1], diagnostics=False)) + ", dt date"
        frame = spark.read.schema(schema).parquet(str(self.archive))
        if self.topics:
            frame = frame.where(frame.topic.isin(*self.topics))
        return frame.select(*columns)
