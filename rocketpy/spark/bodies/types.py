"""Types of Arrow as Spark writes them.

Short: schemas of Avro and Protobuf both become types of Arrow, and Spark wants the type that a function returns.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
SIMPLE = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    LOCAL_TIMESTAMP: "timestamp_ntz",
}


def ddl_of(kind: Any) -> str:
    """Return the type as Spark's DDL has it; names are quoted."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{ddl_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl_of(kind.key_type)},{ddl_of(kind.item_type)}>"
    assert pa.types.is_struct(kind), kind
    fields = (f"`{field.name.replace('`', '``')}`: {ddl_of(field.type)}" for field in kind)
    return f"struct<{', '.join(fields)}>"


def plain(value: Any, kind: Any) -> Any:
    """Return a value of `to_pylist` whose maps are dicts; Arrow gives pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: plain(one, kind.item_type) for key, one in value}
    if pa.types.is_list(kind):
        return [plain(one, kind.value_type) for one in value]
    return value
