"""Whole numbers: how they are read in text from outside (properties, header fields, members of bodies, files), and
which of them must not be mixed.

    parse_int, parse_long     as Java's parseInt and parseLong read them; other text raises NumberInvalid
    int_or, long_or           the same with a default in place of the error
    PhyOffset, QueueOffset    offsets that look alike; the type checker keeps them apart

This is the only place where such text becomes a number. `int()` takes what Java does not (blanks, underscores),
`str.isdigit` what `int()` does not ("²"), and from 4301 digits on `int()` raises whatever they are. The work is bounded
by the text's length; csrc/wire/header.c has the same rules for the fast path.
"""

from __future__ import annotations

from typing import NewType

from rocketpy.errors import NumberInvalid

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
DIGITS_MAX = 19  # of the largest long; leading zeros do not count
_BEYOND = 10**DIGITS_MAX  # stands for every greater number
_SHOWN_MAX = 40  # characters of a text in an error

PhyOffset = NewType("PhyOffset", int)
"""Bytes from the start of the CommitLog."""

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one queue (its ConsumeQueue index)."""


def parse_integer(text: str, minimum: int, maximum: int) -> int:
    """A decimal integer: optional sign, ASCII digits, in range.

    Raises:
        NumberInvalid: anything else.
    """
    if len(text) < DIGITS_MAX and text.isdigit() and text.isascii() and minimum <= (number := int(text)) <= maximum:
        return number  # nearly all are so
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise NumberInvalid(f"not a decimal integer: {text[:_SHOWN_MAX]!r}")
    significant = digits.lstrip("0") or "0"
    number = int(significant) if len(significant) <= DIGITS_MAX else _BEYOND
    if text[0] == "-":
        number = -number
    if not minimum <= number <= maximum:
        raise NumberInvalid(f"{text[:_SHOWN_MAX]} is not within {minimum} and {maximum}")
    return number


def parse_int(text: str) -> int:
    """A signed 32-bit integer as `Integer.parseInt` reads it. Raises NumberInvalid."""
    return parse_integer(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int:
    """A signed 64-bit integer as `Long.parseLong` reads it. Raises NumberInvalid."""
    return parse_integer(text, LONG_MIN, LONG_MAX)


def int_or(text: str | None, default: int) -> int:
    """`parse_int` of the text, `default` when there is none or it is no such number."""
    return _or(text, default, INT_MIN, INT_MAX)


def long_or(text: str | None, default: int) -> int:
    """`parse_long` of the text, `default` when there is none or it is no such number."""
    return _or(text, default, LONG_MIN, LONG_MAX)


def _or(text: str | None, default: int, minimum: int, maximum: int) -> int:
    if text is None:
        return default
    try:
        return parse_integer(text, minimum, maximum)
    except NumberInvalid:
        return default
