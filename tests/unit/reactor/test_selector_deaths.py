"""A killed selector sends no CLOSED: the manager drops its connections when it sees the restarted selector."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.pools import Pool
from rocketpy.reactor.topology import STEPS_PER_TURN, ReactorSizes, SelectorDeaths, Topology
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.request_bench import CONNECTION, Bench, SlowPathLog, complete


@pytest.fixture
def topology() -> Iterator[Topology]:
    topology = Topology.create(ReactorSizes(selector_workers=2, ring_bytes=65536))
    yield topology
    for block in topology.blocks.values():
        os.close(block.doorbell)
    for ends in topology.handoffs.values():
        for end in ends:
            end.close()


def test_the_number_of_a_connection_says_which_life_of_its_selector_it_is_from(topology: Topology) -> None:
    block = topology.blocks["selector-1"]
    for life in range(1, 5000, 700):
        while block.epoch < life:
            block.begin(0)
        number = 1 << 56 | 7 << 32 | (life << 20 & 0xFFFFFFFF) | 0xFFFFF
        assert not topology.is_connection_gone(number)
        assert topology.is_connection_gone(number ^ 1 << 20), "of another life"
    assert topology.is_connection_gone(9 << 56), "there is no such selector"


def test_a_death_is_seen_once_and_worked_off_in_steps(topology: Topology) -> None:
    block, done = topology.blocks["selector-0"], []
    deaths = SelectorDeaths([block])

    def forget() -> Iterator[None]:
        for n in range(STEPS_PER_TURN + 10):
            done.append(n)
            yield

    assert not deaths.turn(forget)
    block.begin(0)
    assert deaths.turn(forget) and len(done) == STEPS_PER_TURN
    assert deaths.turn(forget) and len(done) == STEPS_PER_TURN + 10
    assert not deaths.turn(forget)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    opened: list[Bench] = []

    def open_bench(handlers: dict) -> Bench:  # type: ignore[type-arg]  # of handlers
        opened.append(Bench.open((Pool(name="only", tasks=2, queue_max=10),), handlers))
        return opened[-1]

    yield open_bench
    for one in opened:
        one.close()


def test_a_dead_selectors_connections_are_forgotten_when_their_requests_are_served(
    bench: Callable[..., Bench],
) -> None:
    gate, is_gone = trio.Event(), [False]

    async def register(request: RemotingCommand, channel: Channel) -> None:
        await gate.wait()
        rig.slow_path.told.append("registered")

    rig = bench({34: register})
    selector = rig.blocks[2]
    rig.server.gateway.deaths = SelectorDeaths([selector], lambda number: is_gone[0])

    async def scene() -> None:
        rig.request(34, 1, oneway=True)
        await complete()
        is_gone[0] = True
        selector.begin(0)
        rig.blocks[1].wake(force=True)  # as the supervisor does
        await complete()
        assert rig.slow_path.told == ["dropping", "dropped True"]
        gate.set()
        await complete()
        assert rig.slow_path.told[2:] == ["registered", CONNECTION]
        rig.request(34, 2, oneway=True)  # was on its way when the selector died
        await complete()
        assert rig.slow_path.told[4:] == ["registered", CONNECTION]

    rig.run(scene)


def test_calls_to_clients_of_a_dead_selector_fail_at_once(bench: Callable[..., Bench]) -> None:
    failed: list[str] = []

    async def ask_back(request: RemotingCommand, channel: Channel) -> None:
        try:
            await channel.invoke(RemotingCommand.request(307), 60.0)
        except Exception as exc:
            failed.append(type(exc).__name__)

    rig = bench({1: ask_back})
    rig.server.gateway.deaths = SelectorDeaths([rig.blocks[2]], lambda number: True)

    async def scene() -> None:
        rig.request(1, 1)
        await complete()
        rig.blocks[2].begin(0)
        rig.blocks[1].wake(force=True)
        await complete()
        assert failed == ["ConnectionLost"]

    rig.run(scene)


def test_what_a_manager_died_at_is_still_in_the_ring(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: The end of a connection was lost if the manager died while taking it from the ring."""

    class Death(BaseException):
        """kill -9."""

    def die(slow_path: SlowPathLog, connection: int) -> None:
        raise Death

    rig = bench({})
    rig.closed()
    with monkeypatch.context() as patch:
        patch.setattr(SlowPathLog, "connection_closed", die)
        with pytest.raises(Death):
            rig.server.turn()
    rig.server.turn()
    assert rig.slow_path.told == [CONNECTION]
