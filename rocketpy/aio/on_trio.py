"""The backend for trio."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import trio

from .portal import LoopEnded, Portal
from .trio_calls import TrioTimer, calls_of_loop

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
    """aio.OpenNursery. To keep its tasks it runs them in a nursery of a task that is shielded from the block."""

    def __init__(self, *, keeps_tasks: bool) -> None:
        self._manager = trio.open_nursery()
        self._outer: trio.Nursery
        self._nursery: trio.Nursery  # of new tasks
        self._scope: trio.CancelScope
        self._is_left = TrioFuture() if keeps_tasks else None

    async def __aenter__(self) -> TrioNursery:
        self._outer = self._nursery = await self._manager.__aenter__()
        self._scope = self._outer.cancel_scope
        if self._is_left is not None:
            with trio.CancelScope(shield=True):
                self._nursery = await self._outer.start(self._keep, self._is_left)
            self._scope = self._nursery.cancel_scope
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._is_left is not None:
            self._is_left.set_result(None)
        return await self._manager.__aexit__(kind, error, trace)

    async def _keep(self, is_left: TrioFuture, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.shield = True
                task_status.started(nursery)
                del task_status  # it has another nursery, with 1 KB
                await is_left
        except BaseExceptionGroup as group:
            failure = group.exceptions[0] if len(group.exceptions) == 1 else group
        finally:
            self._nursery = self._outer
        if failure is not None:
            raise failure  # for the outer nursery to put into a group

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        self._nursery.start_soon(function, *arguments)

    def start(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(_within, scope, function, *arguments)
        return scope

    def cancel(self) -> None:
        self._scope.cancel()
        self._outer.cancel_scope.cancel()


async def _within(scope: trio.CancelScope, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    with scope:
        await function(*arguments)


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

    def call_soon(self, function: Callable[[], object]) -> None:
        calls_of_loop().soon(function)

    def call_at(self, when_s: float, function: Callable[[], object]) -> TrioTimer:
        return calls_of_loop().at(when_s, function)

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
