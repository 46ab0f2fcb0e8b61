"""Options of catalog tables: `CREATE TABLE t USING rocketmq OPTIONS (nameServer '…', topic '…')`.

Spark 4.3 shows a Python source the options of a table once, when it asks for the schema of a new table: beside
properties of the table, and twice, as `topic` and as `option.topic`. It keeps them in the catalog, but passes only the
schema to reads and writes. Therefore the options travel in the schema: as metadata of its first column, which the
catalog keeps from session to session. Options of a single query are added to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketpy.errors import ConfigError

from .options import OF_SPARK, parse_options
from .outgoing import SinkOptions
from .topic_options import TopicOptions

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
PREFIX = "option."
METADATA = "rocketmq.options"
NAME_SERVERS = "nameserver"
SECRETS = frozenset({"accesskey", "secretkey", "securitytoken"})


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is created, by lower-case key; None if the options are those of a query.

    Raises:
        ConfigError: one of them is a secret, which everybody could read in the catalog.
    """
    found = {key.lower().removeprefix(PREFIX): text for key, text in given.items() if key.lower().startswith(PREFIX)}
    if secrets := SECRETS & found.keys():
        remedy = "the catalog would show it to everybody: use credentialsFile or credentialsEnv"
        raise ConfigError(remedy, key=min(secrets))
    return found or None


def schema_with(options: Mapping[str, str], ddl: str) -> StructType:
    """The schema of a table that keeps its options.

    Args:
        ddl: the columns as `ddl_of` writes them. (StructType.fromDDL needs the JVM, which this process does not have.)
    """
    columns = [column.split(" ") for column in ddl.split(", ")]
    kept = {METADATA: json.dumps(dict(sorted(options.items())))}
    return StructType(
        [StructField(name, TYPES[kind], True, {} if at else kept) for at, (name, kind) in enumerate(columns)]
    )


def options_of_table(given: Mapping[str, str], schema: StructType) -> dict[str, str] | None:
    """The options of a query of a table: those that its schema keeps, and the query's own, which win.

    Returns: None for a query that says all itself. Its rows may be those of a table, and have that one's schema.
    Raises:
        ConfigError: a table has no options.
    """
    if NAME_SERVERS in {key.lower() for key in given}:
        return None
    for field in schema:
        if METADATA in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[METADATA])
            return kept | {key.lower(): text for key, text in given.items()}
    if not given:
        raise ConfigError(
            "this option is required. A catalog table made with a list of columns has no options: use CREATE TABLE t "
            "USING rocketmq OPTIONS (…) without one; the option columns chooses columns",
            key="nameServer",
        )
    return None


def parse_table_options(options: Mapping[str, str]) -> tuple[TopicOptions, SinkOptions]:
    """Return a table's options for its reads and its writes. Columns that only reads have are left out of writes.

    Raises:
        ConfigError: neither source nor sink has one of them.
    """
    of_source, of_sink = (_keys(kind) & options.keys() for kind in (TopicOptions, SinkOptions))
    source = parse_options(TopicOptions, options, ignored=OF_SPARK | (of_sink - of_source))
    sink = parse_options(SinkOptions, options, ignored=OF_SPARK | (of_source - of_sink))
    return source, attrs.evolve(sink, ignore_unknown_columns=True)


def _keys(kind: type[Any]) -> frozenset[str]:
    """The keys of a class of options, in lower case."""
    return frozenset(field.metadata["key"].lower() for field in attrs.fields(kind))
