"""The input of an analytics job: topics of running brokers, a store directory, or an archive of job archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rocketpy.errors import ConfigError

from ..cluster import CLUSTERS, Cluster
from ..columns import SETS, ddl_of, parse_columns
from ..connection import ConnectionOptions, connection_of
from ..options import parse_options
from ..session import read
from .archived import files_by_topic, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class Input:
    """Exactly one of `name_server`, `store` and `archive`; with `name_server` at least one topic.

    `store` and `archive` must be at the same path on every worker. Without topics all of them are read. `connection`
    has options of the connection to brokers beside nameServer, like credentialsFile.
    """

    name_server: str | None = None
    store: Path | None = None
    archive: Path | None = None
    topics: tuple[str, ...] = ()
    connection: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        if sum(bool(one) for one in (self.name_server, self.store, self.archive)) != 1:
            raise ConfigError("name one input: --name-server with --topic, --store, or --archive")
        if self.name_server and not self.topics:
            raise ConfigError("--name-server needs topics: name them with --topic")
        if self.name_server:
            connection_of(self.name_server, self.connection)
        elif self.connection:
            raise ConfigError("belongs to --name-server", key="--option")
        for directory in (self.store, self.archive):
            if directory is not None and not directory.is_dir():
                raise ConfigError(f"{directory} is not a directory")

    @property
    def cluster(self) -> Cluster:
        """The brokers that are read."""
        assert self.name_server is not None
        options = connection_of(self.name_server, self.connection)
        return CLUSTERS.get(parse_options(ConnectionOptions, options).client_options())

    def frame(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The messages that are there now, with these columns."""
        if self.archive is not None:
            return self._archived(spark, columns)
        if self.store is not None:
            topics = {"topics": ",".join(self.topics)} if self.topics else {}
            path = str(self.store.absolute())
            return read(spark, "rocketmq_store", columns=columns, path=path, liveTail=True, **topics)
        options: dict[str, Any] = {**self.connection, "nameServer": self.name_server}
        return read(spark, columns=columns, subscribe=",".join(self.topics), **options)

    def _archived(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """The files of the manifests. A schema is given, so that topics whose names are numbers stay text."""
        assert self.archive is not None
        archive = self.archive.absolute()
        bases: dict[str, list[str]] = {}
        for broker, topics in files_by_topic(archive, self.topics).items():
            for file in (file for files in topics.values() for file in files):
                base, path = place_of(archive, broker, file.path)
                bases.setdefault(str(base), []).append(str(path))
        schema = ddl_of(parse_columns(SETS[-1], diagnostics=False)) + ", dt date"
        frames = [
            spark.read.schema(schema).option("basePath", base).parquet(*paths).select(*columns)
            for base, paths in sorted(bases.items())
        ]
        if not frames:
            return spark.createDataFrame([], schema).select(*columns)
        return reduce(lambda one, other: one.unionByName(other), frames)
