"""How many entries a table takes that anybody can fill: topics, groups, offsets, what a client is a member of.

Entries that are there already are always served; one too many is refused with a remark that names the setting.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused


@attrs.define
class Limit:
    """The bound of one table."""

    what: str  # that is counted, in the plural; the label of its metrics
    key: str  # the setting
    maximum: Callable[[], int]
    refused: int = attrs.field(init=False, default=0)

    def check(self, present: int, more: int = 1) -> None:
        """Room for `more` beside those that are present.

        Raises:
            RequestRefused: there is not.
        """
        maximum = self.maximum()
        if more and present + more > maximum:
            self.refused += 1
            remark = f"there are {present} {self.what}, and {self.key}={maximum} allows no {more} more"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)


    def size(self, entries: int | None) -> TableSize:
        return TableSize(self.what, entries, self.maximum(), self.refused)


@attrs.frozen
class TableSize:
    """One table for metrics."""

    what: str
    entries: int | None  # None: it is one bound for each of many small tables
    maximum: int
    refused: int


def require(fault: str | None) -> None:
    """Refuse a request for a name that is none (message/names.py says why). Raises RequestRefused."""
    if fault is not None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)
