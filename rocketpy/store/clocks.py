"""The machine's clocks for the store's Python, and the cautious clock that decides when files are old enough to delete.

Time is wall clock milliseconds since the epoch unless a name says `boot`. docs/adr/0090 says which clock is for what.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

TRUSTED_AFTER_MS = 3_600_000


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_clock_ms() -> int:
    """Since the kernel started, suspended time included; nobody sets it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


@attrs.define
class CautiousClock:
    """The wall clock, which must have been ahead for an hour before that is trusted: files deleted by a wrong clock do
    not come back when it is corrected. A clock that is set back is followed at once."""

    wall_ms: Callable[[], int] = wall_clock_ms
    boot_ms: Callable[[], int] = boot_clock_ms
    _lead_ms: int = attrs.field(init=False)  # of the wall clock over the boot clock, as far as it is trusted
    _ahead_since_ms: int | None = attrs.field(init=False, default=None)  # boot clock

    def __attrs_post_init__(self) -> None:
        self._lead_ms = self.wall_ms() - self.boot_ms()

    def now_ms(self) -> int:
        boot_ms = self.boot_ms()
        lead_ms = self.wall_ms() - boot_ms
        if lead_ms <= self._lead_ms:
            self._lead_ms, self._ahead_since_ms = lead_ms, None
        elif self._ahead_since_ms is None:
            self._ahead_since_ms = boot_ms
        elif boot_ms - self._ahead_since_ms >= TRUSTED_AFTER_MS:
            self._lead_ms, self._ahead_since_ms = lead_ms, None
        return boot_ms + self._lead_ms
