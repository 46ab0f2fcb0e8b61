"""The fields of a header in both serialisations, and their common rules for languages and booleans."""

from __future__ import annotations

import attrs

from rocketpy.codes import LanguageCode


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


def parse_bool(text: str) -> bool:
    """A boolean as `Boolean.parseBoolean` reads it: `true` in any case is true, all else is false."""
    return text.lower() == "true"


def format_bool(value: bool) -> str:
    """The spelling that Go compares as text."""
    return "true" if value else "false"
