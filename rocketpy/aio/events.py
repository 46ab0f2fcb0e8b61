"""Events, semaphores, locks and queues. Made of the backend's future, so both backends behave alike.

They belong to no loop until a task waits, so they may be made anywhere. Not for several threads. A wait that is over
at once lets no other task run.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Generic, TypeVar

from .backend import Future, running

T = TypeVar("T")


class Event:
    """Set once; every wait ends then."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        if self._is_set:
            return
        future: Future[None] = running().future()
        self._waiting.append(future)
        try:
            await future
        except BaseException:
            if future in self._waiting:
                self._waiting.remove(future)
            raise


class Semaphore:
    """Lets `count` holders in at once, in the order in which they came."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Future[None]] | None = None  # made for the first that waits: an empty one has 760 bytes

    def take(self) -> bool:
        """Enter if that needs no wait."""
        if self._free and not self._waiting:
            self._free -= 1
            return True
        return False

    async def acquire(self) -> None:
        if self.take():
            return
        future: Future[None] = running().future()
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        waiting.append(future)
        try:
            await future  # whoever releases hands its place over
        except BaseException:
            if future in waiting:
                waiting.remove(future)
            if future.done() and not future.cancelled():  # it has the place, but cannot use it
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self._free += 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Lock(Semaphore):
    """One holder at a time."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1)

    def locked(self) -> bool:
        return not self._free


class Queue(Generic[T]):
    """Items in order, for any number of takers. It has no bound of its own: the giver looks at `len`."""

    __slots__ = ("_items", "_ready")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._ready = Semaphore(0)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        self._items.append(item)
        self._ready.release()

    async def get(self) -> T:
        """The next item; waits for one."""
        await self._ready.acquire()
        return self._items.popleft()
