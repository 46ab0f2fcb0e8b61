"""Which archived rows a replay sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rocketpy.errors import ConfigError, FilterInvalid
from rocketpy.filter.evaluate import matches
from rocketpy.filter.expression import Node
from rocketpy.filter.parser import parse

from .plan import Wanted

COLUMNS = (
    "queueId",
    "queueOffset",
    "physicalOffset",
    "msgId",
    "keys",
    "tags",
    "flag",
    "reconsumeTimes",
    "bornTimestamp",
    "storeTimestamp",
)
"""Columns that a condition can name beside properties; times in ms. A column hides a property of the same name."""

Row = Mapping[str, Any]


def parse_where(text: str | None) -> Node | None:
    """Raises ConfigError."""
    try:
        return None if text is None else parse(text)
    except FilterInvalid as error:
        raise ConfigError(f"is no SQL92 condition: {error}", key="--where") from None


def row_filter(wanted: Wanted) -> Callable[[Row], bool]:
    """Return a function that is True for the rows to send; made once for many rows."""
    condition = parse_where(wanted.where)

    def is_wanted(row: Row) -> bool:
        if wanted.keys and wanted.keys.isdisjoint((row["keys"] or "").split(" ")):
            return False
        if not (wanted.from_ms is None and wanted.to_ms is None):
            stored_ms = _ms(row["storeTimestamp"])
            if stored_ms < (wanted.from_ms or 0) or (wanted.to_ms is not None and stored_ms >= wanted.to_ms):
                return False
        return condition is None or matches(condition, _values(row))

    return is_wanted


def _values(row: Row) -> dict[str, str | int]:
    """Return the values of a row that a condition can name; a null is left out, so it is unknown."""
    values: dict[str, str | int] = dict(row["properties"] or ())
    for name in COLUMNS:
        value = row[name]
        values.pop(name, None)
        if value is not None:
            values[name] = _ms(value) if isinstance(value, datetime) else value
    return values


def _ms(time: datetime | None) -> int:
    return round(time.timestamp() * 1000) if time is not None else 0
