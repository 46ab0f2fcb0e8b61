"""Runs tests under trio and asyncio, on clocks that jump to the next deadline when every task waits."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio
import trio.testing

from rocketpy import aio

BACKENDS = ("trio", "asyncio")
chosen = "trio"  # the backend of `run`; the fixture `backend` (tests/conftest.py) sets it
DEADLOCK_S = 60.0  # of real time, in which no thread and no socket wakes a task


class JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # it depends on the system
    """Does not wait: the clock goes on instead."""

    clock_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(DEADLOCK_S)
            assert ready, "every task waits for ever"
            return ready
        ready = super().select(0)
        if not ready:
            self.clock_s += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on the clock of its selector."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.clock_s

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- asyncio's
        """Wait without a time, which the clock would jump to."""
        await super().shutdown_default_executor()


def run(function: Callable[..., Awaitable[Any]], *arguments: Any, backend: str | None = None) -> Any:
    """Run an async function to its end."""
    if (backend or chosen) == "trio":
        return trio.run(function, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))

    async def main() -> Any:
        return await function(*arguments)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main())


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """A block that has to end within the time."""
    with aio.move_on_after(seconds) as scope:
        yield
    assert not scope.cancelled_caught, f"not within {seconds} s"


async def settled() -> None:
    """Wait until every other task waits."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        await trio.testing.wait_all_tasks_blocked()
        return
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110 -- callbacks that are due
        await asyncio.sleep(0)
