"""Declarations of settings: one attrs field each, which carries everything there is to say about the setting.

The loader, the run-time update, the answer to code 26 and the reference page (docs/run/configuration.md) all read the
same declarations, so they cannot disagree.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_DIGITS_MAX = 20  # more cannot be in any range, and int() is slow or refuses

_KEY = "rocketpy.setting"
_TIMES_NS = {"s": 10**9, "ms": 10**6, "µs": 10**3, "us": 10**3, "ns": 1}
_T = TypeVar("_T")


class Effect(enum.Enum):
    """The time at which a run-time change (code 25 or 318) takes effect."""

    AT_ONCE = "live"
    AT_RESTART = "at restart"  # accepted and written to the file and shown; the process keeps the old value
    NONE = "none"  # accepted, written to the file and shown; nothing reads it
    REFUSED = "refused"  # would leave a running process inconsistent, or is black-listed


@attrs.frozen
class Setting:
    """The facts about one key, apart from its type and default."""

    key: str
    doc: str
    unit: str
    effect: Effect
    important: bool  # shown by `mqbroker -m`
    ignored: str  # why the value has no effect here; empty: it is honoured
    only_default: str  # why any value but the default is refused; empty: others are allowed
    default_text: str  # for the reference page, where the default depends on the machine or the file
    at_least: int
    at_most: int
    power_of_two: bool
    secret: bool  # never shown
    c: tuple[str, ...]  # "struct.field" of the compiled core that are given the value


@attrs.frozen
class Declared:
    """A setting of one class: the attribute, its type and its static default."""

    attribute: str
    type: Any
    default: Any
    setting: Setting

    def parse(self, text: str) -> Any:
        """The value that `text` stands for.

        Raises:
            ValueError: its text says what is allowed instead.
        """
        return _parse(self.type, text, self.setting)


def setting(
    default: _T,
    key: str,
    doc: str,
    *,
    unit: str = "",
    effect: Effect = Effect.AT_RESTART,
    important: bool = False,
    ignored: str = "",
    only_default: str = "",
    default_text: str = "",
    at_least: int = 0,
    at_most: int = INT_MAX,
    power_of_two: bool = False,
    secret: bool = False,
    c: str = "",
) -> _T:
    """Declare a field of a config class. Returns what the type checker should see: the default.

    Args:
        secret: the value is never shown: by code 26, by a log line, or by the repr of the config object.
        c: "struct.field" in csrc/ that is the value, or several, separated by blanks. `c_fields` fills them.
    """
    declared = Setting(
        key=key,
        doc=doc,
        unit=unit,
        effect=effect,
        important=important,
        ignored=ignored,
        only_default=only_default,
        default_text=default_text,
        at_least=at_least,
        at_most=at_most,
        power_of_two=power_of_two,
        secret=secret,
        c=tuple(c.split()),
    )
    return attrs.field(default=default, repr=not secret, metadata={_KEY: declared})


def declared_settings(config_class: type[Any]) -> tuple[Declared, ...]:
    """The settings of a config class, in the order of declaration."""
    return _declared_settings(config_class)  # type: ignore[arg-type]  # to mypy a class is not hashable


@functools.cache  # get_type_hints compiles the annotation of each field: 3 ms for the classes of a broker
def _declared_settings(config_class: type[Any]) -> tuple[Declared, ...]:
    types_by_name = typing.get_type_hints(config_class)
    return tuple(
        Declared(field.name, types_by_name[field.name], field.default, field.metadata[_KEY])
        for field in attrs.fields(config_class)
        if _KEY in field.metadata
    )


def c_fields(struct: str, *configs: Any) -> dict[str, Any]:
    """Return the fields of a C struct that the settings of these config objects declare with `c`.

    A duration is given in the unit that the name of the field ends with: `stall_ns` of a setting in ms.
    """
    found = {}
    for config in configs:
        for field in attrs.fields(type(config)):
            declared = field.metadata.get(_KEY)
            for place in () if declared is None else declared.c:
                of, _, name = place.partition(".")
                if of == struct:
                    found[name] = _in_unit_of(name, getattr(config, field.name), declared.unit)
    return found


def _in_unit_of(field: str, value: Any, unit: str) -> Any:
    if unit not in _TIMES_NS:
        return value
    return value * _TIMES_NS[unit] // _TIMES_NS[field.rpartition("_")[2]]


def with_changes(config: _T, changes: Mapping[str, str]) -> _T:
    """`config` with those of `changes` (Java key to text) that are settings of its class; others are passed over.

    Raises:
        ValueError: a text that no such setting allows.
    """
    known = {declared.setting.key: declared for declared in declared_settings(type(config))}
    values = {known[key].attribute: known[key].parse(text) for key, text in changes.items() if key in known}
    return attrs.evolve(config, **values)  # type: ignore[misc]  # a config class is an attrs class


def to_text(value: Any) -> str | None:
    """A value as Java prints it; None (the key is left out) for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return str(value)


def _bare(annotation: Any) -> type[Any]:
    """`str | None` is read as `str`: an absent key is null, an empty value is empty text."""
    if isinstance(annotation, types.UnionType):
        return typing.cast("type[Any]", next(kind for kind in annotation.__args__ if kind is not type(None)))
    return typing.cast("type[Any]", annotation)


def _parse(annotation: Any, text: str, declared: Setting) -> Any:
    kind = _bare(annotation)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return text.lower() == "true"
    if issubclass(kind, enum.Enum):
        allowed = [member.value for member in kind]
        if text not in allowed:
            raise ValueError(" or ".join(allowed))
        return kind(text)
    if kind is int:
        return _parse_int(text, declared)
    return text


def _parse_int(text: str, declared: Setting) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    allowed = f"a whole number from {declared.at_least} to {declared.at_most}"
    if declared.unit:
        allowed += f" ({declared.unit})"
    if declared.power_of_two:
        allowed += ", a power of two"
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise ValueError(allowed)
    value = int(text)
    if not declared.at_least <= value <= declared.at_most:
        raise ValueError(allowed)
    if declared.power_of_two and value & (value - 1):
        raise ValueError(allowed)
    return value
