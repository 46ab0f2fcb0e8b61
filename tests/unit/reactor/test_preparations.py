"""Requests that wait in their turn for work elsewhere: others are served, the order of each connection is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.pools import Pool
from rocketpy.remoting.abc import Channel, Preparation, Response, Rest
from rocketpy.remoting.command import RemotingCommand
from tests.support.request_bench import CONNECTION, OTHER, Bench, Handler, complete
from tests.support.request_scenes import ok, play

POOLS = (Pool(name="x", codes=(1, 2), tasks=1, queue_max=10),)
IN_TIME = "the request could not be prepared in time"


def prepared(gate: trio.Event, *, fails: bool = False, timeout_s: float = 60.0) -> Handler:
    """Prepares until the gate opens; then the request is answered with its number."""

    async def process(request: RemotingCommand, channel: Channel) -> Response:
        async def rest() -> Response:
            return RemotingCommand.response(remark=f"prepared {request.opaque}")

        async def prepare() -> Rest:
            await gate.wait()
            if fails:
                raise ValueError("no")
            return rest

        return Preparation(prepare, timeout_s)

    return process


def answers(bench: Bench) -> list[tuple[int, str | None]]:
    return [(one.opaque, one.remark) for one in bench.commands()]


def test_others_are_served_meanwhile_and_the_order_of_a_connection_is_kept(open_bench: Callable[..., Bench]) -> None:
    """Fault: Compiling SQL92 expressions of 70 connections kept all heartbeats waiting for 30 s."""
    gate = trio.Event()
    bench = open_bench({1: ok, 2: prepared(gate)}, POOLS)

    async def scene() -> None:
        bench.request(2, 10)
        bench.request(1, 11)
        bench.request(1, 20, connection=OTHER)
        await complete()
        assert [opaque for opaque, _ in answers(bench)] == [20]
        gate.set()
        await complete()
        assert answers(bench) == [(10, "prepared 10"), (11, "served")]

    play(bench, scene)


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_fails_is_answered_with_the_reason(open_bench: Callable[..., Bench], fails: bool) -> None:
    gate = trio.Event()
    if fails:
        gate.set()
    bench = open_bench({1: ok, 2: prepared(gate, fails=fails, timeout_s=0.01)}, POOLS)

    async def scene() -> None:
        bench.request(2, 10)
        bench.request(1, 11)
        await trio.sleep(0.05)
        await complete()
        (failed, served) = bench.commands()
        assert (failed.opaque, failed.code, served.opaque) == (10, 1, 11)
        assert ("ValueError" if fails else IN_TIME) in (failed.remark or "")

    play(bench, scene)


def test_the_end_of_its_connection_ends_a_preparation(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok, 2: prepared(trio.Event())}, POOLS)

    async def scene() -> None:
        bench.request(2, 10)
        bench.request(1, 11)
        await complete()
        assert bench.replies() == []
        bench.closed()
        await complete()
        assert [(one.opaque, one.remark) for one in bench.commands()] == [(10, IN_TIME), (11, "served")]
        assert bench.slow_path.told[-1] == CONNECTION, "it is told when the last request is served"

    play(bench, scene)


def test_a_server_that_stops_does_not_wait_for_preparations(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok, 2: prepared(trio.Event())}, POOLS)

    async def scene() -> None:
        bench.request(2, 10)
        bench.request(2, 11)
        bench.request(1, 12)
        await complete()

    bench.run(scene)
    assert answers(bench) == [(10, IN_TIME), (11, IN_TIME), (12, "served")]
