"""Masters with automatic failover that have left, and stay in routes until their successor registers.

In a switch-over the last master closes its connection, or registers as a slave, before the next one is ready. A client
that asks for the route in between would find no master and fail a send; the last master passes sends on. So it keeps
its id 0 for LEAVING_MS, or until the next master registers.
"""

from __future__ import annotations

import attrs

LEAVING_MS = 3_000


@attrs.define(eq=False)
class LeavingMasters:
    """Addresses, and until when they stay."""

    _until_ms: dict[str, int] = attrs.field(factory=dict)

    def leave(self, addr: str, now_ms: int) -> None:
        """Begin the time of a master that has left; it does not begin again."""
        self._until_ms.setdefault(addr, now_ms + LEAVING_MS)

    def forget(self, addr: str) -> None:
        """The address is a master's again, or is not registered any more."""
        self._until_ms.pop(addr, None)

    def has(self, addr: str) -> bool:
        return addr in self._until_ms

    def take_due(self, now_ms: int) -> list[str]:
        """Addresses whose time is over."""
        due = [addr for addr, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for addr in due:
            del self._until_ms[addr]
        return due
