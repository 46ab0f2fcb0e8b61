"""The formats of bodies that a user chooses, with a schema, in the wire format of a schema registry or without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from rocketpy.errors import ConfigError

from ..columns import nearest
from .avro import AvroSchema
from .protobuf import ProtobufSchema, indexes_of, without_indexes
from .registry import BodyUnreadable, head, id_of_schema, latest_schema, schema_of_id, split
from .types import ddl_of, plain

if TYPE_CHECKING:
    from pyspark.sql import Column

OnColumn = Callable[["Column"], "Column"]
UNREADABLE = "_unreadable"
HEAD_SIZE = 5


@attrs.frozen
class Json:
    """JSON, by Spark's functions.

    Attributes:
        schema: of decoded values, as `id bigint, amount double`; not needed to encode.
        with_id: bodies begin with the id of a schema, which is passed over.
        schema_id: bodies are written with it.
    """

    schema: str = ""
    with_id: bool = False
    schema_id: int | None = None

    def decoder(self) -> OnColumn:
        if not self.schema:
            raise ConfigError("is needed to decode JSON, as `id bigint, amount double`", key="schema")
        return self._decoded

    def _decoded(self, body: Column) -> Column:
        from pyspark.sql import functions as sql

        text = sql.substring(body, HEAD_SIZE + 1, 1 << 30) if self.with_id else body
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE}
        parsed = sql.from_json(text.cast("string"), f"{self.schema}, {UNREADABLE} string", options)
        is_headless = sql.substring(body, 1, 1) != sql.lit(b"\0") if self.with_id else sql.lit(False)
        is_bad = is_headless | parsed.isNull() | parsed[UNREADABLE].isNotNull()
        error = sql.when(body.isNull(), "is null").when(is_bad, "is no JSON of the schema")
        return sql.struct(sql.when(~is_bad, parsed.dropFields(UNREADABLE)).alias("value"), error.alias("bodyError"))

    def encoder(self) -> OnColumn:
        from pyspark.sql import functions as sql

        first = sql.lit(b"" if self.schema_id is None else head(self.schema_id))
        return lambda value: sql.concat(first, sql.to_json(value).cast("binary"))


@attrs.frozen
class Avro:
    """Avro's binary encoding.

    Attributes:
        schema: a file, or the JSON of the schema; None: the newest one of the subject.
        registry: its address; bodies have its wire format, and each is read with the schema that it was written with.
        subject: bodies are written with the id of `schema` in it; a new schema is registered.
        schema_id: instead, a known id.
    """

    schema: str | Path | None = None
    registry: str | None = None
    subject: str | None = None
    schema_id: int | None = None

    def _schema(self) -> AvroSchema:
        if self.schema is not None:
            return AvroSchema(_text_of(self.schema))
        if self.registry is None or self.subject is None:
            raise ConfigError("is needed, or registry and subject", key="schema")
        return AvroSchema(latest_schema(self.registry, self.subject))

    def decoder(self) -> OnColumn:
        schema, registry = self._schema(), self.registry

        def read(body: bytes) -> Any:
            if registry is None:
                return schema.decode(body)
            schema_id, data = split(body)
            return schema.decode(data, schema_of_id(registry, schema_id))

        return _decoder(read, schema.arrow)

    def encoder(self) -> OnColumn:
        schema, schema_id = self._schema(), self.schema_id
        if schema_id is None and self.registry is not None:
            if self.subject is None:
                raise ConfigError("is needed to write with a registry, or schema_id", key="subject")
            schema_id = id_of_schema(self.registry, self.subject, schema.text)
        first = b"" if schema_id is None else head(schema_id)
        return _encoder(lambda value: first + schema.encode(value))


@attrs.frozen
class Protobuf:
    """Protobuf.

    Attributes:
        schema: a file of `protoc --include_imports --descriptor_set_out=FILE`.
        message: the full name of the type, as `shop.Order`.
        with_id: bodies have the wire format of a registry. The id is passed over: Protobuf reads fields by number.
        schema_id: bodies are written with it, in that format.
    """

    schema: str | Path
    message: str
    with_id: bool = False
    schema_id: int | None = None

    def _schema(self) -> ProtobufSchema:
        try:
            return ProtobufSchema(Path(self.schema).read_bytes(), self.message)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error}", key="schema") from error

    def decoder(self) -> OnColumn:
        schema, with_id = self._schema(), self.with_id

        def read(body: bytes) -> Any:
            return schema.decode(without_indexes(split(body)[1]) if with_id else body)

        return _decoder(read, schema.arrow)

    def encoder(self) -> OnColumn:
        schema = self._schema()
        first = b"" if self.schema_id is None else head(self.schema_id) + indexes_of(schema)
        return _encoder(lambda value: first + schema.encode(value))


FORMATS: dict[str, type[Any]] = {"json": Json, "avro": Avro, "protobuf": Protobuf}


def format_of(options: Mapping[str, Any]) -> Json | Avro | Protobuf:
    """Return the format that a file declares: `format`, and the attributes of its class. Raises ConfigError."""
    name = str(options.get("format", ""))
    if name not in FORMATS:
        raise ConfigError(f'"{name}" is none of {", ".join(FORMATS)}', key="format")
    known = [field.name for field in attrs.fields(FORMATS[name])]
    for key in options:
        if key not in (*known, "format"):
            raise ConfigError(f"unknown key {key}{nearest(key, known)}", key=name)
    try:
        found: Json | Avro | Protobuf = FORMATS[name](**{key: one for key, one in options.items() if key != "format"})
    except TypeError as error:
        raise ConfigError(f"{name} needs more: {error}", key="format") from error
    return found


def _text_of(schema: str | Path) -> str:
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", key="schema") from error


def _decoder(read: Callable[[bytes], Any], kind: Any) -> OnColumn:
    from pyspark.sql.functions import arrow_udf

    def decode(body: pa.Array) -> pa.Array:
        return decoded(body, read, kind)

    return arrow_udf(decode, returnType=f"struct<value: {ddl_of(kind)}, bodyError: string>")  # type: ignore[no-any-return]


def decoded(bodies: Any, read: Callable[[bytes], Any], kind: Any) -> Any:
    """Return a struct of values and reasons for an array of bodies."""
    values: list[Any] = []
    reasons: list[str | None] = []
    for body in bodies.to_pylist():
        value, reason = None, None
        try:
            value = read(body) if body is not None else None
            reason = "is null" if body is None else None
        except BodyUnreadable as error:
            reason = str(error)
        values.append(value)
        reasons.append(reason)
    try:
        array = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        array = _one_by_one(values, reasons, kind)
    return pa.StructArray.from_arrays([array, pa.array(reasons, pa.string())], ["value", "bodyError"])


def _one_by_one(values: list[Any], reasons: list[str | None], kind: Any) -> Any:
    """Return the values that fit their type; the others become reasons."""
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            values[at], reasons[at] = None, f"does not fit the column: {error}"
    return pa.array(values, kind)


def _encoder(write: Callable[[Any], bytes]) -> OnColumn:
    from pyspark.sql.functions import arrow_udf

    def encode(value: pa.Array) -> pa.Array:
        kind = value.type
        return pa.array([None if one is None else write(plain(one, kind)) for one in value.to_pylist()], pa.binary())

    return arrow_udf(encode, returnType="binary")  # type: ignore[no-any-return]
