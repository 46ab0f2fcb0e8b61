"""The requests that wait for the tasks of one pool in one process, first come, first served."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from rocketpy.remoting.limits import PoolLoad

from .pools import Pool


class Waiting(Protocol):
    """A request that waits."""

    @property
    def received_ns(self) -> int: ...

    @property
    def size(self) -> int: ...


_W = TypeVar("_W", bound=Waiting)


@attrs.define(eq=False)
class PoolQueue(Generic[_W]):
    """Bounded in requests and in bytes."""

    pool: Pool
    _send: trio.MemorySendChannel[_W] = attrs.field(init=False)
    _receive: trio.MemoryReceiveChannel[_W] = attrs.field(init=False)
    _received_ns: deque[int] = attrs.field(init=False, factory=deque)
    _bytes: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel(self.pool.queue_max)

    def put(self, request: _W) -> bool:
        """False: a bound of the pool is reached, nothing was taken."""
        if self._bytes > 0 and self._bytes + request.size > self.pool.queue_bytes_max:
            return False
        try:
            self._send.send_nowait(request)
        except trio.WouldBlock:
            return False
        self._bytes += request.size
        self._received_ns.append(request.received_ns)
        return True

    async def take(self) -> _W | None:
        """Wait for the next request; None: there will be none."""
        try:
            request = await self._receive.receive()
        except trio.EndOfChannel:
            return None
        self._received_ns.popleft()
        self._bytes -= request.size
        return request

    def close(self) -> None:
        """What waits is still served."""
        self._send.close()

    def __len__(self) -> int:
        return self._send.statistics().current_buffer_used

    @property
    def since_ns(self) -> int:
        """When the one at the head was received, CLOCK_MONOTONIC; 0: nothing waits."""
        return self._received_ns[0] if self._received_ns and len(self) else 0

    def load(self, now_ns: int) -> PoolLoad:
        waited_ns = now_ns - self.since_ns if self.since_ns else 0
        return PoolLoad(len(self), self.pool.queue_max, max(0, waited_ns // 1_000_000))
