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
from ..bodies import ERROR, VALUE, Format, decode, encode
from ..bodies.formats import format_of
from ..columns import nearest
from ..options import parse_options
from ..topic_options import TopicOptions
from .side_output import check_rows_alone, fault_of, write_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
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
        bad: options of a second writer, for the rows that have a `bodyError` (side_output.py). {source} has the others.
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
    bad: Options | None = None

    @classmethod
    def parse(cls, name: str, table: Any, path: Path) -> Self:
        """Raise ConfigError, with the place in the file, unless `table` declares a query."""
        place = f"[query.{name}]"
        if not isinstance(table, dict):
            raise ConfigError("is not a table", file=path, key=place)
        known = [field.name for field in attrs.fields(cls) if field.name != "name"]
        _refuse_unknown(table, known, path, place)
        given = dict(table)
        sinks = [key for key in ("sink", "bad") if key == "sink" or key in given]
        for key in ("source", *sinks):
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
        for key in sinks:
            if "format" not in given[key]:
                raise ConfigError(f'{key} needs a format, like "parquet"', file=path, key=place)
        if "bad" in given and (reason := fault_of(given)):
            raise ConfigError(reason, file=path, key=place)
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
        result = self._selected(frame)
        if self.bad is not None:
            check_rows_alone(result, self.name)
            writer = frame.writeStream.foreachBatch(self._write)
        else:
            for line in advice(result):
                logger.warning("query %s would read less: %s", self.name, line)
            writer = self._encoded(result).writeStream.format(self.sink["format"])
            writer = writer.options(**_without_format(self.sink))
        writer = writer.queryName(self.name).outputMode(self.mode).option("checkpointLocation", self.checkpoint)
        if self.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self.trigger:
            writer = writer.trigger(processingTime=self.trigger)
        return writer.start()

    def _selected(self, frame: DataFrame) -> DataFrame:
        return frame.sparkSession.sql(self.sql, source=frame) if self.sql else frame

    def _encoded(self, frame: DataFrame) -> DataFrame:
        return encode(frame, self.encode).drop(VALUE) if self.encode is not None else frame

    def _write(self, rows: DataFrame, number: int) -> None:
        """Write a micro-batch to both outputs."""
        assert self.bad is not None
        rows.persist()
        try:
            write_part(rows.where(f"{ERROR} IS NOT NULL").drop(VALUE), self.bad, number, f"{self.checkpoint} bad")
            good = self._encoded(self._selected(rows.where(f"{ERROR} IS NULL")))
            write_part(good, self.sink, number, self.checkpoint)
        finally:
            rows.unpersist()


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
