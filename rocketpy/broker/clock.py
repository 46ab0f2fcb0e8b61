"""The two clocks of the broker's slow path, passed as arguments so that tests own time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time is for stored values, monotonic time for durations; they are never mixed."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch: for values that are stored, compared with message times, or shown."""

    def monotonic_ms(self) -> int:
        """Never goes back: for the ages of clients, locks and samples."""


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
