"""The two clocks of the broker's slow path, passed as arguments so that tests own time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
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


def seconds_to_midnight(now_ms: int) -> float:
    """Until the next midnight, local time; at least one second."""
    now = datetime.fromtimestamp(now_ms / 1000)
    midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time())
    return max(1.0, (midnight - now).total_seconds())
