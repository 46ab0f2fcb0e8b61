"""StreamChannel over memory streams and a clock that jumps."""

import pytest

from rocketpy import aio
from rocketpy.errors import ConnectionLost, RequestTimeout, TooManyRequests
from rocketpy.remoting.abc import Channel, Processor
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.byte_stream import ByteStream, Receiver
from rocketpy.transport.channel import ChannelOwner, StreamChannel
from rocketpy.transport.limits import ChannelLimits
from tests.support.loops import run, settled
from tests.support.memory_streams import Collected, memory_streams

pytestmark = pytest.mark.usefixtures("backend")


class Echo:
    """Answers with the request's body; code 11 after it is told to."""

    def __init__(self) -> None:
        self.go = aio.Event()
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


def channel(stream: ByteStream, processor: Processor, limits: ChannelLimits | None = None) -> StreamChannel:
    owner = ChannelOwner(RequestTable({10: processor, 11: processor}), limits or ChannelLimits())
    return StreamChannel(stream, owner, connection=1)


class Pair:
    """Two channels that talk to each other, and their tasks."""

    def __init__(self, nursery: aio.OpenNursery, limits: ChannelLimits | None = None) -> None:
        self.near_stream, self.far_stream = memory_streams()
        self.near_echo, self.far_echo = Echo(), Echo()
        self.near = channel(self.near_stream, self.near_echo, limits)
        self.far = channel(self.far_stream, self.far_echo, limits)
        nursery.start_soon(self.near.run)
        nursery.start_soon(self.far.run)


def test_requests_in_both_directions_overtake_each_other() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            done: list[str] = []

            async def ask(one: StreamChannel, code: int, name: str) -> None:
                response = await one.invoke(RemotingCommand.request(code, body=name.encode()), 5)
                assert response.body == name.encode()
                done.append(name)

            async with aio.open_nursery() as asking:
                asking.start_soon(ask, pair.near, 11, "held")
                await settled()
                await ask(pair.near, 10, "quick")
                await ask(pair.far, 10, "back")
                pair.far_echo.go.set()
            assert done == ["quick", "back", "held"]
            assert pair.near.in_flight_count == 0
            nursery.cancel()

    run(main)


def test_response_that_does_not_come() -> None:
    """Holds: trap, a client's timeout closes the shared connection."""

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            started_s = aio.now_s()
            with pytest.raises(RequestTimeout, match="3000 ms"):
                await pair.near.invoke(RemotingCommand.request(11), 3)
            assert aio.now_s() - started_s == pytest.approx(3)
            assert pair.near.in_flight_count == 0
            pair.far_echo.go.set()
            assert (await pair.near.invoke(RemotingCommand.request(10, body=b"x"), 3)).body == b"x"
            nursery.cancel()

    run(main)


def test_requests_that_are_sent_together_are_answered_in_their_order() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            requests = [RemotingCommand.request(10 + number % 2, body=b"%d" % number) for number in range(9)]
            answers: list[RemotingCommand] = []

            async def ask() -> None:
                answers.extend(await pair.near.invoke_all(requests, 5))

            async with aio.open_nursery() as asking:
                asking.start_soon(ask)
                await settled()
                assert not answers and pair.near.in_flight_count == 4, "those of code 11 are held"
                pair.far_echo.go.set()
            assert [answer.body for answer in answers] == [b"%d" % number for number in range(9)]
            nursery.cancel()

    run(main)


@pytest.mark.parametrize("turns", range(4))
def test_requests_that_wait_when_the_stream_ends_are_not_begun(turns: int, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A request that waited for its turn was begun in a nursery that was closed, with a traceback in the log."""

    async def main() -> None:
        near, far = memory_streams()
        requests = b"".join(RemotingCommand.request(10).encode() for _ in range(3))

        async def run_shortly(receiver: Receiver, receive_size: int) -> None:
            receiver.received(requests)
            for _ in range(turns):
                await aio.sleep(0)

        far.run = run_shortly  # type: ignore[method-assign]
        await channel(far, Echo()).run()
        await settled()
        near.abort()

    run(main)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_requests_together_of_which_one_is_not_answered() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            requests = [RemotingCommand.request(code) for code in (10, 11, 10)]
            with pytest.raises(RequestTimeout, match="3000 ms"):
                await pair.near.invoke_all(requests, 3)
            assert pair.near.in_flight_count == 0
            nursery.start_soon(close_when_quiet, pair.far)
            with pytest.raises(ConnectionLost):
                await pair.near.invoke_all(requests, 60)
            nursery.cancel()

    async def close_when_quiet(far: StreamChannel) -> None:
        await settled()
        far.close()

    run(main)


def test_too_many_requests_together_are_not_sent() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(in_flight_max=2))
            with pytest.raises(TooManyRequests):
                await pair.near.invoke_all([RemotingCommand.request(10) for _ in range(3)], 3)
            assert pair.near.in_flight_count == 0
            assert len(await pair.near.invoke_all([RemotingCommand.request(10) for _ in range(2)], 3)) == 2
            nursery.cancel()

    run(main)


def test_lost_connection_wakes_all_who_wait() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            lost: list[ConnectionLost] = []

            async def ask() -> None:
                with pytest.raises(ConnectionLost) as caught:
                    await pair.near.invoke(RemotingCommand.request(11), 60)
                lost.append(caught.value)

            async with aio.open_nursery() as asking:
                asking.start_soon(ask)
                asking.start_soon(ask)
                await settled()
                pair.far.close()
            assert len(lost) == 2 and aio.now_s() < 30
            assert not pair.near.is_open and not pair.far.is_open
            with pytest.raises(ConnectionLost):
                await pair.near.invoke(RemotingCommand.request(10), 1)
            pair.near.push(RemotingCommand.oneway(10))

    run(main)


def test_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery)
            start_s = aio.now_s()
            await aio.sleep(100)
            await pair.near.invoke(RemotingCommand.request(10), 5)
            await aio.sleep(100)
            assert pair.near.is_open and pair.far.is_open
        assert aio.now_s() - start_s == pytest.approx(220)

    run(main)


def test_requests_in_work_are_bounded() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(requests_max=2))
            async with aio.open_nursery() as asking:
                for _ in range(5):
                    asking.start_soon(pair.near.invoke, RemotingCommand.request(11), 5)
                await settled()
                assert pair.far_echo.active == 2
                pair.far_echo.go.set()
            assert pair.far_echo.active_max == 2
            nursery.cancel()

    run(main)


def test_requests_in_work_are_bounded_in_bytes_for_a_client_too() -> None:
    """Fault: A broker that sent large requests, whose handlers take long, made a client hold 1024 of 16 MiB each."""

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(requests_size_max=100_000))
            async with aio.open_nursery() as asking:
                for _ in range(5):
                    asking.start_soon(pair.near.invoke, RemotingCommand.request(11, body=bytes(40_000)), 5)
                await settled()
                assert pair.far_echo.active == 2
                pair.far_echo.go.set()
            assert pair.far_echo.active_max == 2
            nursery.cancel()

    run(main)


def test_our_requests_are_bounded() -> None:
    async def main() -> None:
        async with aio.open_nursery() as nursery:
            pair = Pair(nursery, ChannelLimits(in_flight_max=1))
            nursery.start_soon(pair.near.invoke, RemotingCommand.request(11), 5)
            await settled()
            with pytest.raises(TooManyRequests):
                await pair.near.invoke(RemotingCommand.request(10), 5)
            pair.far_echo.go.set()
            await settled()
            nursery.cancel()

    run(main)


def test_choked_peer_costs_bounded_memory_and_can_be_closed() -> None:
    async def main() -> None:
        near, _far = memory_streams()
        one = channel(near, Echo(), ChannelLimits(outgoing_size_max=1000, close_flush_s=1.0))
        async with aio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            for _ in range(100):
                one.push(RemotingCommand.oneway(10, body=bytes(500)))
            assert near.unsent_size < 2000
            with pytest.raises(RequestTimeout):
                await one.invoke(RemotingCommand.request(10), 2)
            with pytest.raises(RequestTimeout):
                await one.invoke_all([RemotingCommand.request(10)] * 2, 2)
            closed_at_s = aio.now_s()
            one.close()
        assert aio.now_s() - closed_at_s == pytest.approx(1)

    run(main)


def test_who_waits_for_room_goes_on_when_the_peer_reads() -> None:
    async def main() -> None:
        near, far = memory_streams()
        one = channel(near, Echo(), ChannelLimits(outgoing_size_max=1000))
        near.is_choked = True
        async with aio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            nursery.start_soon(channel(far, Echo()).run)
            one.push(RemotingCommand.oneway(10, body=bytes(1500)))
            nursery.start_soon(one.send, RemotingCommand.oneway(10))
            nursery.start_soon(one.invoke, RemotingCommand.request(10), 100)
            await settled()
            assert one.in_flight_count == 0
            near.is_choked = False
            far.resume()
            assert (await one.invoke(RemotingCommand.request(10, body=b"x"), 5)).body == b"x"
            nursery.cancel()

    run(main)


def test_close_lets_out_what_is_queued() -> None:
    async def main() -> None:
        near, far = memory_streams()
        one, received = channel(near, Echo()), Collected()
        async with aio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            one.push(RemotingCommand.oneway(10, body=b"last words"))
            one.close()
            await far.run(received, 1000)
        assert RemotingCommand.decode(received.data).body == b"last words"

    run(main)


def test_garbage_closes_the_connection_without_an_answer() -> None:
    async def main() -> None:
        near, far = memory_streams()
        received = Collected()
        async with aio.open_nursery() as nursery:
            nursery.start_soon(channel(near, Echo()).run)
            far.write(b"GET / HTTP/1.1\r\n\r\n")
            await far.run(received, 1000)
        assert received.data == b""

    run(main)


def test_response_too_large_for_a_frame_becomes_an_error() -> None:
    class Huge:
        async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
            return RemotingCommand.response(0, None, body=bytes(17_000_000))

    async def main() -> None:
        near, far = memory_streams()
        async with aio.open_nursery() as nursery:
            nursery.start_soon(channel(near, Huge()).run)
            asking = channel(far, Echo())
            nursery.start_soon(asking.run)
            response = await asking.invoke(RemotingCommand.request(10), 5)
            assert response.code == 1 and "17000" in str(response.remark)
            nursery.cancel()

    run(main)
