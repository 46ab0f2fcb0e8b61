"""The machine's clocks for the store's Python, and the cautious clock that decides when files are old enough to delete.

Time is wall clock milliseconds since the epoch unless a name says `boot`. docs/adr/0090 says which clock is for what.

Short: the lowest room of the store, for everything that needs the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import attrs

TRUSTED_AFTER_MS = 3_600_000


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_clock_ms() -> int:
    """Milliseconds since the kernel started, suspended time included. It cannot be set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class ClockState(Protocol):
    """Fields of the control block. They survive the store worker, and under the same kernel also the broker."""

    cautious_lead_ms: int  # trusted lead of the wall clock over the boot clock; 0: not yet known
    wall_ahead_since_ms: int  # boot clock; 0: it is not ahead


@attrs.define
class CautiousClock:
    """The wall clock with a delay: when it jumps ahead, the jump is trusted only after an hour, because files deleted
    by a wrong clock do not come back. A clock that is set back is followed at once."""

    _state: ClockState
    wall_ms: Callable[[], int] = wall_clock_ms
    boot_ms: Callable[[], int] = boot_clock_ms

    def __attrs_post_init__(self) -> None:
        if not self._state.cautious_lead_ms:
            self._trust(self.wall_ms() - self.boot_ms())

    def now_ms(self) -> int:
        state, boot_ms = self._state, self.boot_ms()
        lead_ms = self.wall_ms() - boot_ms
        if lead_ms <= state.cautious_lead_ms:
            self._trust(lead_ms)
        elif not state.wall_ahead_since_ms:
            state.wall_ahead_since_ms = boot_ms
        elif boot_ms - state.wall_ahead_since_ms >= TRUSTED_AFTER_MS:
            self._trust(lead_ms)
        return boot_ms + int(state.cautious_lead_ms)

    def _trust(self, lead_ms: int) -> None:
        self._state.cautious_lead_ms, self._state.wall_ahead_since_ms = lead_ms, 0
