"""The backend for trio."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import trio

from .portal import LoopEnded, Portal

T = TypeVar("T")


class TrioFuture:
    """A task that sleeps until another wakes it: a fifth of the cost of an event with a cancel scope around it."""

    __slots__ = ("_is_cancelled", "_is_done", "_result", "_task")

    def __init__(self) -> None:
        self._is_done = self._is_cancelled = False
        self._result: Any = None
        self._task: trio.lowlevel.Task | None = None

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def set_result(self, result: Any, /) -> None:
        self._is_done, self._result = True, result
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._is_done:
            self._task = trio.lowlevel.current_task()
            yield from trio.lowlevel.wait_task_rescheduled(self._abort).__await__()  # noqa: ASYNC105 -- a generator
        return self._result

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._is_done = self._is_cancelled = True
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class TrioNursery:
    """aio.OpenNursery."""

    def __init__(self, *, keeps_tasks: bool) -> None:
        self._manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None
        self._kept: set[trio.CancelScope] | None = set() if keeps_tasks else None  # of tasks that go on

    async def __aenter__(self) -> TrioNursery:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, trace)

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        assert self._nursery is not None
        if self._kept is None:
            self._nursery.start_soon(function, *arguments)
        else:
            self.start(function, *arguments)

    def start(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> trio.CancelScope:
        assert self._nursery is not None
        scope = trio.CancelScope(shield=self._kept is not None)
        if self._kept is not None:
            self._kept.add(scope)
            if self._nursery.cancel_scope.cancel_called:
                scope.cancel()
        self._nursery.start_soon(self._within, scope, function, *arguments)
        return scope

    async def _within(
        self, scope: trio.CancelScope, function: Callable[..., Awaitable[object]], *arguments: Any
    ) -> None:
        try:
            with scope:
                await function(*arguments)
        finally:
            if self._kept is not None:
                self._kept.discard(scope)

    def cancel(self) -> None:
        assert self._nursery is not None
        self._nursery.cancel_scope.cancel()
        for scope in self._kept or ():
            scope.cancel()


class TrioThreads:
    """aio.Threads, of trio's own cache."""

    def __init__(self, count: int) -> None:
        self._limiter = trio.CapacityLimiter(count)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        [result] = await trio.to_thread.run_sync(lambda: [function(*arguments)], limiter=self._limiter)
        return result  # in a list, because trio takes a coroutine, which may be one, for a mistake

    def close(self) -> None:
        """trio ends idle threads."""


class TrioPortal:
    """aio.Portal."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        try:
            return trio.from_thread.run(function, *arguments, trio_token=self._token)
        except trio.RunFinishedError:
            raise LoopEnded(during=False) from None
        except trio.Cancelled:
            raise LoopEnded(during=True) from None

    def call_soon(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)


class TrioBackend:
    """aio.Backend."""

    name = "trio"

    def clock(self) -> Callable[[], float]:
        return trio.lowlevel.current_clock().current_time

    def future(self) -> TrioFuture:
        return TrioFuture()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def move_on_at(self, deadline_s: float) -> trio.CancelScope:
        return trio.CancelScope(deadline=deadline_s)

    def open_nursery(self, *, keeps_tasks: bool = False) -> AbstractAsyncContextManager[TrioNursery]:
        return TrioNursery(keeps_tasks=keeps_tasks)

    async def shielded(self, seconds: float, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + seconds):
            await function(*arguments)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await trio.to_thread.run_sync(function, *arguments)

    def open_threads(self, count: int) -> TrioThreads:
        return TrioThreads(count)

    def is_stray_cancellation(self, error: BaseException) -> bool:
        return False

    def run_with_portal(self, function: Callable[[Portal], Awaitable[None]]) -> None:
        async def main() -> None:
            await function(TrioPortal())

        trio.run(main)
