"""The backend for asyncio, with any of its loops (uvloop as well)."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class AsyncioScope:
    """A block with a deadline, like asyncio.timeout, which raises nothing when it is over."""

    __slots__ = ("_cancelling", "_deadline_s", "_is_over", "_task", "_timer", "cancelled_caught")

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._is_over = False
        self.cancelled_caught = False

    def __enter__(self) -> AsyncioScope:
        task = asyncio.current_task()
        assert task is not None, "outside of any task"
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = asyncio.get_running_loop().call_at(self._deadline_s, self._over)
        return self

    def _over(self) -> None:
        self._is_over = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._timer.cancel()
        if self._is_over and self._task.uncancel() <= self._cancelling:  # else somebody else has cancelled as well
            self.cancelled_caught = kind is not None and issubclass(kind, asyncio.CancelledError)
        return self.cancelled_caught


class AsyncioNursery:
    """aio.OpenNursery, an asyncio.TaskGroup whose tasks can be ended together."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_cancelled = self._is_closed = False

    async def __aenter__(self) -> AsyncioNursery:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            self._is_closed = True

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        self.start(function, *arguments)

    def start(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> asyncio.Future[object]:
        coroutine = _called(function, arguments)
        try:
            task = self._group.create_task(coroutine)
        except RuntimeError:
            coroutine.close()
            if self._is_closed:
                raise
            return _never_begun()  # the group ends after an error or a cancellation
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._is_cancelled:
            task.cancel()
        return task

    def cancel(self) -> None:
        self._is_cancelled = True
        for task in self._tasks:
            task.cancel()


async def _called(function: Callable[..., Awaitable[object]], arguments: tuple[Any, ...]) -> object:
    return await function(*arguments)


def _never_begun() -> asyncio.Future[object]:
    """A task that was cancelled before it began."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def _outlast(work: asyncio.Future[T]) -> T:
    """Wait for `work`, and raise a cancellation only after its end."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # it is not told: the caller is gone
    raise cancelled


def _in_executor(executor: ThreadPoolExecutor | None, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    context = contextvars.copy_context()
    return _outlast(asyncio.get_running_loop().run_in_executor(executor, context.run, function, *arguments))


class AsyncioThreads:
    """aio.Threads."""

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="rocketpy")
        self._places = asyncio.Semaphore(count)  # so that a call that waits can be cancelled

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        async with self._places:
            return await _in_executor(self._executor, function, *arguments)

    def close(self) -> None:
        self._executor.shutdown(wait=False)


class AsyncioBackend:
    """aio.Backend."""

    name = "asyncio"

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def move_on_at(self, deadline_s: float) -> AsyncioScope:
        return AsyncioScope(deadline_s)

    def open_nursery(self) -> AbstractAsyncContextManager[AsyncioNursery]:
        return AsyncioNursery()

    async def shielded(self, seconds: float, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        async def bounded() -> None:
            with AsyncioScope(self.now_s() + seconds):
                await function(*arguments)

        await _outlast(asyncio.ensure_future(bounded()))

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await _in_executor(None, function, *arguments)

    def open_threads(self, count: int) -> AsyncioThreads:
        return AsyncioThreads(count)
