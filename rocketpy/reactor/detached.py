"""Detached requests: they have left their pool because they wait for a client, a name server or the store worker.

A slow or silent client must not occupy a task of a pool (docs/adr/0070). They are bounded in number and bytes for each
pool, so that one pool leaves the others their room, and in number for each asking connection and each target. One
connection has as many requests and bytes waiting as are still free, so that it cannot fill a pool. Beyond a bound the
answer is SYSTEM_BUSY. A deadline ends each wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import attrs
import trio

from rocketpy.remoting.abc import Detached
from rocketpy.remoting.command import RemotingCommand


@attrs.define(eq=False)
class DetachedRequests:
    """Counts detached requests, and runs each within its deadline, in a task of the caller.

    Attributes:
        count_max, bytes_max: of one pool.
    """

    count_max: int = 1024
    bytes_max: int = 32 * 1024 * 1024
    _counts: Counter[str] = attrs.field(init=False, factory=Counter)  # by pool
    _bytes: Counter[str] = attrs.field(init=False, factory=Counter)
    _by_key: Counter[Hashable] = attrs.field(init=False, factory=Counter)
    _bytes_by_asker: Counter[Hashable] = attrs.field(init=False, factory=Counter)
    _scopes: set[trio.CancelScope] = attrs.field(init=False, factory=set)
    _is_stopping: bool = attrs.field(init=False, default=False)

    @property
    def count(self) -> int:
        return self._counts.total()

    def enter(self, rest: Detached, asker: int, size: int, pool: str) -> bool:
        """Register a request of `size` bytes. Returns False if a bound is reached. Each True needs a call of
        `leave`."""
        asker_key, target_key = _keys(rest, asker, pool)
        count_left, bytes_left = self.count_max - self._counts[pool], self.bytes_max - self._bytes[pool]
        is_large = self._counts[pool] > 0 and size + self._bytes_by_asker[asker_key] > bytes_left  # one always fits
        is_often = self._by_key[asker_key] >= min(rest.asker_max, count_left)
        if is_large or is_often or self._by_key[target_key] >= rest.at_once_max:
            self._drop_unused(rest, asker, pool)
            return False
        self._counts[pool] += 1
        self._bytes[pool] += size
        self._by_key.update((asker_key, target_key))
        self._bytes_by_asker[asker_key] += size
        return True

    def leave(self, rest: Detached, asker: int, size: int, pool: str) -> None:
        self._counts[pool] -= 1
        self._bytes[pool] -= size
        asker_key, target_key = _keys(rest, asker, pool)
        self._by_key.subtract((asker_key, target_key))
        self._bytes_by_asker[asker_key] -= size
        self._drop_unused(rest, asker, pool)

    def _drop_unused(self, rest: Detached, asker: int, pool: str) -> None:
        for key in _keys(rest, asker, pool):
            if self._by_key[key] <= 0:
                del self._by_key[key]
                self._bytes_by_asker.pop(key, None)

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


def _keys(rest: Detached, asker: int, pool: str) -> tuple[Hashable, Hashable]:
    return ("asker", pool, asker), ("target", pool, rest.waits_for)
