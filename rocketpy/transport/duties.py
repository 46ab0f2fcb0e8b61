"""Background duties of a server: each in a task of its own, none of which ends the server.

A duty that raises is reported under its name, counted, and done again at its next interval.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator

import attrs
import trio

from rocketpy.faults import Faults

from .steps import finished


@attrs.define
class Duty:
    """One thing to do again and again.

    `run` is called each `interval_s` seconds, the first time after `first_s` (None: one interval). One that goes on by
    itself and returns only when it fails has the time until it is called again as its interval.
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
