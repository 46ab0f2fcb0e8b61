"""One message type of Protobuf: its type in Arrow, and values in its binary encoding, by the library protobuf.

The schema is a descriptor set, which `protoc --include_imports --descriptor_set_out=FILE` writes.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable
from typing import Any

import attrs
import pyarrow as pa

from rocketpy.errors import ConfigError

from .registry import BodyUnreadable
from .types import TIMESTAMP

CPP_TYPES = (None, "int32", "int64", "uint32", "uint64", "double", "float", "bool", "enum", "string", "message")
"""FieldDescriptor.cpp_type is a place in this list."""
ARROW = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "enum": pa.string(),
    "string": pa.string(),
}
TYPE_BYTES = 12
TIME = "google.protobuf.Timestamp"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


@attrs.frozen
class ProtobufSchema:
    """A message type of a descriptor set.

    Attributes:
        arrow: the type of its values.
    """

    descriptors: bytes = attrs.field(repr=False)
    name: str
    arrow: Any = attrs.field(init=False)

    @arrow.default
    def _type(self) -> Any:
        return _arrow_of(_message_class(self.descriptors, self.name).DESCRIPTOR, ())

    def decode(self, data: bytes) -> Any:
        """Return the value in `data`. Raises BodyUnreadable."""
        from google.protobuf.message import DecodeError

        try:
            return _value_of(_message_class(self.descriptors, self.name).FromString(data))
        except (DecodeError, UnicodeDecodeError, OverflowError) as error:
            raise BodyUnreadable(f"is no {self.name}: {error}") from error

    def encode(self, value: Any) -> bytes:
        """Raises ValueError if the value does not fit."""
        message = _message_class(self.descriptors, self.name)()
        try:
            _fill(message, value)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise ValueError(f"{value!r:.200} does not fit {self.name}: {error}") from error
        return bytes(message.SerializeToString())


def without_indexes(data: bytes) -> bytes:
    """Return a body of a registry without the place of its type in its file: a count and so many numbers, as varints.

    Raises:
        BodyUnreadable: it ends within them.
    """
    left, at = 1, 0
    is_count = True
    while left:
        value, shift = 0, 0
        while True:
            if at >= len(data) or shift > 63:
                raise BodyUnreadable("ends within the place of its message type")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        left -= 1
        if is_count:
            left, is_count = value >> 1, False  # zigzag
    return data[at:]


def indexes_of(schema: ProtobufSchema) -> bytes:
    """Return the place of the type in its file; a single 0 is the first one."""
    one = _message_class(schema.descriptors, schema.name).DESCRIPTOR
    places: list[int] = []
    while one is not None:
        places.insert(0, [sibling.name for sibling in _siblings_of(one)].index(one.name))
        one = one.containing_type
    if places == [0]:
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(places), *places))  # zigzag


def _siblings_of(descriptor: Any) -> Any:
    """Return the message types beside one and itself, in the order of the file."""
    from google.protobuf import descriptor_pb2

    if descriptor.containing_type is None:
        return descriptor_pb2.FileDescriptorProto.FromString(descriptor.file.serialized_pb).message_type
    around = descriptor_pb2.DescriptorProto()
    descriptor.containing_type.CopyToProto(around)
    return around.nested_type


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@functools.lru_cache(100)
def _message_class(descriptors: bytes, name: str) -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError as error:
        raise ConfigError('protobuf is not installed on this node: pip install "rocketpy-mq[protobuf]"') from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except (DecodeError, TypeError) as error:
        remedy = "protoc --include_imports --descriptor_set_out=FILE writes one"
        raise ConfigError(f"is no descriptor set ({error}): {remedy}", key="schema") from error
    except KeyError:
        raise ConfigError(f"has no message {name}", key="schema") from None


def _is_repeated(field: Any) -> bool:
    is_repeated = getattr(field, "is_repeated", None)  # of protobuf 6
    return bool(field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _arrow_of(descriptor: Any, within: tuple[str, ...]) -> Any:
    """Raises ConfigError: a type contains itself."""
    if descriptor.full_name == TIME:
        return TIMESTAMP
    if descriptor.full_name in within:
        raise ConfigError(f"{descriptor.full_name} contains itself, which no column can", key="schema")
    inner = (*within, descriptor.full_name)
    return pa.struct([(field.name, _arrow_of_field(field, inner)) for field in descriptor.fields])


def _arrow_of_field(field: Any, within: tuple[str, ...]) -> Any:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_arrow_of_field(key, within), _arrow_of_field(value, within))
    if field.type == TYPE_BYTES:
        kind: Any = pa.binary()
    elif field.message_type is not None:
        kind = _arrow_of(field.message_type, within)
    else:
        kind = ARROW[str(CPP_TYPES[field.cpp_type])]
    return pa.list_(kind) if _is_repeated(field) else kind


def _value_of(message: Any) -> Any:
    """Return a message as Arrow takes it: fields that are not set and tell so are None."""
    if message.DESCRIPTOR.full_name == TIME:
        return EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    return {field.name: _value_of_field(message, field) for field in message.DESCRIPTOR.fields}


def _value_of_field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        return [(key, _single(one, of_value)) for key, one in value.items()]
    if _is_repeated(field):
        return [_single(one, field) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field)


def _single(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _value_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _fill(message: Any, value: dict[str, Any]) -> None:
    """Set the fields of a message to those of a row; a field that is null stays unset."""
    fields = message.DESCRIPTOR.fields_by_name
    if unknown := value.keys() - fields.keys():
        raise KeyError(f"it has no field {min(unknown)}")
    for name, one in value.items():
        if one is not None:
            _fill_field(message, fields[name], one)


def _fill_field(message: Any, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    if _is_map(field):
        of_value = field.message_type.fields_by_name["value"]
        for key, one in dict(value).items():
            if of_value.message_type is not None:
                _fill_message(target[key], one)
            else:
                target[key] = _scalar(one, of_value)
    elif _is_repeated(field) and field.message_type is not None:
        for one in value:
            _fill_message(target.add(), one)
    elif _is_repeated(field):
        target.extend(_scalars(value, field))
    elif field.message_type is not None:
        target.SetInParent()
        _fill_message(target, value)
    else:
        setattr(message, field.name, _scalar(value, field))


def _fill_message(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == TIME:
        message.seconds, rest = divmod((value - EPOCH) // MICROSECOND, 1_000_000)
        message.nanos = rest * 1000
    else:
        _fill(message, value)


def _scalars(values: Iterable[Any], field: Any) -> list[Any]:
    return [_scalar(one, field) for one in values]


def _scalar(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        return int(value) if known is None else known.number
    return int(value) if CPP_TYPES[field.cpp_type] == "uint64" else value
