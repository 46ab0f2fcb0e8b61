"""Responses that answer no request: few are dropped, many close their connection, and access control learns of them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import RequestTimeout
from rocketpy.reactor.channel import CALLS_PER_CONNECTION_MAX, Gateway
from rocketpy.reactor.topology import SelectorDeaths
from rocketpy.reactor.unasked import OVERDUE_MAX, UNASKED_MAX, WINDOW_S, UnaskedResponses
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support import ring_messages
from tests.support.request_bench import CONNECTION, OTHER, Bench, complete


@attrs.define(eq=False)
class Guard:
    """Allows every request."""

    distrusted: list[str] = attrs.field(factory=list)
    version: int = 0

    def check(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None: ...

    def is_long(self, request: RemotingCommand) -> bool:
        return False

    async def check_long(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None: ...

    def check_fast(self, request: RemotingCommand, host: str, topic: str, group: str, *, is_counted: bool) -> None: ...

    def distrust(self, host: str) -> None:
        self.distrusted.append(host)


def response(opaque: int) -> RemotingCommand:
    return attrs.evolve(RemotingCommand.response(0), opaque=opaque)


async def answer(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    return RemotingCommand.response(0)


@pytest.mark.parametrize("has_accounts", [True, False])
def test_many_responses_to_nothing_close_their_connection(open_bench: Callable[..., Bench], has_accounts: bool) -> None:
    """Fault: Two strangers who sent responses to nothing made clients wait ten seconds for the manager."""
    bench, guard = open_bench({1: answer}), Guard()
    if has_accounts:
        bench.server.handlers = attrs.evolve(bench.server.handlers, access=guard)

    async def scene() -> None:
        for n in range(UNASKED_MAX - 1):
            bench.command(response(n))
        bench.request(1, 1)
        bench.command(response(5), connection=OTHER)
        await complete()
        assert [one.code for one in bench.commands()] == [0], "few are dropped"
        for n in range(20):
            bench.command(response(n))
        bench.request(1, 2)
        await complete()
        assert bench.replies() == ["close"], "what follows is dropped"
        assert guard.distrusted == (["127.0.0.1"] * (UNASKED_MAX + 1) if has_accounts else [])
        bench.closed()
        await complete()
        assert bench.server.gateway.known() == [OTHER] and not bench.server.gateway.unasked.cut

    bench.run(scene)


def test_a_command_that_cannot_be_read_counts_against_its_address(open_bench: Callable[..., Bench]) -> None:
    bench, guard = open_bench({}), Guard()
    bench.server.handlers = attrs.evolve(bench.server.handlers, access=guard)

    async def scene() -> None:
        bench.write(WorkerMessage.COMMAND, ring_messages.origin_record(Bench.origin()) + b"\0\0\0\1{")
        await complete()
        assert bench.replies() == ["close"]
        assert guard.distrusted == ["127.0.0.1"]

    bench.run(scene)


def test_late_answers_of_calls_that_timed_out_are_no_offence() -> None:
    """As of a client that stood still while many replies were pushed to it."""
    gateway = Gateway([])
    asked: list[int] = []

    async def call() -> None:
        with pytest.raises(RequestTimeout):
            await gateway.call(CONNECTION, RemotingCommand.request(326), 3.0)

    async def scene() -> None:
        while len(asked) < 2 * UNASKED_MAX:
            async with trio.open_nursery() as nursery:
                for _ in range(CALLS_PER_CONNECTION_MAX):
                    nursery.start_soon(call)
                await trio.testing.wait_all_tasks_blocked()
                asked.extend(gateway._calls[CONNECTION])

    trio.run(scene, clock=trio.testing.MockClock(autojump_threshold=0.01))
    assert not gateway.answered(OTHER, response(asked[0])), "it was not asked"
    assert all(gateway.answered(CONNECTION, response(opaque)) for opaque in asked)
    assert not gateway.answered(CONNECTION, response(asked[0])), "each answers once"


def test_a_count_ends_with_its_window() -> None:
    now_s = [0.0]
    unasked = UnaskedResponses(lambda: now_s[0])
    for _ in range(3):
        assert not any(unasked.add(7) for _ in range(UNASKED_MAX - 1))
        now_s[0] += WINDOW_S
    assert [unasked.add(7) for _ in range(UNASKED_MAX)][-1]
    assert unasked.cut == {7}


def test_the_oldest_calls_are_forgotten() -> None:
    unasked = UnaskedResponses()
    for opaque in range(OVERDUE_MAX + 1):
        unasked.expect(7, opaque)
    assert not unasked.is_late(7, 0)
    assert unasked.is_late(7, 1) and unasked.is_late(7, OVERDUE_MAX)


def test_the_count_of_a_connection_ends_with_its_selector(open_bench: Callable[..., Bench]) -> None:
    """Also when a response of it was still on its way."""
    bench = open_bench({})
    gone: set[int] = set()
    selector = bench.blocks[2]
    bench.server.gateway.deaths = SelectorDeaths([selector], lambda connection: connection in gone)

    async def scene() -> None:
        bench.command(response(1))
        await complete()
        assert bench.server.gateway.known() == [CONNECTION]
        gone.add(CONNECTION)
        selector.begin(0)
        bench.command(response(2))
        await complete()
        bench.command(response(3))
        await complete()
        assert bench.server.gateway.known() == []

    bench.run(scene)
