"""Bounds the memory of all connections of a server together: unfinished frames, requests in work, unsent replies.

Each connection has bounds of its own, but one client may open many. When the budget is exceeded, the connection that
holds most is closed: it sends requests without ending them, or does not read its replies.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A connection; compared by identity."""

    def give_up(self) -> None:
        """Close without waiting for anything, and release the memory."""


class Budget:
    """At most `bytes_max` bytes; a connection that is closed for it stops counting at once."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` now has `size` bytes. Closes the connection with the most if the sum exceeds the budget."""
        self._set(holder, size)
        while self.used_bytes > self.bytes_max:
            largest = max(self._held, key=self._held.__getitem__)
            self._set(largest, 0)
            largest.give_up()

    def _set(self, holder: Holder, size: int) -> None:
        self.used_bytes += size - self._held.pop(holder, 0)
        if size > 0:
            self._held[holder] = size
