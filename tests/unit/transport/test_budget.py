"""What connections hold in memory: bounded for each, and for all of a server together, which runs under trio alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trio.testing

from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport import server as server_module
from rocketpy.transport.limits import Budget, ChannelLimits
from rocketpy.transport.server import RemotingServer


@attrs.define(eq=False)
class Holding:
    budget: Budget
    has_given_up: bool = False

    def give_up(self) -> None:
        self.has_given_up = True

    def hold(self, size: int) -> None:
        self.budget.hold(self, size)


def test_who_holds_most_gives_up() -> None:
    """Fault: One connection of a name server could hold gigabytes of requests and replies."""
    budget = Budget(100)
    small, large, other = Holding(budget), Holding(budget), Holding(budget)
    small.hold(20)
    large.hold(60)
    large.hold(50)
    other.hold(30)
    assert budget.used_bytes == 100 and not any(one.has_given_up for one in (small, large, other))
    small.hold(21)
    assert large.has_given_up and budget.used_bytes == 51
    other.hold(0)
    small.hold(101)
    assert small.has_given_up and not other.has_given_up and budget.used_bytes == 0


@attrs.define
class Service:
    """Answers with `answer_size` bytes, once `gate` is open."""

    answer_size: int = 1
    gate: trio.Event = attrs.field(factory=trio.Event)
    begun: int = 0

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self.begun += 1
        await self.gate.wait()
        return RemotingCommand.response(0, body=bytes(self.answer_size))


def play(
    service: Service, scene: Callable[[Callable[[], trio.abc.Stream]], Awaitable[None]], bytes_max: int = 1 << 30
) -> RemotingServer:
    """Run `scene` with a function that connects; the server's ends of the streams hold a few bytes only."""
    limits = ChannelLimits(outgoing_size_max=1000, requests_size_max=10_000)
    server = RemotingServer(RequestTable({10: service}), limits=limits, bytes_max=bytes_max)

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            def connect() -> trio.abc.Stream:
                ours, theirs = trio.testing.lockstep_stream_pair()
                nursery.start_soon(server.serve_stream, theirs)
                return ours

            await scene(connect)
            nursery.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "peer_of", lambda _: Peer("10.0.0.1", 1))
        patch.setattr(server_module, "reset_at_death", lambda _: None)
        trio.run(main, clock=trio.testing.MockClock())
    return server


def request(size: int) -> bytes:
    return RemotingCommand.request(10, body=bytes(size)).encode()


def test_requests_in_work_are_bounded_in_bytes() -> None:
    service = Service()

    async def scene(connect: Callable[[], trio.abc.Stream]) -> None:
        async with trio.open_nursery() as nursery:
            stream = connect()
            nursery.start_soon(stream.send_all, request(50_000) + request(1))
            await trio.testing.wait_all_tasks_blocked()
            assert service.begun == 1, "a single one always fits, the next has to wait"
            service.gate.set()
            await stream.receive_some(10_000)
            await trio.testing.wait_all_tasks_blocked()
            assert service.begun == 2
            nursery.cancel_scope.cancel()

    play(service, scene)


def test_nothing_is_begun_for_a_peer_that_does_not_read() -> None:
    service = Service(answer_size=2_000)
    service.gate.set()

    async def scene(connect: Callable[[], trio.abc.Stream]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect().send_all, request(1) * 100)
            await trio.testing.wait_all_tasks_blocked()
            assert 1 <= service.begun <= 4
            nursery.cancel_scope.cancel()

    play(service, scene)


def test_responses_that_wait_for_room_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: 72 kB of requests could hold hundreds of megabytes of responses that no bound knew."""
    service = Service(answer_size=2_000)
    budget = Budget(1 << 30)
    monkeypatch.setattr(server_module, "Budget", lambda bytes_max: budget)

    async def scene(connect: Callable[[], trio.abc.Stream]) -> None:
        async with trio.open_nursery() as nursery:
            stream = connect()
            nursery.start_soon(stream.send_all, request(1) * 5)
            await trio.testing.wait_all_tasks_blocked()
            assert service.begun == 5
            service.gate.set()
            await trio.testing.wait_all_tasks_blocked()
            assert budget.used_bytes > 4 * service.answer_size
            while budget.used_bytes > 0:
                await stream.receive_some(10_000)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    play(service, scene)


def test_many_that_send_and_never_end_cost_no_other_its_connection() -> None:
    service = Service()
    service.gate.set()

    async def scene(connect: Callable[[], trio.abc.Stream]) -> None:
        async with trio.open_nursery() as nursery:
            good = connect()
            for size in range(20):
                half = request(50_000)[: 30_000 + size]
                nursery.start_soon(send, connect(), half)
            await trio.testing.wait_all_tasks_blocked()
            await good.send_all(request(1))
            assert len(await good.receive_some(10_000)) > 0
            assert server_used() <= 100_000
            nursery.cancel_scope.cancel()

    used: list[Budget] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "Budget", lambda bytes_max: used.append(Budget(bytes_max)) or used[-1])

        def server_used() -> int:
            return used[0].used_bytes

        server = play(service, scene, 100_000)
    assert server._owner.table.refused.counts == {"serving a connection": 17}
    assert server._owner.table.faults.counts == {}
    assert used[0].used_bytes == 0, "what ends holds nothing"


async def send(stream: trio.abc.Stream, data: bytes) -> None:
    try:
        await stream.send_all(data)
    except trio.BrokenResourceError:
        return


def test_a_connection_that_fails_at_once_hurts_nobody() -> None:
    """Fault: A connection that failed during its set-up ended the name server."""
    service = Service()
    server = RemotingServer(RequestTable({10: service}))

    async def main() -> None:
        _, theirs = trio.testing.memory_stream_pair()
        await server.serve_stream(theirs)  # no socket: whatever is asked of it fails

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "peer_of", lambda _: Peer("10.0.0.1", 1))
        patch.setattr(server_module, "reset_at_death", lambda _: 1 / 0)
        trio.run(main)
    assert server._owner.table.faults.counts == {"a connection": 1}
