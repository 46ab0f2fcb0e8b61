"""Schemas: attrs classes that know how their fields are spelled on the wire.

    @header
    class GetMaxOffsetRequestHeader(Header):
        topic: str = wire("topic")
        queue_id: Int = wire("queueId")

    header = GetMaxOffsetRequestHeader.of(command)

A field without a default is mandatory; one with a default may be absent, and is not written while it is None. `Int` is
Java's int, plain `int` its long. Fields that no schema names (ad-hoc fields) stay in `ext_fields`, untouched.
"""

from __future__ import annotations

import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar, dataclass_transform

import attrs

from rocketpy.errors import HeaderInvalid, NumberInvalid
from rocketpy.message.numbers import parse_int, parse_long
from rocketpy.values import Value

from .command import RemotingCommand
from .frame import format_bool, parse_bool
from .json_header import json_of_fields

Int = Annotated[int, "int32"]
"""A field that is a 32-bit int in Java; out of range is refused as Integer.parseInt does."""

SELDOM = 50

_T = TypeVar("_T")
_H = TypeVar("_H", bound="Header")


def wire(
    name: str,
    *,
    default: object = attrs.NOTHING,
    factory: Callable[[], object] | None = None,
    aliases: tuple[str, ...] = (),
) -> Any:  # the type that attrs.field has, for the same reason: it stands where a value of any type is declared
    """A field spelled `name` on the wire. `aliases` are read where `name` is absent, and never written."""
    metadata = {"wire": name, "aliases": aliases}
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


@attrs.frozen
class WireField:
    """One field of a schema."""

    attribute: str
    wire: str
    aliases: tuple[str, ...]
    hint: object  # its type, Optional stripped
    required: bool

    def spelled_in(self, mapping: Mapping[str, _T]) -> _T | None:
        """Its value in `mapping`, under its name or an alias."""
        value = mapping.get(self.wire)
        if value is None:
            for alias in self.aliases:
                value = mapping.get(alias)
                if value is not None:
                    break
        return value


def without_none(hint: object) -> object:
    """`X` of `X | None`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not type(None))
        return inner
    return hint


def wire_fields(cls: type[attrs.AttrsInstance]) -> tuple[WireField, ...]:
    """The schema of an attrs class, in declared order; fields that `wire` did not make are not part of it."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(
        WireField(
            attribute=attribute.name,
            wire=attribute.metadata["wire"],
            aliases=attribute.metadata["aliases"],
            hint=without_none(hints[attribute.name]),
            required=attribute.default is attrs.NOTHING,
        )
        for attribute in attrs.fields(cls)
        if "wire" in attribute.metadata
    )


class Header(Value):
    """Base of all custom headers: the mapping to and from extFields."""

    __slots__ = ()

    @classmethod
    @functools.cache
    def schema(cls) -> tuple[tuple[WireField, Callable[[str], object]], ...]:
        """Its fields, each with its parser.

        Made when it is first asked for: to find out the types of all headers and bodies is 5 % of a start's CPU time
        (processes/boot/memory.py).
        """
        return tuple((field, _PARSERS[field.hint]) for field in wire_fields(cls))

    def to_ext_fields(self) -> dict[str, str]:
        """The extFields of this header, without what is None."""
        ext_fields: dict[str, str] = {}
        names, values_of = self._writing()
        for name, value in zip(names, values_of(self), strict=False):
            if value.__class__ is str:
                ext_fields[name] = value
            elif value is True or value is False:
                ext_fields[name] = format_bool(value)
            elif value is not None:
                ext_fields[name] = str(value)
        return ext_fields

    def to_json(self) -> str:
        """The compact JSON of the extFields, names in order."""
        return self._json_writer().write(self)

    @classmethod
    @functools.cache
    def _json_writer(cls) -> _JsonWriter:
        return _JsonWriter(cls)

    @classmethod
    @functools.cache
    def _writing(cls) -> tuple[tuple[str, ...], Callable[[Header], tuple[Any, ...]]]:
        """The names of all fields on the wire, and a function that returns their values."""
        fields = [field for field, _ in cls.schema()]
        return tuple(field.wire for field in fields), _values_of(fields)

    @classmethod
    @functools.cache
    def _reading(cls) -> tuple[tuple[str, str, tuple[str, ...], bool, Callable[[str], object]], ...]:
        """Attribute, name, aliases, whether it is mandatory, and parser of each field: as tuples, which unpack fast."""
        return tuple((f.attribute, f.wire, f.aliases, f.required, parse) for f, parse in cls.schema())

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        """Read a header.

        Raises:
            HeaderInvalid: a mandatory field is absent, or a number cannot be read.
        """
        values: dict[str, object] = {}
        spelled = ext_fields or {}
        for attribute, name, aliases, is_required, parse in cls._reading():
            text = spelled.get(name)
            if text is None and aliases:
                text = next((spelled[alias] for alias in aliases if alias in spelled), None)
            if text is not None:
                try:
                    values[attribute] = text if parse is str else parse(text)
                except NumberInvalid as exc:
                    raise HeaderInvalid(f"{cls.__name__}.{name}: {exc}") from None
            elif is_required:
                raise HeaderInvalid(f"{cls.__name__}: the field {name} is missing")
        return cls(**values)

    @classmethod
    def of(cls, command: RemotingCommand) -> Self:
        """The header that `command` carries. Raises HeaderInvalid as `from_ext_fields` does."""
        return cls.from_ext_fields(command.ext_fields)


class _JsonWriter:
    """Writes the headers of a class as JSON, after SELDOM of them by a function with a line for each field.

    attrs compiles methods in the same way. A loop takes three times as long, and a client writes a header for each
    send; but a compilation costs a process 200 KiB, and a broker that idles writes a few headers of each class.
    """

    __slots__ = ("_cls", "_count", "write")

    def __init__(self, cls: type[Header]) -> None:
        self._cls, self._count = cls, 0
        self.write: Callable[[Header], str] = self._write_seldom

    def _write_seldom(self, header: Header) -> str:
        self._count += 1
        if self._count == SELDOM:
            self.write = self._compiled()
        return json_of_fields(header.to_ext_fields())

    def _compiled(self) -> Callable[[Header], str]:
        lines = ["def write(header):", "    text = ''"]
        for field, _ in sorted(self._cls.schema(), key=lambda one: one[0].wire):
            value = '"{value}"'
            if field.hint is str:
                value = "{quoted(value)}"
            elif field.hint is bool:
                value = '"{bool_text[value]}"'
            lines.append(f"    if (value := header.{field.attribute}) is not None:")
            lines.append(f"        text += f',{_quoted(field.wire)}:{value}'")
        lines.append("    return '{' + text[1:] + '}'")
        scope: dict[str, Any] = {"quoted": _quoted, "bool_text": {value: format_bool(value) for value in (False, True)}}
        exec("\n".join(lines), scope)
        writer: Callable[[Header], str] = scope["write"]
        return writer


def _values_of(fields: Sequence[WireField]) -> Callable[[Header], tuple[Any, ...]]:
    """Return a function that returns the values of these fields of a header."""
    attributes = [field.attribute for field in fields]
    if len(attributes) > 1:
        return operator.attrgetter(*attributes)
    return lambda one: tuple(getattr(one, attribute) for attribute in attributes)


_quoted = json.encoder.encode_basestring  # as json_header.py writes texts: characters beyond ASCII stay

_PARSERS: Mapping[object, Callable[[str], object]] = types.MappingProxyType(
    {str: str, bool: parse_bool, int: parse_long, Int: parse_int}
)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def header(cls: type[_H]) -> type[_H]:
    """Make `cls`, a subclass of Header, an attrs value of keyword arguments with its schema."""
    return attrs.define(kw_only=True, eq=False, repr=False)(cls)
