"""The requests that wait for the tasks of one pool in one process.

Connections take turns, and the requests of a connection keep their order: a connection with thousands of requests
delays another by one request. It may also have only as many waiting as are still free, so that it cannot fill the pool.
A connection whose first request is being prepared (remoting/abc.py, Preparation) is held: it has no turn until that is
done.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from rocketpy.remoting.limits import PoolLoad

from .pools import Pool


class Waiting(Protocol):
    """A request that waits."""

    @property
    def sender(self) -> int:
        """The number of its connection."""
        ...

    @property
    def received_ns(self) -> int: ...

    @property
    def size(self) -> int: ...


_W = TypeVar("_W", bound=Waiting)


@attrs.define(eq=False)
class _Turn(Generic[_W]):
    """The waiting requests of one connection."""

    requests: deque[_W] = attrs.field(factory=deque)
    bytes: int = 0


@attrs.define(eq=False)
class PoolQueue(Generic[_W]):
    """Bounded in requests and in bytes, together and for each connection."""

    pool: Pool
    _tasks: trio.lowlevel.ParkingLot = attrs.field(init=False, factory=trio.lowlevel.ParkingLot)  # that wait in `take`
    _is_closed: bool = attrs.field(init=False, default=False)
    _turns: OrderedDict[int, _Turn[_W]] = attrs.field(init=False, factory=OrderedDict)  # by connection, the next first
    _held: dict[int, _Turn[_W]] = attrs.field(init=False, factory=dict)
    _count: int = attrs.field(init=False, default=0)
    _bytes: int = attrs.field(init=False, default=0)

    def put(self, request: _W) -> bool:
        """False: a bound of the pool is reached, nothing was taken."""
        held = self._held.get(request.sender)
        turn = held or self._turns.get(request.sender) or _Turn()
        if self._bytes and request.size + turn.bytes > self.pool.queue_bytes_max - self._bytes:
            return False
        if len(turn.requests) >= self.pool.queue_max - self._count:
            return False
        turn.requests.append(request)
        self._add(turn, 1, request.size)
        if held is None:
            self._enter(request.sender, turn)
        return True

    def _enter(self, sender: int, turn: _Turn[_W]) -> None:
        self._turns[sender] = turn
        self._tasks.unpark()

    async def take(self) -> _W | None:
        """Wait for the next request; None: there will be none."""
        await trio.lowlevel.checkpoint()
        while not self._turns:
            if self._is_closed and not self._held:
                return None
            await self._tasks.park()
        sender, turn = self._turns.popitem(last=False)
        request = turn.requests.popleft()
        if turn.requests:
            self._enter(sender, turn)  # behind all others
        self._add(turn, -1, -request.size)
        return request

    def keep_turn(self, sender: int) -> None:
        """The connection has the next turn as well: its request was refused for its age, at no cost."""
        if sender in self._turns:
            self._turns.move_to_end(sender, last=False)

    def hold(self, request: _W) -> None:
        """Put a request back that was taken: it is the next of its connection, which has no turn until `release`."""
        assert self.pool.tasks == 1, "else the next request of the connection may be taken already"
        turn = self._turns.pop(request.sender, None) or _Turn()
        turn.requests.appendleft(request)
        self._held[request.sender] = turn
        self._add(turn, 1, request.size)

    def release(self, sender: int) -> None:
        """The connection takes its turn again, behind all others."""
        self._enter(sender, self._held.pop(sender))

    @property
    def held(self) -> int:
        """Requests of connections that are held."""
        return sum(len(turn.requests) for turn in self._held.values())

    def _add(self, turn: _Turn[_W], count: int, size: int) -> None:
        self._count += count
        self._bytes += size
        turn.bytes += size

    def close(self) -> None:
        """End `take` once the queue is empty: waiting requests are still served."""
        self._is_closed = True
        self._tasks.unpark_all()

    def __len__(self) -> int:
        return self._count

    @property
    def since_ns(self) -> int:
        """The time at which the next request was received, CLOCK_MONOTONIC; 0: nothing waits."""
        return next(iter(self._turns.values())).requests[0].received_ns if self._turns else 0

    def load(self, now_ns: int) -> PoolLoad:
        waited_ns = now_ns - self.since_ns if self.since_ns else 0
        return PoolLoad(len(self), self.pool.queue_max, max(0, waited_ns // 1_000_000))
