"""The clocks of the broker's slow path, passed as arguments so that tests own time, and the pauses of this process
(stopped, frozen machine, short of CPU), which do not count as silence of clients.

A heartbeat or lock renewal that was sent during a pause is still in a ring when the process continues. So the pause is
subtracted from the silence of every client that was last heard before it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from datetime import datetime, timedelta
from typing import Protocol

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 2.0
LATE_MS = 5_000  # a check later than this means that the process was paused
REMEMBERED = 64  # pauses; the oldest is forgotten first


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


class ProcessPauses:
    """Detects pauses of this process: reads the clock every CHECK_INTERVAL_S seconds, and before a client is dropped
    for silence."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_ms: int | None = None
        self._found: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # (when it was over, how long it was), ms

    def begin(self) -> None:
        """Called once: from now on `check` is called every CHECK_INTERVAL_S seconds."""
        self._checked_ms = self._clock.monotonic_ms()

    def check(self) -> None:
        """Does nothing before `begin`."""
        if self._checked_ms is None:
            return
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._checked_ms - int(CHECK_INTERVAL_S * 1000)
        self._checked_ms = now_ms
        if late_ms > LATE_MS:
            self._found.append((now_ms, late_ms))
            logger.warning(
                "this process was paused for %.1f s (stopped, frozen or short of CPU): no client or lock expires "
                "because of it",
                late_ms / 1000,
            )

    def silence_ms(self, heard_ms: int, now_ms: int) -> int:
        """Silence of a client that was last heard at `heard_ms`, without the time in which this process was paused."""
        return now_ms - heard_ms - sum(late_ms for over_ms, late_ms in self._found if heard_ms < over_ms)
