"""Splits long work in a trio loop into steps, so that other tasks run in between.

Work that grows with a table is done in steps of about a millisecond. The table may change between steps: copy the keys
first, and look each entry up in its step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.bodies.schema import REQUEST_BYTES_MAX, Body
from rocketpy.remoting.frame import FRAME_SIZE_MAX
from rocketpy.remoting.json_writer import compact_pieces
from rocketpy.remoting.work import result_of

_T = TypeVar("_T")
_B = TypeVar("_B", bound=Body)

UNITS_PER_STEP = 500  # of about a microsecond each: lookups, comparisons, small values
BODY_SIZE_MAX = FRAME_SIZE_MAX - 65_536  # leaves room for the header
AT_ONCE_BYTES_MAX = 4_096  # of a body; leniently 8 ms
_READERS: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("readers of bodies")


class Steps:
    """Counts the work of one task and lets others run after each `units_per_step` of it."""

    def __init__(self, units_per_step: int = UNITS_PER_STEP) -> None:
        self._units_per_step = units_per_step
        self._done = 0

    async def did(self, units: int = 1) -> None:
        """Count `units` of work; yields to other tasks when a step is full."""
        self._done += units
        if self._done >= self._units_per_step:
            self._done = 0
            await trio.lowlevel.checkpoint()

    async def finished(self, work: Generator[None, None, _T]) -> _T:
        """Run `work` to its end and return its result; other tasks run wherever it yields."""
        return await finished(work)

    def turn(self, lock: trio.Lock) -> AbstractAsyncContextManager[object]:
        """Return a context of this task alone."""
        return lock


class NoSteps(Steps):
    """For a forked copy of the loop's process, in which there is no other task: see `at_once`."""

    async def did(self, units: int = 1) -> None:
        """Go on."""

    async def finished(self, work: Generator[None, None, _T]) -> _T:
        """Run `work` to its end and return its result."""
        return result_of(work)

    def turn(self, lock: trio.Lock) -> AbstractAsyncContextManager[object]:
        """Return no context: a task that had the lock at the fork never releases it here."""
        return contextlib.nullcontext()


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run work with NoSteps, which waits for nothing, without a loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    work.close()
    raise AssertionError("work without steps has waited")


async def finished(work: Generator[None, None, _T]) -> _T:
    """Run `work` to its end and return its result; other tasks run wherever it yields."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result
        await trio.lowlevel.checkpoint()


class TextWriter:
    """Collects pieces of text as UTF-8; other tasks run after each piece."""

    def __init__(self, size_max: int | None = None) -> None:
        """`size_max`: bytes; None: any number."""
        self.pieces: list[bytes] = []
        self._size_max = size_max
        self._size = 0

    async def write(self, pieces: Iterable[str]) -> None:
        """Append the pieces.

        Raises:
            RequestRefused: more than `size_max` bytes; no further piece was produced then.
        """
        for piece in pieces:
            self.pieces.append(piece.encode("utf-8", "replace"))
            self._size += len(self.pieces[-1])
            if self._size_max is not None and self._size > self._size_max:
                remark = f"the answer is larger than {self._size_max} bytes, the most of a frame; request less at once"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
            await trio.lowlevel.checkpoint()


async def encoded(pieces: Iterable[str]) -> list[bytes]:
    """The pieces as UTF-8; other tasks run after each."""
    text = TextWriter()
    await text.write(pieces)
    return text.pieces


async def encoded_body(value: object) -> bytes:
    """The compact JSON of a large value. Raises: RequestRefused: it does not fit a frame."""
    text = TextWriter(BODY_SIZE_MAX)
    await text.write(compact_pieces(value))
    return b"".join(text.pieces)


async def read_body(kind: type[_B], data: bytes | None) -> _B:
    """Read the body of a request of any client: a small one at once, a large one in a thread, one at a time.

    The thread shares the interpreter with the loop, except while it parses strict JSON; `Body.decode_request` bounds
    that by bytes and objects.

    Raises:
        BodyInvalid: as `Body.decode_request` does.
    """
    if data is None or not AT_ONCE_BYTES_MAX < len(data) <= REQUEST_BYTES_MAX:
        return kind.decode_request(data)
    return await trio.to_thread.run_sync(kind.decode_request, data, limiter=_readers())


def _readers() -> trio.CapacityLimiter:
    """One thread for each loop."""
    try:
        return _READERS.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _READERS.set(limiter)
        return limiter
