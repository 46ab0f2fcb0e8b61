"""Sends and requests under way: the caller's handle of each, and the bounds of all together."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError

from ..messages import ReceivedMessage
from ..results import SendResult

logger = logging.getLogger(__name__)

R = TypeVar("R")


@attrs.define(eq=False)
class Handle(Generic[R]):
    """A send or request under way: `await handle` for its result or error; `on_done` is called with the handle at its
    end."""

    msg_id: str
    on_done: Callable[[Any], None] | None = None
    result: R | None = None
    error: Exception | None = None
    is_done: bool = attrs.field(init=False, default=False)
    _ended: aio.Event | None = attrs.field(init=False, default=None)  # made for the first task that waits

    def __await__(self) -> Generator[Any, Any, R]:
        return self.wait().__await__()

    async def wait(self) -> R:
        """The result. Raises the error."""
        if not self.is_done:
            if self._ended is None:
                self._ended = aio.Event()
            await self._ended.wait()
        if self.result is not None:
            return self.result
        try:
            raise self.error or ClientError(f"message {self.msg_id} was not sent: the producer was closed")
        finally:
            del self  # an error among the locals of its own traceback would be a cycle

    def finish(self, result: R | None, error: Exception | None = None) -> None:
        """End the waits. With neither result nor error the producer was closed."""
        self.result, self.error, self.is_done = result, error, True
        if self._ended is not None:
            self._ended.set()
        if self.on_done is not None:
            try:
                self.on_done(self)
            except Exception:
                logger.exception("the on_done callback of message %s failed", self.msg_id)


class SendHandle(Handle[SendResult]):
    """A send under way."""

    __slots__ = ()


class RequestHandle(Handle[ReceivedMessage]):
    """A request under way; its result is the reply."""

    __slots__ = ()


@attrs.define(eq=False)
class InFlight:
    """Bounds messages under way by number and by bytes; one that alone is larger than the bound passes alone.

    Places are given in the order in which they were asked for, so waiting keeps the order of messages.
    """

    count_max: int
    bytes_max: int
    count: int = 0
    bytes: int = 0
    _waiting: deque[tuple[int, aio.Future[None]]] = attrs.field(factory=deque)  # sizes
    _emptied: aio.Event = attrs.field(factory=aio.Event)

    @property
    def is_waited_for(self) -> bool:
        """Return True if a message waits for its place."""
        return bool(self._waiting)

    def take(self, size: int) -> bool:
        """Take a place for a message of `size` bytes at once; False: `acquire` would have to wait."""
        count, total = self.count, self.bytes + size
        if self._waiting or count >= self.count_max or (count and total > self.bytes_max):
            return False
        self.count, self.bytes = count + 1, total
        return True

    async def acquire(self, size: int) -> None:
        """Take a place, waiting for it."""
        if self.take(size):
            return
        place: aio.Future[None] = aio.running().future()
        waiting = (size, place)
        self._waiting.append(waiting)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():  # it has the place, but cannot use it
                self.release(size)
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
                self._give_places()
            raise

    def release(self, size: int, count: int = 1) -> None:
        """Give back the places of `count` messages, which have `size` bytes together."""
        self.count -= count
        self.bytes -= size
        self._give_places()
        if not self.count:
            self._emptied.set()

    def _give_places(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size, place = self._waiting.popleft()
            if not place.done():
                self.count += 1
                self.bytes += size
                place.set_result(None)

    def _has_room(self, size: int) -> bool:
        return self.count < self.count_max and (not self.count or self.bytes + size <= self.bytes_max)

    async def wait_empty(self) -> None:
        """Wait until nothing is under way."""
        while self.count:
            if self._emptied.is_set():
                self._emptied = aio.Event()
            await self._emptied.wait()
