"""One schema of Avro: its type in Arrow, and values in its binary encoding, by fastavro."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa

from rocketpy.errors import ConfigError

from .registry import BodyUnreadable
from .types import LOCAL_TIMESTAMP, TIMESTAMP

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": LOCAL_TIMESTAMP,
    "local-timestamp-micros": LOCAL_TIMESTAMP,
}
TYPES_MAX = 10_000  # of a writer's schema, a named type at each place of its use: 2 KB may say billions of them


@attrs.frozen
class AvroSchema:
    """A schema, by its text in JSON.

    Attributes:
        arrow: the type of its values.
    """

    text: str
    arrow: Any = attrs.field(init=False)

    @arrow.default
    def _type(self) -> Any:
        kind = _arrow_of(_expanded(self.text), "the schema")
        if not pa.types.is_struct(kind):
            raise ConfigError("is no record of Avro", key="schema")
        return kind

    def decode(self, data: bytes, writer: str | None = None) -> Any:
        """Return the value in `data`.

        Args:
            writer: the schema that it was written with, if that is another one.
        Raises:
            BodyUnreadable: why it is none.
        """
        import fastavro

        stream = io.BytesIO(data)
        wanted = _parsed(self.text)
        written, wanted = (wanted, None) if writer is None else (_parsed_of_writer(writer), wanted)
        try:
            value = fastavro.schemaless_reader(stream, written, wanted)
        except Exception as error:  # of any kind: fastavro trusts its input
            raise BodyUnreadable(f"is no Avro of the schema: {type(error).__name__}: {error}".rstrip(": ")) from error
        if left := len(data) - stream.tell():
            raise BodyUnreadable(f"is no Avro of the schema: {left} bytes follow the value")
        return value

    def encode(self, value: Any) -> bytes:
        """Raises ValueError if the value does not fit the schema."""
        import fastavro

        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, _parsed(self.text), value, strict_allow_default=True)
        except Exception as error:
            raise ValueError(f"{value!r:.200} does not fit the schema of Avro: {error}") from error
        return stream.getvalue()


@functools.lru_cache(1000)
def _parsed(text: str) -> Any:
    """Return the schema for fastavro. uuid stays a string. Raises ConfigError."""
    try:
        import fastavro
        import fastavro.schema
    except ModuleNotFoundError as error:
        raise ConfigError('fastavro is not installed on this node: pip install "rocketpy-mq[avro]"') from error
    try:
        return fastavro.parse_schema(_without_uuid(json.loads(text)))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise ConfigError(f"is no schema of Avro: {error}", key="schema") from error


@functools.lru_cache(1000)
def _parsed_of_writer(text: str) -> Any:
    """The schema that a body names, which may be any one of the registry: also of another format.

    Raises:
        BodyUnreadable: it is none of Avro, or bodies of it could take the memory or the stack of the process.
    """
    try:
        _refuse_endless(_expanded(text), iter(range(TYPES_MAX)))
        return _parsed(text)
    except (ConfigError, RecursionError) as error:
        raise BodyUnreadable(f"was written with another kind of schema: {error}") from error


def _refuse_endless(schema: Any, left: Iterator[int]) -> None:
    """Raises BodyUnreadable: a type contains itself, so fastavro goes as deep as the body says, or an array has items
    without bytes, so a few bytes say any number of them, or there are more types than are `left`."""
    if next(left, None) is None:
        raise BodyUnreadable(f"was written with a schema of more than {TYPES_MAX} types")
    if isinstance(schema, list):
        for one in schema:
            _refuse_endless(one, left)
    elif isinstance(schema, str):
        if schema != "null" and schema not in PRIMITIVES:
            raise BodyUnreadable(f"was written with a schema that contains itself: {schema}")
    elif schema["type"] in ("record", "error"):
        for field in schema["fields"]:
            _refuse_endless(field["type"], left)
    elif schema["type"] == "array":
        _refuse_endless(schema["items"], left)  # first: it bounds the types that _has_bytes looks at
        if not _has_bytes(schema["items"]):
            raise BodyUnreadable("was written with a schema that has arrays of nothing")
    else:
        _refuse_endless(schema["values"] if schema["type"] == "map" else schema["type"], left)


def _has_bytes(schema: Any) -> bool:
    """Return True if each value takes a byte or more."""
    if not isinstance(schema, dict):
        return bool(schema != "null")
    if schema["type"] in ("record", "error"):
        return any(_has_bytes(field["type"]) for field in schema["fields"])
    return bool(schema["size"]) if schema["type"] == "fixed" else _has_bytes(schema["type"])


def _expanded(text: str) -> Any:
    """Return the schema with all names replaced by their types; a type within itself keeps its name."""
    _parsed(text)
    from fastavro.schema import expand_schema

    return expand_schema(_without_uuid(json.loads(text)))


def _without_uuid(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_uuid(one) for one in schema]
    if isinstance(schema, dict):
        is_uuid = schema.get("logicalType") == "uuid"
        return {key: _without_uuid(one) for key, one in schema.items() if not (is_uuid and key == "logicalType")}
    return schema


def _arrow_of(schema: Any, place: str) -> Any:
    """Raises ConfigError: Spark has no such type."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise ConfigError(f"{place} is a union of several types, which no column has", key="schema")
        return _arrow_of(others[0], place)
    if isinstance(schema, str):
        if schema not in PRIMITIVES:
            raise ConfigError(f"{place} is {schema}, which no column can be", key="schema")
        return PRIMITIVES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in LOGICAL:
        return LOGICAL[logical]
    if kind in ("record", "error"):
        return pa.struct([(one["name"], _arrow_of(one["type"], f"{place}.{one['name']}")) for one in schema["fields"]])
    if kind == "array":
        return pa.list_(_arrow_of(schema["items"], f"{place}[]"))
    if kind == "map":
        return pa.map_(pa.string(), _arrow_of(schema["values"], f"{place}[]"))
    return _arrow_of(kind, place)
