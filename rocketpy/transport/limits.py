"""The bounds of connections: of each, and of the memory of all of a server together."""

from __future__ import annotations

import math
from typing import Protocol

import attrs

from rocketpy.remoting.connection import IN_FLIGHT_MAX
from rocketpy.remoting.frame import FRAME_SIZE_MAX

RECEIVE_SIZE = 65_536


@attrs.frozen(kw_only=True)
class ChannelLimits:
    """The bounds of a connection, and what happens at each."""

    idle_s: float = 120.0
    """A connection without any traffic for this long is closed."""
    requests_max: int = 1024
    """Requests of the peer in work at once: further ones are read when one is finished."""
    requests_size_max: int = 32 * 1024 * 1024
    """Bytes of requests in work, likewise; a single request is always accepted."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Our requests without a response: more are refused with TooManyRequests."""
    outgoing_size_max: int = 64 * 1024 * 1024
    """Bytes that wait to be written: requests and responses wait for room, pushes are dropped."""
    frame_size_max: int = FRAME_SIZE_MAX
    """A longer frame closes the connection."""
    receive_size: int = RECEIVE_SIZE
    """Bytes of one read; more cost less CPU where large frames come, and memory for each connection."""
    close_flush_s: float = 1.0
    """Seconds that `close` waits until queued data is written."""
    silence_s: float = math.inf
    """A connection on which a request was not answered in time, and nothing else came for so long, is closed."""


class Holder(Protocol):
    """A connection; compared by identity."""

    def give_up(self) -> None:
        """Close without waiting for anything, and release the memory."""


class Budget:
    """Bounds the memory of all connections of a server together: unfinished frames, requests in work, unsent replies.

    Each connection has bounds of its own, but one client may open many. Beyond `bytes_max` bytes the connection that
    holds most is closed: it sends requests without ending them, or does not read its replies. It stops counting at
    once.
    """

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
