"""Write JSON as fastjson 1.2 does, whole or in pieces of bounded work.

    compact   bodies: no blanks, members that are None are left out
    pretty    files: tabs, no blank after the colon, integer keys bare and on one line

A large table is written in pieces, so that an event loop can serve others in between: each piece holds about
`VALUES_PER_PIECE` values, whatever the value is made of. A table that changes meanwhile is the caller's to copy, or to
hand over as `Members`, which looks each entry up when its turn comes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntFlag
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import attrs

from rocketpy.message.message_queue import MessageQueue

VALUES_PER_PIECE = 512
SORTED_MAX = 10_000
"""Entries of a map whose keys are sorted; sorting more would itself be a long step, and JSON gives order no meaning."""

_encode_string = json.JSONEncoder(ensure_ascii=False).encode


@runtime_checkable
class WireObject(Protocol):
    """A value that knows its members under their wire names, in the order to write them (bodies/schema.py)."""

    def wire_members(self) -> Iterable[tuple[str, object]]: ...


@attrs.frozen
class Members:
    """An object whose members are produced while it is written: a WireObject for tables that are never copied whole."""

    produce: Callable[[], Iterable[tuple[str, object]]]

    def wire_members(self) -> Iterable[tuple[str, object]]:
        return self.produce()


def dumps(value: object) -> bytes:
    """The compact UTF-8 text of a value; a lone surrogate becomes `?`, as in Java."""
    return dump_text(value).encode("utf-8", "replace")


def dump_text(value: object) -> str:
    """As `dumps`, for a JSON text that goes into a header field."""
    return "".join(compact_pieces(value))


def compact_pieces(value: object) -> Iterator[str]:
    """The compact text, in pieces of about VALUES_PER_PIECE values."""
    return _pieces(value, None)


def pretty_pieces(value: object) -> Iterator[str]:
    """The text for files, in pieces of about VALUES_PER_PIECE values."""
    return _pieces(value, 0)


def java_double(value: float) -> str:
    """A finite double as `Double.toString` spells it: `0.0`, `12.5`, `1.0E-5`, `1.0E7`."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{value!r}"
        return text if "e" not in text else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
        whole, _, fraction = digits.partition(".")
        significant = (whole + fraction).lstrip("0").rstrip("0")
        power = len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1)
        mantissa = f"{sign}{significant[0]}.{significant[1:] or '0'}"
        return f"{mantissa}E{power}"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def in_order(names: Collection[str]) -> Sequence[str]:
    """Sorted, unless they are so many that sorting would be a long step."""
    return sorted(names) if len(names) <= SORTED_MAX else list(names)


# --- scalars ----------------------------------------------------------------------------------------------------------


def _queue_text(queue: MessageQueue) -> str:
    return (
        f'{{"brokerName":{_encode_string(queue.broker_name)},"queueId":{queue.queue_id},'
        f'"topic":{_encode_string(queue.topic)}}}'
    )


_Scalar = Callable[[Any], str]
_SCALARS: dict[type, _Scalar | None] = {  # grows by the types that are met; None: a container
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: lambda value: java_double(value) if math.isfinite(value) else "null",
    str: _encode_string,
    MessageQueue: _queue_text,
    dict: None,
    list: None,
}


def _scalar(kind: type) -> _Scalar | None:
    """Return the writer of values of this type; None for containers."""
    try:
        return _SCALARS[kind]
    except KeyError:
        found = _SCALARS[kind] = _find_scalar(kind)
        return found


def _find_scalar(kind: type) -> _Scalar | None:
    if issubclass(kind, Enum) and not issubclass(kind, IntFlag):  # a set of flags is a number
        return lambda value: _encode_string(value.name)
    if issubclass(kind, str):
        return _encode_string
    if issubclass(kind, int):
        return lambda value: str(int(value))
    if issubclass(kind, bytes | bytearray):
        return lambda value: _encode_string(base64.b64encode(value).decode("ascii"))
    if hasattr(kind, "wire_members") or issubclass(kind, Mapping | Iterable):
        return None
    raise TypeError(f"{kind.__name__} has no JSON form")


def _key_text(key: object) -> str:
    if type(key) is str:
        return _encode_string(key)
    scalar = _scalar(type(key))
    return scalar(key) if scalar is not None else dump_text(key)


# --- containers -------------------------------------------------------------------------------------------------------


def _pieces(value: object, indent: int | None) -> Iterator[str]:
    out: list[str] = []
    for _ in _write(value, indent, out):
        yield "".join(out)
        out.clear()
    yield "".join(out)


def _write(value: object, indent: int | None, out: list[str]) -> Iterator[None]:
    """Append the text of `value` to `out`; stops wherever `out` holds a piece, for the caller to take it."""
    scalar = _scalar(type(value))
    if scalar is not None:
        out.append(scalar(value))
    elif isinstance(value, dict) and value and _is_number_table(value):
        yield from _write_number_table(value, indent, out)
    elif hasattr(value, "wire_members"):
        members = ((_encode_string(name), member) for name, member in value.wire_members())
        yield from _write_members(members, indent, out)
    elif isinstance(value, Mapping):
        yield from _write_members(_members_of(value), indent, out)
    else:
        assert isinstance(value, Iterable)
        yield from _write_array(value, out)


def _write_members(members: Iterable[tuple[str, object]], indent: int | None, out: list[str]) -> Iterator[None]:
    is_pretty = indent is not None
    inner = indent + 1 if indent is not None else None
    first, later = ("{\n" + "\t" * (inner or 0), ",\n" + "\t" * (inner or 0)) if is_pretty else ("{", ",")
    before = first
    for key, member in members:
        if member is None and not is_pretty:
            continue
        scalar = _scalar(type(member))
        if scalar is not None:
            out.append(f"{before}{key}:{scalar(member)}")
        else:
            out.append(f"{before}{key}:")
            yield from _write(member, inner, out)
        before = later
        if len(out) >= VALUES_PER_PIECE:
            yield
    if before is first:
        out.append("{}")
    else:
        out.append("\n" + "\t" * (indent or 0) + "}" if is_pretty else "}")


def _write_array(values: Iterable[object], out: list[str]) -> Iterator[None]:
    out.append("[")
    separator = ""
    for value in values:
        out.append(separator)
        yield from _write(value, None, out)
        separator = ","
        if len(out) >= VALUES_PER_PIECE:
            yield
    out.append("]")


def _is_number_table(table: Mapping[Any, Any]) -> bool:
    """Queue offsets: integers to integers. They are the bulk of the largest table and are written by themselves."""
    key, value = next(iter(table.items()))
    if type(key) is not int or type(value) is not int:
        return False
    return set(map(type, table)) == {int} and set(map(type, table.values())) == {int}


def _write_number_table(table: Mapping[int, int], indent: int | None, out: list[str]) -> Iterator[None]:
    before = "{"
    entries = iter(sorted(table.items()) if 1 < len(table) <= SORTED_MAX else table.items())
    while some := list(islice(entries, VALUES_PER_PIECE)):
        for key, value in some:
            out.append(f"{before}{key}:{value}")
            before = ","
        if len(out) >= VALUES_PER_PIECE:
            yield
    out.append("}" if indent is None else "\n" + "\t" * indent + "}")


def _members_of(mapping: Mapping[Any, object]) -> Iterator[tuple[str, object]]:
    """Strings by their text, integers by value; objects, and all keys of a large map, in the order they are in."""
    keys: Iterable[Any] = mapping
    if len(mapping) <= SORTED_MAX:
        kinds = set(map(type, mapping))
        if kinds == {int} or all(issubclass(kind, str) for kind in kinds):
            keys = sorted(mapping)
    for key in keys:
        yield _key_text(key), mapping[key]
