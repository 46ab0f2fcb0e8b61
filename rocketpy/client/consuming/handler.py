"""Calls the user's handler: plain functions in threads, coroutine functions in the loop; errors become values.

Running calls are counted, so that a consumer that stops can wait for them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import attrs

from rocketpy import aio

from ..hooks.layer import HookChain
from ..messages import ReceivedMessage
from ..results import CONSUMED, ConsumeResult

logger = logging.getLogger(__name__)

MessageHandler = Callable[[ReceivedMessage], ConsumeResult | Awaitable[ConsumeResult | None] | None]
BatchHandler = Callable[[Sequence[ReceivedMessage]], ConsumeResult | Awaitable[ConsumeResult | None] | None]


def is_async(function: object) -> bool:
    """Return True for a coroutine function, or an object that is called like one."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is meant
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class Handled(NamedTuple):
    """The result of a handler call. `error` is the exception that it raised; then the result is a retry."""

    result: ConsumeResult
    spent_s: float
    error: BaseException | None = None


@attrs.define(eq=False)
class Handler:
    """At most `concurrency` calls at once, of either kind; the hooks around a call belong to it."""

    function: Callable[[Any], Any]
    takes_batch: bool
    concurrency: int
    hooks: HookChain | None = None
    _is_async: bool = attrs.field(init=False)
    _clock: Callable[[], float] = attrs.field(init=False, factory=aio.clock)
    _slots: aio.Semaphore = attrs.field(init=False)
    _threads: aio.Threads | None = attrs.field(init=False, default=None)  # of a plain function

    def __attrs_post_init__(self) -> None:
        self._slots, self._is_async = aio.Semaphore(self.concurrency), is_async(self.function)
        if not self._is_async:
            self._threads = aio.open_threads(self.concurrency)

    async def handle(self, messages: Sequence[ReceivedMessage]) -> Handled:
        """Call the user's handler with `messages`. Raises only cancellation of the caller."""
        begin_s = self._clock()
        try:
            if self._is_async or self.hooks is not None:
                if not self._slots.take():
                    await self._slots.acquire()
                    begin_s = self._clock()
                try:
                    if self.hooks is None:
                        result = await self._call(messages)
                    else:
                        result = checked(await self.hooks.consume(messages, self._call))
                finally:
                    self._slots.release()
            else:
                result = await self._call(messages)
        except BaseException as error:
            if not isinstance(error, Exception) and not aio.is_stray_cancellation(error):
                raise
            logger.warning(
                "the message handler failed on %d messages, the first %s",
                len(messages),
                messages[0].msg_id,
                exc_info=True,
            )
            return Handled(ConsumeResult.retry(), self._clock() - begin_s, error)
        return Handled(result, self._clock() - begin_s)

    async def _call(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        argument = tuple(messages) if self.takes_batch else messages[0]
        if self._threads is None:
            result = await self.function(argument)
        else:
            result = await self._threads.run(self.function, argument)
            if inspect.isawaitable(result):
                result = await result
        return checked(result)

    def close(self) -> None:
        """Let the threads end; no call may be running."""
        if self._threads is not None:
            self._threads.close()


def checked(result: object) -> ConsumeResult:
    """The result of a handler or hook. Raises: TypeError: it is none."""
    if result is None:
        return CONSUMED
    if not isinstance(result, ConsumeResult):
        raise TypeError(f"a handler returns None or a ConsumeResult, not {type(result).__name__}")
    return result


@attrs.define
class InProgress:
    """Counts running consumptions; with `is_stopping` no new one may begin."""

    is_stopping: bool = attrs.field(init=False, default=False)
    _count: int = attrs.field(init=False, default=0)
    _idle: aio.Event = attrs.field(init=False, factory=aio.Event)

    def begin(self) -> None:
        """Count one consumption, until `end`."""
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def stop(self, grace_s: float) -> None:
        """Start no more, and wait for running ones, at most `grace_s`."""
        self.is_stopping = True
        with aio.move_on_after(grace_s):
            while self._count:
                self._idle = aio.Event()
                await self._idle.wait()
