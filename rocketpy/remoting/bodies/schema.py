"""Schemas of JSON bodies: attrs classes whose fields are read from and written to one JSON object.

    @body
    class GroupList(Body):
        group_list: list[str] = wire("groupList", factory=list)

The type of a field says how it is read: text and numbers stand for each other, null and absence are the default, the
name of an enum counts in any case and an unknown one as its default, unknown members are ignored.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Self, TypeVar, cast, dataclass_transform

import attrs

from rocketpy.errors import BodyInvalid, NumberInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, parse_long
from rocketpy.values import Value

from ..fastjson import JsonValue, dumps, loads, loads_text
from ..frame import format_bool, parse_bool
from ..schema import Int, WireField, wire, wire_fields, without_none

__all__ = ["Body", "Int", "body", "wire"]

REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""The bound of a request's body that anybody may send, unless another is named: some ten thousand subscriptions."""
LENIENT_BYTES_MAX = 65_536
"""The bound of such a body that is not strictly JSON: the tolerant parser takes a microsecond per byte."""
OBJECTS_MAX = 32_768  # in such a body, and as many arrays; each takes a few microseconds, however short its text
REPORT_BYTES_MAX = 8 * 1024 * 1024
"""The bound of what a consumer tells an operator of itself: some ten thousand queues, and its stacks."""
REPORT_OBJECTS_MAX = 65_536  # in such a body: two for a queue

Reader = Callable[[JsonValue], object]
"""Reads a value that is not null."""

_B = TypeVar("_B", bound="Body")


class Body(Value):
    """Base of all JSON bodies."""

    __slots__ = ()

    @classmethod
    @functools.cache
    def schema(cls) -> tuple[tuple[WireField, Reader], ...]:
        """Its fields in the order of writing, by wire name, each with its reader; made as Header.schema is."""
        fields = sorted(wire_fields(cls), key=lambda field: field.wire)
        return tuple((field, reader_for(field.hint)) for field in fields)

    def wire_members(self) -> Iterator[tuple[str, object]]:
        """The members under their wire names."""
        for field, _ in self.schema():
            yield field.wire, getattr(self, field.attribute)

    def encode(self) -> bytes:
        """The compact JSON text."""
        return dumps(self)

    @classmethod
    def decode(cls, data: bytes | None) -> Self:
        """Read a body.

        Raises:
            BodyInvalid: there is none, it is not JSON, or a member is not of its type.
        """
        if data is None:
            raise BodyInvalid(f"{cls.__name__}: the body is missing")
        return cls.from_json(loads(data))

    @classmethod
    def decode_request(cls, data: bytes | None, bytes_max: int = REQUEST_BYTES_MAX) -> Self:
        """As `decode`, for what anybody may send: reading it is one step of an event loop, so its size is bounded.

        Raises:
            BodyInvalid: as `decode`; it has more than `bytes_max` bytes or OBJECTS_MAX objects, or more than
                LENIENT_BYTES_MAX bytes that are not strictly JSON.
        """
        cls._check_size(data, bytes_max, OBJECTS_MAX)
        if data is None or len(data) <= LENIENT_BYTES_MAX:
            return cls.decode(data)
        return cls.from_json(loads(data, is_strict=True))

    @classmethod
    def decode_report(
        cls, data: bytes | None, bytes_max: int = REPORT_BYTES_MAX, objects_max: int = REPORT_OBJECTS_MAX
    ) -> Self:
        """As `decode`, for the answer of a stranger to an operator: by default that of a consumer, which its broker has
        passed on. It takes up to a second: for a thread.

        Raises:
            BodyInvalid: as `decode`; it has more than `bytes_max` bytes or `objects_max` objects.
        """
        cls._check_size(data, bytes_max, objects_max)
        return cls.decode(data)

    @classmethod
    def _check_size(cls, data: bytes | None, bytes_max: int, objects_max: int) -> None:
        size = len(data or b"")
        if size > bytes_max:
            raise BodyInvalid(f"{cls.__name__}: a body of {size} bytes, at most {bytes_max} are allowed")
        objects = max((data or b"").count(b"{"), (data or b"").count(b"["))
        if objects > objects_max:
            raise BodyInvalid(f"{cls.__name__}: a body of {objects} objects, at most {objects_max} are allowed")

    @classmethod
    def from_json(cls, value: JsonValue) -> Self:
        """Read one that is part of something else. Raises BodyInvalid as `decode` does."""
        if not isinstance(value, dict):
            raise BodyInvalid(f"{cls.__name__} is not an object but {type(value).__name__}")
        values: dict[str, object] = {}
        for field, read in cls.schema():
            member = field.spelled_in(value)
            if member is not None:
                try:
                    found = read(member)
                except BodyInvalid as exc:
                    raise BodyInvalid(f"{cls.__name__}.{field.wire}: {exc}") from None
                if found is not None:
                    values[field.attribute] = found
                    continue
            if field.required:
                raise BodyInvalid(f"{cls.__name__}: the member {field.wire} is missing")
        return cls(**values)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def body(cls: type[_B]) -> type[_B]:
    """Make `cls`, a subclass of Body, an attrs value of keyword arguments with its schema."""
    return attrs.define(kw_only=True, eq=False, repr=False)(cls)


def read_int(value: JsonValue, minimum: int = LONG_MIN, maximum: int = LONG_MAX) -> int:
    """An integer, or a text or whole float that is one."""
    if isinstance(value, str):
        try:
            value = parse_long(value.strip() or "0")
        except NumberInvalid as exc:
            raise BodyInvalid(str(exc)) from None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise BodyInvalid(f"not an integer but {type(value).__name__}")
    if not minimum <= value <= maximum:
        raise BodyInvalid(f"{str(value)[:40]} is not within {minimum} and {maximum}")
    return int(value)


def read_int32(value: JsonValue) -> int:
    return read_int(value, INT_MIN, INT_MAX)


def read_float(value: JsonValue) -> float:
    try:
        if isinstance(value, str | int | float):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise BodyInvalid(f"not a number but {type(value).__name__}")


def read_bool(value: JsonValue) -> bool:
    if isinstance(value, str):
        return parse_bool(value) or value == "1"
    if isinstance(value, int):
        return value != 0
    raise BodyInvalid(f"not a boolean but {type(value).__name__}")


def read_str(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return format_bool(value)
    if isinstance(value, int | float):
        return str(value)
    raise BodyInvalid(f"not a text but {type(value).__name__}")


def read_message_queue(value: JsonValue) -> MessageQueue:
    """A queue, as an object or as the JSON text of one (map keys are texts)."""
    if isinstance(value, str):
        value = loads_text(value)
    if not isinstance(value, dict):
        raise BodyInvalid(f"MessageQueue is not an object but {type(value).__name__}")
    return MessageQueue(
        topic=read_str(value.get("topic") or ""),
        broker_name=read_str(value.get("brokerName") or ""),
        queue_id=read_int32(value.get("queueId") or 0),
    )


_SCALARS: tuple[tuple[object, Reader], ...] = (
    (str, read_str),
    (bool, read_bool),
    (int, read_int),
    (Int, read_int32),
    (float, read_float),
    (MessageQueue, read_message_queue),
)


def reader_for(hint: object) -> Reader:
    """Return the reader of values of this type. Absent elements of lists and maps (null) are left out."""
    for scalar, reader in _SCALARS:
        if hint == scalar:
            return reader
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return _list_reader(reader_for(args[0]))
    if origin is dict:
        return _dict_reader(reader_for(args[0]), reader_for(without_none(args[1])))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return _enum_reader(hint)
    assert inspect.isclass(hint) and issubclass(hint, Body), f"no reader for {hint!r}"
    return hint.from_json


def _enum_reader(kind: type[Enum]) -> Reader:
    members = list(kind)

    def read(value: JsonValue) -> object:
        if isinstance(value, str):
            return next((member for member in members if member.name.lower() == value.lower()), None)
        if isinstance(value, int):  # Go sends the ordinal
            return members[value] if 0 <= value < len(members) else None
        raise BodyInvalid(f"not a {kind.__name__} but {type(value).__name__}")

    return read


def _list_reader(read_element: Reader) -> Reader:
    def read(value: JsonValue) -> object:
        if not isinstance(value, list):
            raise BodyInvalid(f"not an array but {type(value).__name__}")
        return [read_element(element) for element in value if element is not None]

    return read


def _dict_reader(read_key: Reader, read_element: Reader) -> Reader:
    def read(value: JsonValue) -> object:
        if not isinstance(value, dict):
            raise BodyInvalid(f"not an object but {type(value).__name__}")
        return {read_key(key): read_element(element) for key, element in value.items() if element is not None}

    return cast(Reader, read)
