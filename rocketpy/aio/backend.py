"""The interface of a backend, the choice of the running one, and the functions that call it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, TypeVar

from .portal import Portal

T = TypeVar("T")


class Future(Protocol[T]):
    """A result: one task awaits it and another sets it. No wait costs less."""

    def done(self) -> bool:
        """Return True if the result is set, or the task that awaited it was cancelled."""

    def cancelled(self) -> bool:
        """Return True if the task was cancelled before a result was set."""

    def set_result(self, result: T, /) -> None:
        """Wake the task. At most once, and only while not `done`."""

    def __await__(self) -> Generator[Any, Any, T]: ...


class Scope(Protocol):
    """A `with` block that is left when its time is over; it need not raise anything then."""

    @property
    def cancelled_caught(self) -> bool:
        """After the block: True if it was left because of its time."""

    def __enter__(self) -> Scope: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


class StartedTask(Protocol):
    """A task that can be ended alone."""

    def cancel(self) -> object: ...


class Nursery(Protocol):
    """The place where tasks live. A trio.Nursery is one as well."""

    def start_soon(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> object: ...


class OpenNursery(Nursery, Protocol):
    """A nursery of `open_nursery`. If a task fails, the others and the block are cancelled, and an exception group is
    raised at the end of the block."""

    def start(self, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> StartedTask:
        """As `start_soon`, for a task that may be ended alone."""

    def cancel(self) -> None:
        """End all tasks. The last statement of the block, or called by a task."""


class Threads(Protocol):
    """Threads for blocking functions, at most so many at once; further calls wait."""

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run `function` in a thread. A cancelled caller waits for its end: nobody can stop a thread."""

    def close(self) -> None:
        """Let idle threads end. No call may be running."""


class Timer(Protocol):
    """A function that waits for its time."""

    def cancel(self) -> object:
        """Do not call the function. No effect once it was called."""


class Backend(Protocol):
    """trio or asyncio."""

    name: str

    def clock(self) -> Callable[[], float]:
        """The clock of deadlines; its zero means nothing."""

    def future(self) -> Future[Any]: ...

    def call_soon(self, function: Callable[[], object]) -> object: ...

    def call_at(self, when_s: float, function: Callable[[], object]) -> Timer: ...

    async def sleep(self, seconds: float) -> None: ...

    def move_on_at(self, deadline_s: float) -> Scope: ...

    def open_nursery(self, *, keeps_tasks: bool = False) -> AbstractAsyncContextManager[OpenNursery]: ...

    async def shielded(
        self, seconds: float, function: Callable[..., Awaitable[object]], /, *arguments: Any
    ) -> None: ...

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T: ...

    def open_threads(self, count: int) -> Threads: ...

    def is_stray_cancellation(self, error: BaseException) -> bool: ...

    def run_with_portal(self, function: Callable[[Portal], Awaitable[None]]) -> None: ...


_loaded: dict[str, Backend] = {}


def running() -> Backend:
    """The backend that runs the calling task; asyncio if none does, which then says so."""
    in_trio_run = getattr(sys.modules.get("trio.lowlevel"), "in_trio_run", None)
    name = "trio" if in_trio_run is not None and in_trio_run() else "asyncio"
    return _loaded.get(name) or _load(name)


def _load(name: str) -> Backend:
    if name == "trio":
        from .on_trio import TrioBackend

        return _loaded.setdefault(name, TrioBackend())
    from .on_asyncio import AsyncioBackend

    return _loaded.setdefault(name, AsyncioBackend())


def clock() -> Callable[[], float]:
    """The clock of the running loop, for code that asks it often; only for this loop."""
    return running().clock()


def now_s() -> float:
    """Seconds of the loop's clock."""
    return running().clock()()


def call_soon(function: Callable[[], object]) -> None:
    """Call a function in the next turn of the loop, in the caller's context. It must not wait, nor raise."""
    running().call_soon(function)


def call_at(when_s: float, function: Callable[[], object]) -> Timer:
    """Call a function when the loop's clock is there; as `call_soon`. Until then it costs no task."""
    return running().call_at(when_s, function)


def sleep(seconds: float) -> Awaitable[None]:
    """Wait; 0 lets other tasks run."""
    return running().sleep(seconds)


async def sleep_until(deadline_s: float) -> None:
    backend = running()
    await backend.sleep(max(0.0, deadline_s - backend.clock()()))


async def sleep_forever() -> None:
    """Wait for the cancellation."""
    await running().future()


def move_on_at(deadline_s: float) -> Scope:
    """Leave a `with` block at this time, if it waits then."""
    return running().move_on_at(deadline_s)


def move_on_after(seconds: float) -> Scope:
    backend = running()
    return backend.move_on_at(backend.clock()() + seconds)


def open_nursery(*, keeps_tasks: bool = False) -> AbstractAsyncContextManager[OpenNursery]:
    """`async with open_nursery() as nursery`: its tasks end with the block.

    Args:
        keeps_tasks: when the block is cancelled, the tasks go on until `cancel`, for the block's way out.
    """
    return running().open_nursery(keeps_tasks=keeps_tasks)


def shielded(seconds: float, function: Callable[..., Awaitable[object]], /, *arguments: Any) -> Awaitable[None]:
    """Call `function` out of reach of cancellation, for at most so many seconds; for the way out of a block. Under
    asyncio it raises a cancellation that came meanwhile, at its end."""
    return running().shielded(seconds, function, *arguments)


def in_thread(function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """Run a short blocking function, as one that reads a file, in a thread; as `Threads.run`."""
    return running().in_thread(function, *arguments)


def is_stray_cancellation(error: BaseException) -> bool:
    """Return True if nobody has cancelled the calling task: under asyncio it may have awaited another task that was."""
    return running().is_stray_cancellation(error)


def run(function: Callable[..., Awaitable[T]], /, *arguments: Any) -> T:
    """Run an async function to its end, under asyncio: a command line starts sooner than under trio."""
    from .on_asyncio import run_in_asyncio

    return run_in_asyncio(function, *arguments)


def run_with_portal(backend: str, function: Callable[[Portal], Awaitable[None]]) -> None:
    """Run an async function to its end in a new loop of "trio" or "asyncio" (uvloop's where that is installed)."""
    (_loaded.get(backend) or _load(backend)).run_with_portal(function)


def open_threads(count: int) -> Threads:
    """Threads of the caller's own, which it closes."""
    return running().open_threads(count)
