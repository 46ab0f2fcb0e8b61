"""Background duties of a server. Each runs in its own task, and none can end the server.

If a duty raises an exception, it is reported under its name, counted, and run again at its next interval.

Short: every server has duties, and none of it is about a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator

import attrs
import trio

from rocketpy.faults import Faults

from .steps import finished


@attrs.define
class Duty:
    """Background work that is repeated.

    `run` is called every `interval_s` seconds, the first time after `first_s` (None: one interval). For a `run` that
    loops by itself and returns only when it fails, `interval_s` is the time until it is called again.
    """

    name: str
    interval_s: float
    run: Callable[[], Awaitable[None]]
    first_s: float | None = None


async def run_duty(duty: Duty, faults: Faults) -> None:
    """Run a duty for ever; one that takes longer than its interval delays only itself."""
    await trio.sleep(duty.interval_s if duty.first_s is None else duty.first_s)
    while True:
        try:
            await duty.run()
        except* Exception as group:  # what a cancelled scope raises beside it goes on
            faults.report(duty.name, group)
        await trio.sleep(duty.interval_s)


def as_duty(act: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    """A plain function as a duty's `run`."""

    async def run() -> None:
        act()

    return run


def as_work(begin: Callable[[], Generator[None, None, object]]) -> Callable[[], Awaitable[None]]:
    """Work in steps (remoting/work.py) as a duty's `run`."""

    async def run() -> None:
        await finished(begin())

    return run
