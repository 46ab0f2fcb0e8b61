"""Detached requests: they have left their pool because they wait for a client, a name server or the store worker.

A slow or silent client must not occupy a task of a pool (docs/adr/0081). They are bounded in number and bytes,
in total, per asking connection and per target. Beyond a bound the answer is SYSTEM_BUSY. A deadline ends each wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import attrs
import trio

from rocketpy.remoting.abc import Detached
from rocketpy.remoting.command import RemotingCommand

ASKER_MAX = 64  # detached requests of one connection


@attrs.define(eq=False)
class DetachedRequests:
    """Counts detached requests, and runs each within its deadline, in a task of the caller."""

    count_max: int = 1024
    bytes_max: int = 32 * 1024 * 1024
    _count: int = attrs.field(init=False, default=0)
    _bytes: int = attrs.field(init=False, default=0)
    _by_key: Counter[Hashable] = attrs.field(init=False, factory=Counter)
    _scopes: set[trio.CancelScope] = attrs.field(init=False, factory=set)
    _is_stopping: bool = attrs.field(init=False, default=False)

    @property
    def count(self) -> int:
        return self._count

    def enter(self, rest: Detached, asker: int, size: int) -> bool:
        """Register a request of `size` bytes. Returns False if a bound is reached. Each True needs a call of
        `leave`."""
        is_large = self._count > 0 and self._bytes + size > self.bytes_max  # one always fits
        by_asker, by_target = self._by_key[_asker(asker)], self._by_key[_target(rest)]
        if self._count >= self.count_max or is_large or by_asker >= ASKER_MAX or by_target >= rest.at_once_max:
            self._drop_unused(asker, rest)
            return False
        self._count += 1
        self._bytes += size
        self._by_key[_asker(asker)] += 1
        self._by_key[_target(rest)] += 1
        return True

    def leave(self, rest: Detached, asker: int, size: int) -> None:
        self._count -= 1
        self._bytes -= size
        self._by_key[_asker(asker)] -= 1
        self._by_key[_target(rest)] -= 1
        self._drop_unused(asker, rest)

    def _drop_unused(self, asker: int, rest: Detached) -> None:
        for key in (_asker(asker), _target(rest)):
            if self._by_key[key] <= 0:
                del self._by_key[key]

    async def run(self, rest: Detached) -> RemotingCommand | None:
        """Returns the response, or None if the deadline passed or `stop()` was called."""
        scope = trio.CancelScope(deadline=trio.current_time() + rest.timeout_s)
        if self._is_stopping:
            scope.cancel()
        self._scopes.add(scope)
        try:
            with scope:
                return await rest.finish()
        finally:
            self._scopes.discard(scope)
        return None

    def stop(self) -> None:
        """End every wait, because the process is stopping."""
        self._is_stopping = True
        for scope in self._scopes:
            scope.cancel()


def _asker(connection: int) -> Hashable:
    return "asker", connection


def _target(rest: Detached) -> Hashable:
    return "target", rest.waits_for
