"""Duties are done each interval, whatever they or others raise."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketpy.faults import Faults
from rocketpy.transport.duties import Duty, as_duty, run_duty


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
