"""Limits of what clients can fill: tables (topics, groups, offsets, groups of a client) and pools.

A request for a new entry beyond the limit is refused with a remark that names the setting. Existing entries are always
served.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused


@attrs.define
class Limit:
    """The bound of one table."""

    what: str  # the entries, in the plural; the label of the metrics
    key: str  # the setting
    maximum: Callable[[], int]
    refused: int = attrs.field(init=False, default=0)

    def check(self, present: int, more: int = 1) -> None:
        """Check that `more` entries may be added to the `present` ones.

        Raises:
            RequestRefused: they would exceed the limit.
        """
        maximum = self.maximum()
        if more and present + more > maximum:
            self.refused += 1
            remark = f"there are {present} {self.what}; {more} more would exceed {self.key}={maximum}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)

    def size(self, entries: int | None) -> TableSize:
        return TableSize(self.what, entries, self.maximum(), self.refused)


@attrs.frozen
class TableSize:
    """The size of one table, for metrics."""

    what: str
    entries: int | None  # None: the limit holds for each of many small tables
    maximum: int
    refused: int


@attrs.frozen
class PoolLoad:
    """The requests that wait for one pool, in all processes that serve it; for statistics."""

    waiting: int
    queue_max: int
    head_wait_ms: int = 0  # how long the one at the head has waited


def require(fault: str | None) -> None:
    """Refuse a request with an illegal name. `fault`: the reason, by message/names.py. Raises RequestRefused."""
    if fault is not None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)
