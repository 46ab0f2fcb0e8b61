"""Requests that wait for others outside of their pool: within bounds, and with an answer at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from rocketpy.errors import TooManyRequests
from rocketpy.reactor import channel as channel_module
from rocketpy.reactor.channel import Gateway
from rocketpy.reactor.detached import DetachedRequests
from rocketpy.reactor.pools import Pool
from rocketpy.remoting.abc import ASKER_MAX, Channel, Detached
from rocketpy.remoting.command import RemotingCommand
from tests.support.request_bench import CONNECTION, Bench, complete
from tests.support.request_scenes import collect, ok, play, waiting


def test_who_waits_for_a_silent_client_holds_no_task(open_bench: Callable[..., Bench]) -> None:
    """Fault: Four requests to a silent client blocked the admin pool for 10 s each time."""
    gate = trio.Event()
    bench = open_bench({1: ok, 2: waiting(gate)})

    async def scene() -> None:
        for opaque in range(10):
            bench.request(2, opaque)
        bench.request(1, 100)
        await complete()
        assert [one.opaque for one in bench.commands()] == [100]
        gate.set()
        await complete()
        finished = [(one.opaque, one.remark) for one in bench.commands()]
        assert sorted(finished) == [(opaque, "finished") for opaque in range(10)]
        assert bench.server.detached.count == 0

    play(bench, scene)


@pytest.mark.parametrize(
    ("bounds", "at_once_max", "targets", "taken"),
    [
        ({"count_max": 5}, 100, 1, 3),  # of one connection: as many as are still free
        ({"bytes_max": 9_000}, 100, 1, 4),
        ({}, 3, 1, 3),
        ({}, 3, 2, 6),
        ({}, 1000, 1, ASKER_MAX),
    ],
)
def test_beyond_a_bound_it_is_answered_busy(
    open_bench: Callable[..., Bench], bounds: dict[str, int], at_once_max: int, targets: int, taken: int
) -> None:
    gate = trio.Event()
    bench = open_bench({1: ok, 2: waiting(gate, at_once_max=at_once_max)})
    bench.server.detached = DetachedRequests(**bounds)

    async def scene() -> None:
        asked = 2 * taken + 2
        for opaque in range(asked):
            bench.command(RemotingCommand(2, opaque=opaque, body=bytes([opaque % targets]) * 1000))
            await complete()
        busy = bench.commands()
        assert {one.code for one in busy} == {ResponseCode.SYSTEM_BUSY}
        assert bench.server.detached.count == taken == asked - len(busy)
        gate.set()
        assert len(await collect(bench, taken)) == taken
        bench.command(RemotingCommand(2, opaque=0, body=bytes(1000)))
        await complete()
        assert [one.code for one in bench.commands()] == [0], "what has been answered counts no more"

    play(bench, scene)


@pytest.mark.parametrize("bounds", [{"count_max": 10}, {"bytes_max": 1000}])
def test_one_connection_leaves_room_to_others(bounds: dict[str, int]) -> None:
    """Fault: One connection with 32 MiB of replies to a silent client had all other replies refused for 10 s."""
    detached = DetachedRequests(**bounds)

    async def finish() -> None:
        """Never called."""

    def enter(asker: int) -> bool:
        return detached.enter(Detached(finish, "target", 1.0, at_once_max=100, asker_max=100), asker, 100, "reply")

    while enter(1):
        assert detached.count < 10
    assert detached.count == 5
    assert enter(2) and enter(3), "those of others are still taken"
    detached.leave(Detached(finish, "target", 1.0), 1, 100, "reply")
    assert detached.count == 6


def test_one_pools_waiting_requests_leave_room_to_those_of_another(open_bench: Callable[..., Bench]) -> None:
    gate = trio.Event()
    pools = (
        Pool(name="one", codes=(1, 2), tasks=1, queue_max=100),
        Pool(name="two", codes=(3,), tasks=1, queue_max=100),
    )
    bench = open_bench({1: ok, 2: waiting(gate), 3: waiting(gate)}, pools)
    bench.server.detached = DetachedRequests(count_max=5, bytes_max=10_000)

    async def scene() -> None:
        for opaque, code in enumerate([2] * 5 + [3] * 5):
            bench.command(RemotingCommand(code, opaque=opaque, body=bytes(1000)))
            await complete()
        assert [one.opaque for one in bench.commands()] == [3, 4, 8, 9], "refused: beyond three of each pool"
        gate.set()
        assert len(await collect(bench, 6)) == 6

    play(bench, scene)


def test_a_deadline_and_a_fault_end_the_wait_with_an_answer(open_bench: Callable[..., Bench]) -> None:
    async def fail() -> RemotingCommand:
        raise ValueError("no")

    async def process(request: RemotingCommand, channel: Channel) -> Detached:
        return Detached(fail, "x", 1000.0)

    bench = open_bench({1: ok, 2: waiting(trio.Event(), timeout_s=0.0), 3: process})

    async def scene() -> None:
        bench.request(2, 1)
        bench.request(3, 2)
        await complete()
        answers = {one.opaque: (one.code, one.remark) for one in bench.commands()}
        assert answers == {1: (1, "2: no outcome in 0 s"), 2: (1, "ValueError: no")}
        assert bench.server.detached.count == 0

    play(bench, scene)


def test_a_leaving_process_answers_who_waits(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok, 2: waiting(trio.Event())})

    async def scene() -> None:
        bench.request(2, 1)
        await complete()

    bench.run(scene)
    assert [(one.opaque, one.remark) for one in bench.commands()] == [(1, "2: the broker stops")]


def test_the_end_of_a_connection_waits_for_no_client(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok, 2: waiting(trio.Event())})

    async def scene() -> None:
        bench.request(2, 1)
        bench.closed()
        await complete()
        assert bench.slow_path.told[-1] == CONNECTION

    play(bench, scene)


def test_calls_to_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "CALLS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(channel_module, "CALLS_MAX", 3)

    async def main() -> None:
        gateway = Gateway([])
        async with trio.open_nursery() as nursery:

            async def call(connection: int) -> None:
                await gateway.call(connection, RemotingCommand.request(307), 1000.0)

            for connection in (1, 1):
                nursery.start_soon(call, connection)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyRequests):
                await call(1)
            nursery.start_soon(call, 2)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyRequests):
                await call(3)
            nursery.cancel_scope.cancel()
        with trio.move_on_after(0):
            await gateway.call(3, RemotingCommand.request(307), 1000.0)

    trio.run(main)
