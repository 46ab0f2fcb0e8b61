"""What a header carries, whichever serialisation wrote it, and the number rules that both share."""

from __future__ import annotations

import re

import attrs

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)


@attrs.frozen
class HeaderFields:
    """The seven fields of a header."""

    code: int
    language: LanguageCode | None
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str] | None


def language_or_none(number: int) -> LanguageCode | None:
    """The language by its number; None for one that we do not know, which is no error."""
    try:
        return LanguageCode(number)
    except ValueError:
        return None


def parse_integer(text: str, minimum: int, maximum: int) -> int:
    """A decimal integer by the rules of Java's parseInt and parseLong: optional sign, digits, in range.

    Raises:
        HeaderInvalid: anything else.
    """
    if _INTEGER.fullmatch(text) is None:
        raise HeaderInvalid(f"not a decimal integer: {text[:40]!r}")
    number = int(text)
    if not minimum <= number <= maximum:
        raise HeaderInvalid(f"{text} is not within {minimum} and {maximum}")
    return number


def parse_int(text: str) -> int:
    """A signed 32-bit integer as `Integer.parseInt` reads it."""
    return parse_integer(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """A signed 64-bit integer as `Long.parseLong` reads it."""
    return parse_integer(text, LONG_MIN, LONG_MAX)


def parse_bool(text: str) -> bool:
    """A boolean as `Boolean.parseBoolean` reads it: `true` in any case is true, all else is false."""
    return text.lower() == "true"


def format_bool(value: bool) -> str:
    """The spelling that Go compares as text."""
    return "true" if value else "false"
