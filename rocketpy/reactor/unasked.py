"""Responses of clients that belong to no pending call: late answers, and those of clients that were never asked.

A stranger may send frames marked as responses, and each costs the manager as much as a request without being one: no
pool, no access control and no limit of accounts sees it. So those beyond what a connection was asked are counted, and
its connection is closed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import attrs

UNASKED_MAX = 128
"""Responses to nothing of one connection in a window, before it is closed. The reference's clients send none: they do
not answer oneway requests, and answer others once. A restarted manager does not know which calls its predecessor made:
of one connection 64 were pending (channel.CALLS_PER_CONNECTION_MAX), and as many may have timed out just before."""
WINDOW_S = 60.0
"""A client that answers oneway requests as well, a few at each rebalance, never reaches UNASKED_MAX in one window."""
OVERDUE_MAX = 16_384
"""Calls that ended without an answer and are remembered, of all connections; then the oldest is forgotten."""


@attrs.define
class _Count:
    begun_s: float
    responses: int = 0


@attrs.define(eq=False)
class UnaskedResponses:
    """The responses to no request, of all connections of one process.

    Args:
        now_s: seconds that only grow.
    """

    now_s: Callable[[], float] = time.monotonic
    cut: set[int] = attrs.field(init=False, factory=set)
    """Connections that are being closed for it: what they have sent is dropped unread."""
    _overdue: OrderedDict[tuple[int, int], None] = attrs.field(init=False, factory=OrderedDict)
    _counts: dict[int, _Count] = attrs.field(init=False, factory=dict)  # of connections that are open

    def expect(self, connection: int, opaque: int) -> None:
        """A call has ended without its answer, which may come late."""
        if len(self._overdue) >= OVERDUE_MAX:
            self._overdue.popitem(last=False)
        self._overdue[connection, opaque] = None

    def is_late(self, connection: int, opaque: int) -> bool:
        """Return True if this is the late answer of a call; that of each call is so once."""
        return self._overdue.pop((connection, opaque), self) is None

    def add(self, connection: int) -> bool:
        """Count a response to nothing. Returns True if the connection has reached the maximum: close it."""
        now_s = self.now_s()
        count = self._counts.get(connection)
        if count is None or now_s - count.begun_s >= WINDOW_S:
            count = self._counts[connection] = _Count(now_s)
        count.responses += 1
        if count.responses < UNASKED_MAX:
            return False
        self.cut.add(connection)
        return True

    @property
    def connections(self) -> list[int]:
        """Connections whose responses are counted."""
        return list(self._counts)

    def closed(self, connection: int) -> None:
        self._counts.pop(connection, None)
        self.cut.discard(connection)
