"""Functions that a loop calls soon, or at a time: the same under both backends."""

from __future__ import annotations

import contextvars
import logging

import pytest
import trio

from rocketpy import aio
from rocketpy.aio.trio_calls import CANCELLED_MIN, TrioCalls, calls_of_loop
from tests.support.loops import run, settled

pytestmark = pytest.mark.usefixtures("backend")

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_functions_are_called_in_the_next_turn_in_their_order_and_in_the_context_of_their_callers() -> None:
    async def main() -> None:
        called: list[tuple[int, str]] = []
        for number, who in enumerate(("one", "two")):
            WHO.set(who)
            aio.call_soon(lambda number=number: called.append((number, WHO.get())))  # type: ignore[misc]
        assert called == []
        await settled()
        assert called == [(0, "one"), (1, "two")]
        aio.call_soon(lambda: aio.call_soon(lambda: called.append((2, WHO.get()))))
        await settled()
        assert called[2:] == [(2, "two")]

    run(main)


def test_timers_are_called_in_the_order_of_their_times_and_not_once_they_are_cancelled() -> None:
    async def main() -> None:
        begin_s = aio.now_s()
        called: list[tuple[str, float]] = []

        def note(name: str) -> None:
            called.append((name, round(aio.now_s() - begin_s, 3)))

        late = aio.call_at(begin_s + 3, lambda: note("late"))
        aio.call_at(begin_s + 2, lambda: note("second"))
        aio.call_at(begin_s + 1, lambda: (note("first"), late.cancel()))
        aio.call_at(begin_s - 1, lambda: note("past"))
        await aio.sleep(1.5)
        aio.call_at(begin_s + 1.75, lambda: note("between"))
        await aio.sleep(5)
        assert called == [("past", 0), ("first", 1), ("between", 1.75), ("second", 2)]
        late.cancel()  # once more

    run(main)


def test_a_timer_begins_the_next_one() -> None:
    async def main() -> None:
        begin_s, called_s = aio.now_s(), list[float]()

        def again() -> None:
            called_s.append(aio.now_s() - begin_s)
            if len(called_s) < 3:
                aio.call_at(aio.now_s() + 1, again)

        again()
        await aio.sleep(10)
        assert called_s == [pytest.approx(0), pytest.approx(1), pytest.approx(2)]

    run(main)


def test_a_function_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        called: list[int] = []

        def fail() -> None:
            raise KeyError("x")

        aio.call_soon(fail)
        aio.call_soon(lambda: called.append(1))
        aio.call_at(aio.now_s() + 1, fail)
        aio.call_at(aio.now_s() + 2, lambda: called.append(2))
        await aio.sleep(3)
        assert called == [1, 2]

    run(main)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def none_is_left() -> None:
    """The task of trio that calls functions has ended."""
    await settled()
    root = trio.lowlevel.current_root_task()
    assert root is not None
    system_tasks = [task for nursery in root.child_nurseries for task in nursery.child_tasks]
    assert not any("TrioCalls" in task.name for task in system_tasks)


def test_trio_no_task_waits_without_a_function() -> None:
    """Also after timers that were cancelled: those of a client that has left."""

    async def main() -> None:
        timers = [aio.call_at(aio.now_s() + 100, lambda: None) for _ in range(3)]
        await settled()
        for timer in timers:
            timer.cancel()
        await none_is_left()
        aio.call_soon(lambda: None)
        await none_is_left()
        called: list[int] = []
        aio.call_at(aio.now_s() + 1, lambda: called.append(1))
        await aio.sleep(2)
        assert called == [1]
        await none_is_left()

    run(main, backend="trio")


def test_trio_cancelled_timers_leave_the_heap() -> None:
    """A connection moves its timer with each request: the heap would grow until the first time comes."""

    async def main() -> None:
        calls = calls_of_loop()
        kept = aio.call_at(aio.now_s() + 1000, lambda: None)
        for _ in range(50 * CANCELLED_MIN):
            aio.call_at(aio.now_s() + 1000, lambda: None).cancel()
        assert len(calls._timers) <= CANCELLED_MIN + 3
        kept.cancel()
        assert isinstance(calls, TrioCalls) and not calls._timers

    run(main, backend="trio")
