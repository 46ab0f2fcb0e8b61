"""Background duties of a server. Each runs in its own task, and none can end the server.

If a duty raises an exception, it is reported under its name, counted, and run again at its next interval. Duties that
rest wake up together, at whole seconds of the clock of trio, at even ones where that fits: to wake a process costs
more than most duties. One of them sleeps and wakes the others: a timer of trio costs more than many duties, too.

Short: every server has duties, and none of it is about a connection.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator

import attrs
import trio

from rocketpy.faults import Faults

from .steps import finished

_resting: trio.lowlevel.RunVar[dict[float, trio.lowlevel.ParkingLot]] = trio.lowlevel.RunVar("resting")
"""By the time at which they wake up: the tasks that wait for the one of them that sleeps."""


@attrs.define
class Duty:
    """Background work that is repeated.

    `run` is called every `interval_s` seconds, the first time after `first_s` (None: one interval); up to two seconds
    earlier, at a time that duties share. For a `run` that loops by itself and returns only when it fails, `interval_s`
    is the time until it is called again.
    """

    name: str
    interval_s: float
    run: Callable[[], Awaitable[None]]
    first_s: float | None = None


async def run_duty(duty: Duty, faults: Faults) -> None:
    """Run a duty for ever; one that takes longer than its interval delays only itself."""
    if duty.first_s is None:
        await rest(duty.interval_s)
    else:
        await trio.sleep(duty.first_s)
    while True:
        began_s = trio.current_time()
        try:
            await duty.run()
        except* Exception as group:  # what a cancelled scope raises beside it goes on
            faults.report(duty.name, group)
        if trio.current_time() - began_s > duty.interval_s / 2:
            await trio.sleep(duty.interval_s)
        else:
            await rest(duty.interval_s)


async def rest(seconds: float) -> None:
    """Sleep for so long, or until a shared time shortly before."""
    until_s = shared_time(trio.current_time(), seconds)
    try:
        resting = _resting.get()
    except LookupError:
        _resting.set(resting := {})
    while trio.current_time() < until_s:
        if (others := resting.get(until_s)) is not None:
            await others.park()
            continue
        resting[until_s] = others = trio.lowlevel.ParkingLot()
        try:
            await trio.sleep_until(until_s)
        finally:  # if this task is cancelled, one of the others sleeps on
            del resting[until_s]
            others.unpark_all()


def shared_time(now_s: float, rest_s: float) -> float:
    """Return the last whole second within a rest, the last even one if the rest takes 2, 4, 6.. seconds, the last half
    one if it is shorter than a second; else its end."""
    grid_s = 0.5 if rest_s < 1.0 else 1.0 if rest_s % 2.0 else 2.0
    shared_s = math.floor((now_s + rest_s) / grid_s) * grid_s
    return shared_s if shared_s > now_s else now_s + rest_s


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
