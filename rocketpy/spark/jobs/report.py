"""The findings of an analytics job, in a form that is printed for people and as JSON.

Short: the value that every analytics job returns; it needs neither Spark nor matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

Row = dict[str, Any]


@attrs.define
class JobReport:
    """The result of a run.

    Attributes:
        totals: single figures by name; names end with their unit.
        tables: rows by the table's name; the rows of a table have the same columns.
        checks: what the job has verified about its own result. A false one is a finding.
        files: what it has written.
    """

    job: str
    totals: Row = attrs.field(factory=dict)
    tables: dict[str, list[Row]] = attrs.field(factory=dict)
    checks: dict[str, bool] = attrs.field(factory=dict)
    files: list[Path] = attrs.field(factory=list)
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return all(self.checks.values())

    def as_json(self) -> Row:
        return {**attrs.asdict(self), "files": [str(path) for path in self.files], "seconds": round(self.seconds, 3)}


def rows_of(collected: Iterable[Any]) -> list[Row]:
    """Rows of a DataFrame as dictionaries that JSON can hold, times as ISO text in UTC."""
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in collected]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if hasattr(value, "isoformat") else value
