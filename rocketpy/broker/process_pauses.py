"""Time in which this process did not run (stopped, paused with its machine, starved): nobody was silent for it.

A heartbeat or a renewed lock that was sent meanwhile still waits in a ring when the process goes on. So the time is
taken off the silence of everybody who was last heard before it.
"""

from __future__ import annotations

import logging
from collections import deque

from .clock import Clock

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
LATE_MS = 5_000  # a look later than this says that nothing ran meanwhile
REMEMBERED = 64  # pauses; the oldest is forgotten first


class ProcessPauses:
    """Found by looking at the clock every CHECK_INTERVAL_S seconds, and before anybody is dropped for silence."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_ms: int | None = None
        self._found: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # (when it was over, how long it was), ms

    def begin(self) -> None:
        """From now on there is a look every CHECK_INTERVAL_S seconds."""
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
            log.warning(
                "this process was paused for %.1f s (stopped, frozen or short of CPU): no client or lock expires "
                "because of it",
                late_ms / 1000,
            )

    def silence_ms(self, heard_ms: int, now_ms: int) -> int:
        """How long somebody who was last heard at `heard_ms` has been silent while this process ran."""
        return now_ms - heard_ms - sum(late_ms for over_ms, late_ms in self._found if heard_ms < over_ms)
