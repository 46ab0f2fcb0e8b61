"""StreamChannel over memory streams and a clock that jumps."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock, memory_stream_pair

from rocketpy.errors import ConnectionLost, RequestTimeout, TooManyRequests
from rocketpy.remoting.abc import Channel, Peer, Processor
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.channel import ChannelLimits, ChannelOwner, StreamChannel


class Echo:
    """Answers with the request's body; code 11 after it is told to."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.active = 0
        self.active_max = 0

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        self.active += 1
        self.active_max = max(self.active, self.active_max)
        try:
            if request.code == 11:
                await self.go.wait()
            return RemotingCommand.response(0, None, body=request.body)
        finally:
            self.active -= 1


def channel(stream: trio.abc.Stream, processor: Processor, limits: ChannelLimits | None = None) -> StreamChannel:
    owner = ChannelOwner(RequestTable({10: processor, 11: processor}), limits or ChannelLimits())
    return StreamChannel(stream, owner, connection=1, peer=Peer("10.0.0.1", 5))


class Pair:
    """Two channels that talk to each other, and their tasks."""

    def __init__(self, nursery: trio.Nursery, limits: ChannelLimits | None = None) -> None:
        self.near_stream, self.far_stream = memory_stream_pair()
        self.near_echo, self.far_echo = Echo(), Echo()
        self.near = channel(self.near_stream, self.near_echo, limits)
        self.far = channel(self.far_stream, self.far_echo, limits)
        nursery.start_soon(self.near.run)
        nursery.start_soon(self.far.run)


def run(test: object) -> None:
    trio.run(test, clock=MockClock(autojump_threshold=0))  # type: ignore[arg-type]  # a coroutine function


def test_requests_in_both_directions_overtake_each_other() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            done: list[str] = []

            async def ask(one: StreamChannel, code: int, name: str) -> None:
                response = await one.invoke(RemotingCommand.request(code, body=name.encode()), 5)
                assert response.body == name.encode()
                done.append(name)

            async with trio.open_nursery() as asking:
                asking.start_soon(ask, pair.near, 11, "held")
                await trio.testing.wait_all_tasks_blocked()
                await ask(pair.near, 10, "quick")
                await ask(pair.far, 10, "back")
                pair.far_echo.go.set()
            assert done == ["quick", "back", "held"]
            assert pair.near.in_flight_count == 0
            nursery.cancel_scope.cancel()

    run(main)


def test_response_that_does_not_come() -> None:
    """Holds: trap, a client's timeout closes the shared connection."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            started_s = trio.current_time()
            with pytest.raises(RequestTimeout, match="3000 ms"):
                await pair.near.invoke(RemotingCommand.request(11), 3)
            assert trio.current_time() - started_s == pytest.approx(3)
            assert pair.near.in_flight_count == 0
            pair.far_echo.go.set()
            assert (await pair.near.invoke(RemotingCommand.request(10, body=b"x"), 3)).body == b"x"
            nursery.cancel_scope.cancel()

    run(main)


def test_requests_that_are_sent_together_are_answered_in_their_order() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            requests = [RemotingCommand.request(10 + number % 2, body=b"%d" % number) for number in range(9)]
            answers: list[RemotingCommand] = []

            async def ask() -> None:
                answers.extend(await pair.near.invoke_all(requests, 5))

            async with trio.open_nursery() as asking:
                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                assert not answers and pair.near.in_flight_count == 4, "those of code 11 are held"
                pair.far_echo.go.set()
            assert [answer.body for answer in answers] == [b"%d" % number for number in range(9)]
            nursery.cancel_scope.cancel()

    run(main)


def test_requests_together_of_which_one_is_not_answered() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            requests = [RemotingCommand.request(code) for code in (10, 11, 10)]
            with pytest.raises(RequestTimeout, match="3000 ms"):
                await pair.near.invoke_all(requests, 3)
            assert pair.near.in_flight_count == 0
            nursery.start_soon(close_when_quiet, pair.far)
            with pytest.raises(ConnectionLost):
                await pair.near.invoke_all(requests, 60)
            nursery.cancel_scope.cancel()

    async def close_when_quiet(far: StreamChannel) -> None:
        await trio.testing.wait_all_tasks_blocked()
        far.close()

    run(main)


def test_too_many_requests_together_are_not_sent() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(in_flight_max=2))
            with pytest.raises(TooManyRequests):
                await pair.near.invoke_all([RemotingCommand.request(10) for _ in range(3)], 3)
            assert pair.near.in_flight_count == 0
            assert len(await pair.near.invoke_all([RemotingCommand.request(10) for _ in range(2)], 3)) == 2
            nursery.cancel_scope.cancel()

    run(main)


def test_lost_connection_wakes_all_who_wait() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            lost: list[ConnectionLost] = []

            async def ask() -> None:
                with pytest.raises(ConnectionLost) as caught:
                    await pair.near.invoke(RemotingCommand.request(11), 60)
                lost.append(caught.value)

            async with trio.open_nursery() as asking:
                asking.start_soon(ask)
                asking.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                pair.far.close()
            assert len(lost) == 2 and trio.current_time() < 30
            assert not pair.near.is_open and not pair.far.is_open
            with pytest.raises(ConnectionLost):
                await pair.near.invoke(RemotingCommand.request(10), 1)
            pair.near.push(RemotingCommand.oneway(10))

    run(main)


def test_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery)
            start_s = trio.current_time()
            await trio.sleep(100)
            await pair.near.invoke(RemotingCommand.request(10), 5)
            await trio.sleep(100)
            assert pair.near.is_open and pair.far.is_open
        assert trio.current_time() - start_s == pytest.approx(220)

    run(main)


def test_requests_in_work_are_bounded() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(requests_max=2))
            async with trio.open_nursery() as asking:
                for _ in range(5):
                    asking.start_soon(pair.near.invoke, RemotingCommand.request(11), 5)
                await trio.testing.wait_all_tasks_blocked()
                assert pair.far_echo.active == 2
                pair.far_echo.go.set()
            assert pair.far_echo.active_max == 2
            nursery.cancel_scope.cancel()

    run(main)


def test_our_requests_are_bounded() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(in_flight_max=1))
            nursery.start_soon(pair.near.invoke, RemotingCommand.request(11), 5)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyRequests):
                await pair.near.invoke(RemotingCommand.request(10), 5)
            pair.far_echo.go.set()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    run(main)


def test_choked_peer_costs_bounded_memory_and_can_be_closed() -> None:
    async def main() -> None:
        near, _far = memory_stream_pair()
        blocked = trio.Event()

        async def never_sends() -> None:
            blocked.set()
            await trio.sleep_forever()

        near.send_stream.send_all_hook = never_sends
        one = channel(near, Echo(), ChannelLimits(outgoing_size_max=1000, close_flush_s=1.0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            one.push(RemotingCommand.oneway(10, body=bytes(500)))
            await blocked.wait()
            for _ in range(100):
                one.push(RemotingCommand.oneway(10, body=bytes(500)))
            assert len(one._outgoing) < 2000
            with pytest.raises(RequestTimeout):
                await one.invoke(RemotingCommand.request(10), 2)
            closed_at_s = trio.current_time()
            one.close()
        assert trio.current_time() - closed_at_s == pytest.approx(1)

    run(main)


def test_close_lets_out_what_is_queued() -> None:
    async def main() -> None:
        near, far = memory_stream_pair()
        one = channel(near, Echo())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            one.push(RemotingCommand.oneway(10, body=b"last words"))
            one.close()
        received = bytearray()
        while data := await far.receive_some():
            received += data
        assert RemotingCommand.decode(bytes(received)).body == b"last words"

    run(main)


def test_garbage_closes_the_connection_without_an_answer() -> None:
    async def main() -> None:
        near, far = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel(near, Echo()).run)
            await far.send_all(b"GET / HTTP/1.1\r\n\r\n")
            assert await far.receive_some() == b""

    run(main)


def test_response_too_large_for_a_frame_becomes_an_error() -> None:
    class Huge:
        async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
            return RemotingCommand.response(0, None, body=bytes(17_000_000))

    async def main() -> None:
        near, far = memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel(near, Huge()).run)
            asking = channel(far, Echo())
            nursery.start_soon(asking.run)
            response = await asking.invoke(RemotingCommand.request(10), 5)
            assert response.code == 1 and "17000" in str(response.remark)
            nursery.cancel_scope.cancel()

    run(main)
