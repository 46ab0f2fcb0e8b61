"""Tries to cut a log: a cut that fails is tried again later, and given up if it fails again and again."""

from __future__ import annotations

import attrs

TRIES_MAX = 4
WAIT_S = 5.0  # after the first try; it doubles
FORGET_S = 600.0


@attrs.define
class Cuts:
    """The tries to cut a log at one position. The position is asked for again only if the cut has failed: there was no
    room to keep the log tail aside, or no record ends there."""

    _position: int = -1
    _tries: int = 0
    _last_s: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """The cut cannot be done: the log has diverged for people to look at."""
        return self._tries >= TRIES_MAX

    def begin(self, position: int, now_s: float) -> bool:
        """Return True if the log is to be cut at `position` now, and count this try."""
        if position != self._position or now_s >= self._last_s + FORGET_S:
            self._position, self._tries = position, 0
        if self.is_given_up or (self._tries and now_s < self._last_s + WAIT_S * 2 ** (self._tries - 1)):
            return False
        self._tries, self._last_s = self._tries + 1, now_s
        return True
