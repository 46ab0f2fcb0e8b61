"""The columns of the sources: names, types, and which of them a query gets.

Spark gives a Python source no column pruning, and each column costs the JVM 0.05 to 0.9 microseconds a row whether it
is used or not. Therefore a query names the columns that it wants: option `columns`, or a schema that Spark passes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import attrs
import pyarrow as pa

from rocketpy.errors import ConfigError

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())


@attrs.frozen
class Column:
    """One column. `ddl` is its type in Spark, `arrow` the same in Arrow."""

    name: str
    ddl: str
    arrow: Any
    sets: frozenset[str]


def _column(name: str, ddl: str, arrow: Any, smallest_set: str) -> Column:
    sets = {"min": {"min", "std", "all"}, "std": {"std", "all"}, "all": {"all"}, "diagnostics": set()}
    return Column(name, ddl, arrow, frozenset(sets[smallest_set]))


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        _column("topic", "string", pa.string(), "std"),
        _column("brokerName", "string", pa.string(), "std"),
        _column("queueId", "int", pa.int32(), "min"),
        _column("queueOffset", "bigint", pa.int64(), "min"),
        _column("physicalOffset", "bigint", pa.int64(), "min"),
        _column("msgId", "string", pa.string(), "std"),
        _column("keys", "string", pa.string(), "std"),
        _column("tags", "string", pa.string(), "std"),
        _column("body", "binary", pa.binary(), "min"),
        _column("properties", "map<string,string>", PROPERTIES, "all"),
        _column("bornTimestamp", "timestamp", TIMESTAMP, "std"),
        _column("storeTimestamp", "timestamp", TIMESTAMP, "std"),
        _column("flag", "int", pa.int32(), "all"),
        _column("sysFlag", "int", pa.int32(), "all"),
        _column("reconsumeTimes", "int", pa.int32(), "all"),
        _column("storeSize", "int", pa.int32(), "all"),
        _column("bodyCRC", "int", pa.int32(), "all"),
        _column("bornHost", "string", pa.string(), "all"),
        _column("storeHost", "string", pa.string(), "all"),
        _column("preparedTransactionOffset", "bigint", pa.int64(), "all"),
        _column("offsetMsgId", "string", pa.string(), "all"),
        _column("segment", "string", pa.string(), "diagnostics"),
        _column("crcOk", "boolean", pa.bool_(), "diagnostics"),
        _column("corruptReason", "string", pa.string(), "diagnostics"),
    )
}
DIAGNOSTICS = ("segment", "crcOk", "corruptReason")
"""Columns of the store source alone: what is known of damage."""
SETS = ("min", "std", "all")
NUMBERS = frozenset(name for name, column in COLUMNS.items() if column.arrow in (pa.int32(), pa.int64()))
TIMES = frozenset(name for name, column in COLUMNS.items() if column.arrow == TIMESTAMP)


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean "x"?` if a known name is close, otherwise nothing."""
    spelling = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), spelling, n=1)
    return f'; did you mean "{spelling[close[0]]}"?' if close else ""


def parse_columns(text: str, *, diagnostics: bool) -> tuple[str, ...]:
    """The columns that the option `columns` asks for: a set, or names separated by commas, in any case.

    Args:
        diagnostics: whether the source has the columns about damage.
    Raises:
        ConfigError: an unknown or repeated name.
    """
    if text.strip().lower() in SETS:
        return tuple(name for name, column in COLUMNS.items() if text.strip().lower() in column.sets)
    known = {name.lower(): name for name in COLUMNS if diagnostics or name not in DIAGNOSTICS}
    names = []
    for word in (part.strip() for part in text.split(",")):
        if word.lower() not in known:
            hint = nearest(word, [*known.values(), *SETS])
            raise ConfigError(f'"{word}" is no column{hint}', key="columns")
        names.append(known[word.lower()])
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f'column "{min(repeated)}" is named twice', key="columns")
    return tuple(names)


def ddl_of(names: Sequence[str], *, json_properties: bool = False) -> str:
    """The schema of these columns as Spark reads it; every column is nullable."""
    types = {"properties": "string"} if json_properties else {}
    return ", ".join(f"{name} {types.get(name, COLUMNS[name].ddl)}" for name in names)


def arrow_schema(names: Sequence[str], *, json_properties: bool = False) -> Any:
    """Return the schema of these columns for Arrow; it must equal the schema that Spark derives from `ddl_of`."""
    types = {"properties": pa.string()} if json_properties else {}
    return pa.schema([pa.field(name, types.get(name, COLUMNS[name].arrow)) for name in names])


def columns_of(schema: Any, *, diagnostics: bool = False, json_properties: bool = False) -> tuple[str, ...]:
    """Return the names in a StructType: each must be a column of the source, with its type.

    Raises:
        ConfigError: what is wrong with which column.
    """
    known = [name for name in COLUMNS if diagnostics or name not in DIAGNOSTICS]
    for field in schema:
        if field.name not in known:
            raise ConfigError(f'the schema names "{field.name}", which is no column{nearest(field.name, known)}')
        wanted = "string" if field.name == "properties" and json_properties else COLUMNS[field.name].ddl
        if (found := field.dataType.simpleString()) != wanted:
            raise ConfigError(f"column {field.name} is {wanted}, the schema says {found}: cast it after reading")
    return tuple(schema.fieldNames())
