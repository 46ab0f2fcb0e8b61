"""Duties are done each interval, whatever they or others raise. Servers have them, which run under trio alone."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketpy.faults import Faults
from rocketpy.transport.duties import Duty, as_duty, rest, run_duty, shared_time


def play(duties: list[Duty], for_s: float) -> Faults:
    faults = Faults(lambda: 0.0)

    async def main() -> None:
        with trio.move_on_after(for_s):
            async with trio.open_nursery() as nursery:
                for duty in duties:
                    nursery.start_soon(run_duty, duty, faults)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return faults


def test_a_duty_that_fails_is_done_again_and_hurts_no_other() -> None:
    """Fault: A background duty that raised ended the manager or the name server."""
    times: list[float] = []

    def fail() -> None:
        raise KeyError("broken")

    async def fail_in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(as_duty(fail))

    faults = play(
        [
            Duty("fails", 10.0, as_duty(fail)),
            Duty("fails in a group", 10.0, fail_in_a_nursery, first_s=0.0),
            Duty("works", 30.0, as_duty(lambda: times.append(trio.current_time()))),
        ],
        95.0,
    )
    assert faults.counts == {"fails": 9, "fails in a group": 10}
    assert times == [30.0, 60.0, 90.0]


@pytest.mark.parametrize("beside", [ValueError, MemoryError])
def test_a_duty_that_fails_while_it_is_cancelled_ends(beside: type[Exception]) -> None:
    async def fail_at_the_end() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise beside("on the way out")

    assert play([Duty("d", 1.0, fail_at_the_end)], 5.0).counts == {"d": 1}


def test_duties_that_began_apart_wake_up_together() -> None:
    """To wake an idle process up costs more than most duties."""
    times: set[float] = set()
    note = as_duty(lambda: times.add(trio.current_time()))
    play([Duty(f"from {first_s}", interval_s, note, first_s=first_s) for first_s, interval_s in APART], 60.25)
    firsts = {first_s for first_s, _ in APART}
    assert firsts < times and times - firsts == {float(second) for second in range(1, 61)}


APART = ((0.25, 1.0), (0.375, 1.0), (0.75, 5.0), (0.875, 10.0))


@pytest.mark.parametrize("cancelled", range(3))
def test_a_rest_that_is_cancelled_ends_no_other_early_or_late(cancelled: int) -> None:
    """One of those that rest sleeps for all."""
    woken: list[tuple[int, float]] = []

    async def main() -> None:
        scopes = [trio.CancelScope() for _ in range(3)]

        async def sleeper(number: int) -> None:
            with scopes[number]:
                for _ in range(2):
                    await rest(3.0)
                    woken.append((number, trio.current_time()))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(sleeper, number)
            await trio.sleep(1.5)
            scopes[cancelled].cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sorted(woken) == [(number, at) for number in range(3) if number != cancelled for at in (3.0, 6.0)]


@pytest.mark.parametrize(
    ("now_s", "rest_s", "shared_s"),
    [
        (10.0, 1.0, 11.0),
        (10.3, 1.0, 11.0),
        (10.9, 10.0, 20.0),
        (11.9, 10.0, 20.0),
        (11.9, 2.0, 12.0),
        (11.9, 5.0, 16.0),
        (10.3, 0.5, 10.5),
        (10.3, 0.1, 10.4),
        (10.0, 0.7, 10.5),
    ],
)
def test_a_shared_time_is_at_the_end_of_a_rest_or_shortly_before(now_s: float, rest_s: float, shared_s: float) -> None:
    assert shared_time(now_s, rest_s) == pytest.approx(shared_s)


def test_a_duty_that_takes_long_rests_for_its_interval() -> None:
    times: list[float] = []

    async def work() -> None:
        times.append(trio.current_time())
        await trio.sleep(0.75)

    play([Duty("long", 1.0, work, first_s=0.0)], 6.0)
    assert times == [0.0, 1.75, 3.5, 5.25]
