"""Options of catalog tables: `CREATE TABLE t USING rocketmq OPTIONS (nameServer '…', topic '…')`.

Spark 4.3 shows a Python source the options of a table once, when it asks for the schema of a new table: beside
properties of the table (`provider` is one of each table), and twice, as `topic` and as `option.topic`; only the option
`path`, which is the property `location`, once, as a URL. It keeps them in the catalog, but passes only the
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
    BooleanType,
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
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
PREFIX = "option."
METADATA = "rocketmq.options"
PROVIDER = "provider"
PATH = "path"
OF_EVERY_QUERY = {"rocketmq": "nameServer", "rocketmq_store": "path"}
"""By source, the option without which a query reads a table."""
SECRETS = frozenset({"accesskey", "secretkey", "securitytoken"})


def options_of_new_table(given: Mapping[str, str]) -> dict[str, str] | None:
    """The options of a table that is created, by lower-case key; None if the options are those of a query.

    Raises:
        ConfigError: one of them is a secret, which everybody could read in the catalog.
    """
    by_key = {key.lower(): text for key, text in given.items()}
    if PROVIDER not in by_key:
        return None
    found = {key.removeprefix(PREFIX): text for key, text in by_key.items() if key.startswith(PREFIX) or key == PATH}
    if secrets := SECRETS & found.keys():
        remedy = "the catalog would show it to everybody: use credentialsFile or credentialsEnv"
        raise ConfigError(remedy, key=min(secrets))
    return found


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


def options_of_table(given: Mapping[str, str], schema: StructType, source: str) -> dict[str, str] | None:
    """The options of a query of a table: those that its schema keeps, and the query's own, which win.

    Args:
        source: a key of OF_EVERY_QUERY.
    Returns: None for a query that says all itself. Its rows may be those of a table, and have that one's schema.
    Raises:
        ConfigError: a table has no options.
    """
    if OF_EVERY_QUERY[source].lower() in {key.lower() for key in given}:
        return None
    for field in schema:
        if METADATA in field.metadata:
            kept: dict[str, str] = json.loads(field.metadata[METADATA])
            return kept | {key.lower(): text for key, text in given.items()}
    if not given:
        raise ConfigError(
            "this option is required. A catalog table made with a list of columns has no options: use CREATE TABLE t "
            f"USING {source} OPTIONS (…) without one; the option columns chooses columns",
            key=OF_EVERY_QUERY[source],
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
