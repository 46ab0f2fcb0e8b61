"""Numbers with fraction in the values of properties, as Java's `Double.parseDouble` reads them.

csrc/base/floating.c is the same in C.
"""

from __future__ import annotations

import re

SIZE_MAX = 255  # characters of a number, without blanks around it; a longer text is none
_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?\Z")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?\Z")
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)\Z")


def floating(text: str) -> float | None:
    """The number, or None."""
    text = text.strip(_BLANKS)
    if len(text) > SIZE_MAX:
        return None
    if found := _DECIMAL.match(text):
        return float(found[1])
    if found := _HEXADECIMAL.match(text):
        return _hexadecimal(found[1])
    if found := _NAMED.match(text):
        return float(found[1] + {"NaN": "nan", "Infinity": "inf"}[found[2]])
    return None


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf") if text.startswith("-") else float("inf")
