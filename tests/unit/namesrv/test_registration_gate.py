"""One registration at a time, and no more waiting than there is room for."""

from __future__ import annotations

import contextlib
import gc

import pytest
import trio
import trio.testing

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.namesrv.registration_gate import LARGE_BYTES, RegistrationGate


def test_turns_come_one_by_one_in_order() -> None:
    gate, order, inside = RegistrationGate(), [], 0

    async def register(number: int) -> None:
        nonlocal inside
        async with gate.turn(number, 10):
            inside += 1
            assert inside == 1
            await trio.lowlevel.checkpoint()
            order.append(number)
            inside -= 1

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(register, number)
                await trio.testing.wait_all_tasks_blocked()

    trio.run(main)
    assert order == list(range(20))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((1, 10), (1, 10), "at most 1 per connection"),
        ((1, 60), (2, 60), "60 bytes, at most 100"),
        ((1, 60), (2, 40), None),
        ((1, 0), (2, 200), None),
    ],
)
def test_what_is_beyond_is_refused(first: tuple[int, int], second: tuple[int, int], reason: str | None) -> None:
    gate = RegistrationGate(per_connection_max=1, bytes_max=100)
    refused: list[RequestRefused] = []

    async def other() -> None:
        try:
            async with gate.turn(*second):
                pass
        except RequestRefused as exc:
            refused.append(exc)

    async def main() -> None:
        async with trio.open_nursery() as nursery, gate.turn(*first):
            nursery.start_soon(other)
            await trio.testing.wait_all_tasks_blocked()
        await other()  # now there is room

    trio.run(main)
    assert [exc.response_code for exc in refused] == ([ResponseCode.SYSTEM_BUSY] if reason else [])
    assert not refused or str(refused[0]).endswith(reason or "")


def test_the_collector_rests_during_a_large_registration_only() -> None:
    gate, seen = RegistrationGate(), []

    async def main() -> None:
        for size in (10, LARGE_BYTES + 1):
            with contextlib.suppress(ValueError):
                async with gate.turn(1, size):
                    seen.append(gc.isenabled())
                    raise ValueError
            seen.append(gc.isenabled())

    trio.run(main)
    assert seen == [True, True, False, True]
