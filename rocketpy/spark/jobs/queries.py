"""The streaming queries of a file for `rocketpy pipeline run`: one table of TOML for each.

    [query.orders]
    source = { nameServer = "127.0.0.1:9876", topic = "Orders", startingOffsets = "earliest" }
    sql = "SELECT tags, body, storeTimestamp FROM {source} WHERE tags = 'eu'"
    sink = { format = "parquet", path = "/tables/orders" }
    checkpoint = "/tables/orders-checkpoint"
    trigger = "10 seconds"

`source` and `sink` have the options that Spark's readers and writers have. A file declares queries, and runs no code:
what SQL cannot say needs a program of its own.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from rocketpy.client.options import ClientOptions
from rocketpy.errors import ConfigError

from ..advice import advice
from ..bodies import VALUE, Format, decode, encode
from ..bodies.formats import format_of
from ..columns import nearest
from ..options import parse_options
from ..topic_options import TopicOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

logger = logging.getLogger(__name__)

SOURCE = "{source}"  # where an SQL query names the messages
TOPICS = "rocketmq"
AVAILABLE_NOW = "available now"
MASTER = "local[2,3]"  # a task is tried three times, which `local[2]` does not do
Options = Mapping[str, str]


@attrs.frozen
class QuerySpec:
    """A streaming query, as a file declares it.

    Attributes:
        name: of its table in the file, and in messages.
        source: options of the reader; `format` is rocketmq unless given.
        sink: options of the writer; `format` is needed.
        checkpoint: the directory by which a restarted query goes on.
        sql: a query over {source}; none: all rows as they are read.
        trigger: a duration as `10 seconds`, or `available now`, which ends the query when it has read what is there;
            none: the next micro-batch begins when one has ended.
        mode: append, update or complete.
        decode: the format of bodies: {source} has the columns `value` and `bodyError` as well (bodies.decode).
        encode: the format in which the column `value` becomes bodies (bodies.encode).
    """

    name: str
    source: Options
    sink: Options
    checkpoint: str
    sql: str = ""
    trigger: str = ""
    mode: str = "append"
    decode: Format | None = None
    encode: Format | None = None

    @classmethod
    def parse(cls, name: str, table: Any, path: Path) -> Self:
        """Raise ConfigError, with the place in the file, unless `table` declares a query."""
        place = f"[query.{name}]"
        if not isinstance(table, dict):
            raise ConfigError("is not a table", file=path, key=place)
        known = [field.name for field in attrs.fields(cls) if field.name != "name"]
        _refuse_unknown(table, known, path, place)
        given = dict(table)
        for key in ("source", "sink"):
            options = given.get(key)
            if not isinstance(options, dict):
                raise ConfigError(f"needs {key} = {{ … }}, the options of Spark", file=path, key=place)
            given[key] = {option: _text(value) for option, value in options.items()}
        given["source"] = {"format": TOPICS} | given["source"]
        for key in ("checkpoint", *(key for key in ("sql", "trigger", "mode") if key in given)):
            if not isinstance(given.get(key), str) or not given[key]:
                raise ConfigError(f"needs {key}, a text", file=path, key=place)
        for key in ("decode", "encode"):
            if key in given:
                given[key] = _format(given[key], path, f"{place} {key}")
        if "format" not in given["sink"]:
            raise ConfigError('sink needs a format, like "parquet"', file=path, key=place)
        if given.get("sql") and SOURCE not in given["sql"]:
            raise ConfigError(f"sql must read FROM {SOURCE}", file=path, key=place)
        return cls(name=name, **given)

    def client(self) -> ClientOptions | None:
        """Return the connection of the source; None if it reads no topic, or an option is wrong (the start says so)."""
        if self.source["format"] != TOPICS:
            return None
        try:
            return parse_options(TopicOptions, _without_format(self.source)).client_options()
        except ConfigError:
            return None

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query, or raise what Spark raises."""
        reader = spark.readStream.format(self.source["format"])
        frame = reader.options(**_without_format(self.source)).load()
        if self.decode is not None:
            frame = decode(frame, self.decode)
        if self.sql:
            frame = spark.sql(self.sql, source=frame)
        for line in advice(frame):
            logger.warning("query %s would read less: %s", self.name, line)
        if self.encode is not None:
            frame = encode(frame, self.encode).drop(VALUE)
        writer = frame.writeStream.format(self.sink["format"]).options(**_without_format(self.sink))
        writer = writer.queryName(self.name).outputMode(self.mode).option("checkpointLocation", self.checkpoint)
        if self.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self.trigger:
            writer = writer.trigger(processingTime=self.trigger)
        return writer.start()


@attrs.frozen
class Pipeline:
    """A file of queries.

    Attributes:
        master: of Spark.
        config: settings of the session.
    """

    queries: list[QuerySpec]
    master: str = MASTER
    config: Options = attrs.field(factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises ConfigError."""
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=path) from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"is not TOML: {error}", file=path) from error
        _refuse_unknown(found, ["session", "query"], path, "")
        session, tables = found.get("session", {}), found.get("query", {})
        if not isinstance(session, dict) or not isinstance(tables, dict) or not tables:
            raise ConfigError("declares no query: [query.NAME]", file=path)
        _refuse_unknown(session, ["master", "config"], path, "[session]")
        queries = [QuerySpec.parse(name, table, path) for name, table in tables.items()]
        _refuse_shared_checkpoints(queries, path)
        config = {key: _text(value) for key, value in dict(session.get("config", {})).items()}
        return cls(queries, str(session.get("master", MASTER)), config)

    def client_of(self, name: str) -> ClientOptions | None:
        """Return the connection of the query's source; None if it reads no topic."""
        return next((query.client() for query in self.queries if query.name == name), None)


def _refuse_unknown(table: Mapping[str, Any], known: list[str], path: Path, place: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"unknown key {key}{nearest(key, known)}", file=path, key=place or None)


def _format(table: Any, path: Path, place: str) -> Format:
    if not isinstance(table, dict):
        raise ConfigError('is no table, as { format = "avro", schema = "order.avsc" }', file=path, key=place)
    try:
        return format_of(table)
    except ConfigError as error:
        raise ConfigError(str(error), file=path, key=place) from None


def _refuse_shared_checkpoints(queries: list[QuerySpec], path: Path) -> None:
    owners: dict[str, str] = {}
    for query in queries:
        other = owners.setdefault(query.checkpoint, query.name)
        if other != query.name:
            raise ConfigError(f"has the checkpoint of [query.{other}]", file=path, key=f"[query.{query.name}]")


def _text(value: Any) -> str:
    """An option as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_format(options: Options) -> dict[str, str]:
    return {key: text for key, text in options.items() if key != "format"}
