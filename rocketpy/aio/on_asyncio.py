"""The backend for asyncio, with any of its loops (uvloop as well)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from .portal import LoopEnded, Portal

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


class AsyncioTask:
    """aio.StartedTask."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task

    def cancel(self) -> None:
        """End the task at its next wait; as under trio, it has run to its first one then, and can close what it was
        given."""
        asyncio.get_running_loop().call_soon(self._task.cancel)


class _Group(asyncio.TaskGroup):
    """A group that cancels its tasks as AsyncioTask does, also after an error or a cancellation: asyncio's own would
    drop a task that has not begun, and the connection that it was given."""

    def _abort(self) -> None:  # a method of TaskGroup since it exists; tests tell if it goes
        self._aborting = True
        for task in self._tasks:
            asyncio.get_running_loop().call_soon(task.cancel)


class AsyncioNursery:
    """aio.OpenNursery, an asyncio.TaskGroup whose tasks can be ended together."""

    def __init__(self) -> None:
        self._group = _Group()
        self._late: list[asyncio.Task[object]] = []  # started while the group ends
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
            await self._end_late()
            self._is_closed = True

    async def _end_late(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while self._late:
            task = self._late.pop()
            cancelled = await _end_of(task) or cancelled
            if not task.cancelled():
                task.result()
        if cancelled is not None:
            raise cancelled

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        self.start(function, *arguments)

    def start(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> AsyncioTask:
        coroutine = _coroutine(function, arguments)
        try:
            task = self._group.create_task(coroutine)
        except RuntimeError:  # the group ends, after an error or a cancellation
            coroutine.close()  # Python 3.13 has done so
            if self._is_closed:
                raise
            self._is_cancelled = True
            task = asyncio.get_running_loop().create_task(_coroutine(function, arguments))
            self._late.append(task)
        started = AsyncioTask(task)
        if self._is_cancelled:
            started.cancel()
        return started

    def cancel(self) -> None:
        self._is_cancelled = True
        for task in [*self._group._tasks, *self._late]:
            AsyncioTask(task).cancel()


def _coroutine(function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...]) -> Coroutine[Any, Any, T]:
    """Call `function` for a task. A coroutine is taken as it is: another one around it would cost each task memory."""
    awaitable = function(*arguments)
    return awaitable if isinstance(awaitable, Coroutine) else _awaited(lambda: awaitable, ())


async def _awaited(function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...]) -> T:
    return await function(*arguments)


async def _end_of(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the end of `work`. Returns: a cancellation that came meanwhile, which the caller raises."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def _outlast(work: asyncio.Future[T]) -> T:
    """Wait for `work`, and raise a cancellation only after its end; the result is lost then."""
    cancelled = await _end_of(work)
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


class AsyncioPortal:
    """aio.Portal."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()

    def call(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        with self._lock:
            if self._loop is None:
                raise LoopEnded(during=False)
            future: Future[T] = asyncio.run_coroutine_threadsafe(_awaited(function, arguments), self._loop)
            self._pending.add(future)
        try:
            return future.result()
        except CancelledError:
            raise LoopEnded(during=True) from None
        finally:
            self._pending.discard(future)

    def call_soon(self, function: Callable[[], object]) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)

    def end(self) -> None:
        """The loop does not run any more, and is about to be closed."""
        with self._lock:
            self._loop = None
            pending, self._pending = self._pending, set()
        for future in pending:
            future.cancel()


class AsyncioBackend:
    """aio.Backend."""

    name = "asyncio"

    def clock(self) -> Callable[[], float]:
        return asyncio.get_running_loop().time

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def call_soon(self, function: Callable[[], object]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(function)

    def call_at(self, when_s: float, function: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(when_s, function)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def move_on_at(self, deadline_s: float) -> AsyncioScope:
        return AsyncioScope(deadline_s)

    def open_nursery(self, *, keeps_tasks: bool = False) -> AbstractAsyncContextManager[AsyncioNursery]:
        return AsyncioNursery()  # it keeps tasks always, until the block is left

    async def shielded(self, seconds: float, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> None:
        async def bounded() -> None:
            with AsyncioScope(self.clock()() + seconds):
                await function(*arguments)

        await _outlast(asyncio.ensure_future(bounded()))

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await _in_executor(None, function, *arguments)

    def open_threads(self, count: int) -> AsyncioThreads:
        return AsyncioThreads(count)

    def is_stray_cancellation(self, error: BaseException) -> bool:
        task = asyncio.current_task()
        return isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()

    def run_with_portal(self, function: Callable[[Portal], Awaitable[None]]) -> None:
        async def main() -> None:
            portal = AsyncioPortal()
            try:
                await function(portal)
            finally:
                portal.end()

        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes a loop of uvloop; None if that is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run_in_asyncio(function: Callable[..., Awaitable[T]], /, *arguments: Any) -> T:
    """See aio.run."""
    return asyncio.run(_awaited(function, arguments))
