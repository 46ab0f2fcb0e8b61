"""RemotingClient against RemotingServer over real sockets on ports that the system picks.

A server runs under trio alone, so these tests do as well, but for those without one. Under asyncio the client's streams
are tested by test_connector.py, its connections by test_channel.py, and all of it by tests/unit/client.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from rocketpy import aio
from rocketpy.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rocketpy.networks import parse_networks
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, RequestReceived
from rocketpy.transport.byte_stream import ByteStream
from rocketpy.transport.client import RemotingClient, open_remoting_client
from rocketpy.transport.limits import ChannelLimits
from rocketpy.transport.server import RemotingServer
from rocketpy.transport.streams import connect, listening_port, open_listeners
from tests.support import loops
from tests.support.memory_streams import MemoryStream, memory_streams


class Service:
    """10 echoes; 11 asks the client back with 40; 12 breaks; 13 closes the connection."""

    def __init__(self) -> None:
        self._closed_sender, self.closed = trio.open_memory_channel[int](100)
        self.connections: set[int] = set()
        self.oneway_bodies: list[bytes | None] = []
        self.oneway_came = trio.Event()

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        self.connections.add(channel.connection)
        if request.is_oneway:
            self.oneway_bodies.append(request.body)
            self.oneway_came.set()
        if request.code == 11:
            answer = await channel.invoke(RemotingCommand.request(40, body=b"who?"), 5)
            return RemotingCommand.response(0, None, body=answer.body)
        if request.code == 12:
            raise RuntimeError("a bug in a processor")
        if request.code == 13:
            channel.close()
            return None
        return RemotingCommand.response(0, f"{channel.peer.host} {channel.is_vip}", body=request.body)

    def connection_closed(self, connection: int) -> None:
        self._closed_sender.send_nowait(connection)


class ClientSide:
    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        return RemotingCommand.response(0, None, body=b"me")


@asynccontextmanager
async def serving(
    service: Service, *, is_vip: bool = False, proxies: str = ""
) -> AsyncIterator[tuple[RemotingServer, str]]:
    server = RemotingServer(
        RequestTable(dict.fromkeys((10, 11, 12, 13), service)),
        connection_listeners=[service],
        proxies=parse_networks(proxies),
    )
    listeners = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(30):
            await nursery.start(partial(server.run, listeners, is_vip=is_vip))
            yield server, f"127.0.0.1:{listening_port(listeners[0])}"
        nursery.cancel_scope.cancel()


async def ask(client: RemotingClient, address: str, code: int, body: bytes = b"x") -> RemotingCommand:
    return await client.invoke(address, RemotingCommand.request(code, body=body), 5)


def test_many_requests_share_one_connection() -> None:
    async def main() -> None:
        service = Service()
        async with serving(service) as (server, address), open_remoting_client() as client:
            async with trio.open_nursery() as nursery:

                async def one(number: int) -> None:
                    response = await ask(client, address, 10, b"%d" % number)
                    assert (response.body, response.remark) == (b"%d" % number, "127.0.0.1 False")

                for number in range(50):
                    nursery.start_soon(one, number)
            assert len(service.connections) == 1 and len(server.channels) == 1
            assert client.addresses == (address,)

    trio.run(main)


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    """Fault: At the limit of open files a name server left new connections without an answer, as one that hangs."""

    async def main() -> None:
        async with serving(Service()) as (server, address):
            server.connections_max = 1
            async with open_remoting_client() as first:
                assert (await ask(first, address, 10)).code == 0
                stream = await connect(address)
                assert await stream.receive_some(1) == b"", "closed, not left open"
                await stream.aclose()
                assert (await ask(first, address, 10)).code == 0
            while server.channels:
                await trio.lowlevel.checkpoint()
            async with open_remoting_client() as next_one:
                assert (await ask(next_one, address, 10)).code == 0

    trio.run(main)


def test_connections_of_one_address_are_limited() -> None:
    """Fault: One address could hold all connections of a name server."""

    async def main() -> None:
        async with serving(Service()) as (server, address):
            server.address_connections_max = 2
            async with open_remoting_client() as first:
                assert (await ask(first, address, 10)).code == 0
                others = [await connect(address) for _ in range(3)]
                for stream in others[1:]:
                    with pytest.raises(trio.BrokenResourceError, match="reset by peer"):
                        await stream.receive_some(1)
                await others[0].aclose()
                while len(server.channels) > 1:
                    await trio.lowlevel.checkpoint()
                async with open_remoting_client() as next_one:
                    assert (await ask(next_one, address, 10)).code == 0
                for stream in others:
                    await stream.aclose()
            while server.channels:
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked()
            assert not server._of_address, "addresses without connections take no memory"

    trio.run(main)


def test_clients_that_their_proxy_cannot_name_are_not_one_address() -> None:
    async def main() -> None:
        async with serving(Service(), proxies="127.0.0.1") as (server, address):
            server.address_connections_max = 1
            streams = [await connect(address) for _ in range(3)]
            for stream in streams:
                await stream.send_all(b"PROXY UNKNOWN\r\n")
            while len(server.channels) < len(streams):
                await trio.lowlevel.checkpoint()
            for stream in streams:
                await stream.aclose()

    trio.run(main)


class Refusing:
    """An acceptor that accepts nothing."""

    async def accept(self, stream: trio.abc.Stream, peer: Peer, *, idle_s: float) -> trio.abc.Stream | None:
        if peer.port % 2:
            raise RuntimeError("a fault of the acceptor")
        return None


def test_a_refused_handshake_gives_its_place_back() -> None:
    async def main() -> None:
        server = RemotingServer(RequestTable({}), acceptor=Refusing())
        server.address_connections_max = 1
        listeners = await open_listeners("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, listeners)
            for _ in range(6):
                stream = await connect(f"127.0.0.1:{listening_port(listeners[0])}")
                with contextlib.suppress(trio.BrokenResourceError):
                    assert await stream.receive_some(1) == b""
                await stream.aclose()
                await trio.testing.wait_all_tasks_blocked()
                assert not server._of_address
            nursery.cancel_scope.cancel()

    trio.run(main)


class Waiting:
    """A Waiter that keeps its outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[object] = []
        self.came = trio.Event()

    def done(self) -> bool:
        return False

    def set_result(self, outcome: object, /) -> None:
        self.outcomes.append(outcome)
        self.came.set()


def test_a_request_may_wait_without_a_task() -> None:
    """Its waiter gets the response, the error, or None when the connection closes."""

    async def main() -> None:
        async with serving(Service()) as (_, address), open_remoting_client() as client:

            async def outcome(code: int, timeout_s: float) -> object:
                waiter = Waiting()
                assert client.invoke_without_task(address, RemotingCommand.request(code, body=b"x"), timeout_s, waiter)
                await waiter.came.wait()
                [found] = waiter.outcomes
                return found

            assert not client.invoke_without_task(address, RemotingCommand.request(10), 5, Waiting())  # not connected
            await ask(client, address, 10)
            response = await outcome(10, 5)
            assert isinstance(response, RemotingCommand) and response.body == b"x"
            assert isinstance(await outcome(10, 0), RequestTimeout)
            assert await outcome(13, 5) is None

    trio.run(main)


def test_large_bodies_pass() -> None:
    async def main() -> None:
        async with serving(Service()) as (_, address), open_remoting_client() as client:
            body = bytes(range(256)) * 16384
            assert (await ask(client, address, 10, body)).body == body

    trio.run(main)


def test_server_asks_back_and_errors_are_answers() -> None:
    async def main() -> None:
        service = Service()
        async with serving(service) as (_, address), open_remoting_client(processors={40: ClientSide()}) as client:
            assert (await ask(client, address, 11)).body == b"me"
            failed = await ask(client, address, 12)
            assert (failed.code, failed.remark) == (1, "RuntimeError: a bug in a processor")
            unknown = await ask(client, address, 9999)
            assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")

    trio.run(main)


def test_oneway_is_not_answered() -> None:
    async def main() -> None:
        service = Service()
        async with serving(service) as (_, address), open_remoting_client() as client:
            await client.invoke_oneway(address, RemotingCommand.oneway(10, body=b"once"), 5)
            await service.oneway_came.wait()
            assert service.oneway_bodies == [b"once"]
            assert (await client.channel(address)).in_flight_count == 0

    trio.run(main)


def test_closed_connection_is_told_and_opened_again() -> None:
    async def main() -> None:
        service = Service()
        ended: list[tuple[str, int]] = []
        async with (
            serving(service) as (_, address),
            open_remoting_client(connection_closed=lambda *end: ended.append(end)) as client,
        ):
            await ask(client, address, 10)
            with pytest.raises(ConnectionLost):
                await ask(client, address, 13)
            await ask(client, address, 10)
            assert await service.closed.receive() == 1 and ended == [(address, 1)]
            assert service.connections == {1, 2}
            (await client.channel(address)).close()
            assert client.addresses == ()
            assert await service.closed.receive() == 2

    trio.run(main)


def test_bad_connections_do_not_hurt_good_ones() -> None:
    async def main() -> None:
        service = Service()
        async with serving(service) as (_, address), open_remoting_client() as client:
            await ask(client, address, 10)
            for garbage in (b"\xff" * 20, bytes.fromhex("0000000400000005"), b"\0\0\0\x06\0\0\0\x02[]"):
                async with await connect(address) as stream:
                    await stream.send_all(garbage)
                    assert await stream.receive_some() == b""
            half_open = await connect(address)
            await half_open.send_all(b"\0\0")
            assert (await ask(client, address, 10)).body == b"x"
            await half_open.aclose()

    trio.run(main)


def test_vip_port_is_seen_by_processors() -> None:
    async def main() -> None:
        async with serving(Service(), is_vip=True) as (_, address), open_remoting_client() as client:
            assert (await ask(client, address, 10)).remark == "127.0.0.1 True"

    trio.run(main)


def test_listener_that_fails_hurts_nobody() -> None:
    class Broken(Service):
        def connection_closed(self, connection: int) -> None:
            super().connection_closed(connection)
            raise RuntimeError("a bug in a listener")

    async def main() -> None:
        service = Broken()
        async with serving(service) as (_, address), open_remoting_client() as client:
            with pytest.raises(ConnectionLost):
                await ask(client, address, 13)
            assert (await ask(client, address, 10)).body == b"x"
            assert await service.closed.receive() == 1

    trio.run(main)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:x"])
def test_nobody_listens(address: str) -> None:
    async def main() -> None:
        async with open_remoting_client() as client:
            with pytest.raises(ConnectFailed, match=address):
                await ask(client, address, 10)
            assert client._slots == {}

    loops.run(main)


@pytest.mark.usefixtures("backend")
def test_connecting_is_bounded_in_time() -> None:
    async def never(address: str) -> ByteStream:
        await aio.sleep_forever()
        raise AssertionError

    async def main() -> None:
        start_s = aio.now_s()
        async with open_remoting_client(connector=never, connect_timeout_s=3) as client:
            with pytest.raises(ConnectFailed, match="within 3 s"):
                await ask(client, "192.0.2.1:1", 10)
            with pytest.raises(ConnectFailed, match="within 1 s"):
                await client.invoke_oneway("192.0.2.1:1", RemotingCommand.oneway(10), 1)
            assert aio.now_s() == pytest.approx(start_s + 4)

    loops.run(main)


@pytest.mark.usefixtures("backend")
def test_a_connection_that_went_silent_is_replaced() -> None:
    """As after a firewall has forgotten it: what is sent is never answered, and the peer does not close it.
    Fault: A client kept a connection forgotten by a firewall for up to a quarter of an hour."""
    made: list[MemoryStream] = []

    async def silent(address: str) -> ByteStream:
        near, far = memory_streams()
        made.append(far)
        return near

    async def main() -> None:
        async with open_remoting_client(connector=silent) as client:
            for timeout_s, connections in ((3, 1), (3, 1), (3, 1), (3, 2), (9, 2), (1, 3)):
                with pytest.raises(RequestTimeout):
                    await client.invoke("192.0.2.1:1", RemotingCommand.request(10), timeout_s)
                assert len(made) == connections, f"after {aio.now_s()} s"

    loops.run(main)


@pytest.mark.usefixtures("backend")
def test_a_connection_whose_peer_reads_nothing_is_replaced() -> None:
    """As above, with more waiting to be written than a connection may hold: then a request waits for room alone."""
    made: list[MemoryStream] = []

    async def choked(address: str) -> ByteStream:
        near, far = memory_streams()
        far.is_choked = True
        made.append(near)
        return near

    async def main() -> None:
        async with open_remoting_client(connector=choked, limits=ChannelLimits(outgoing_size_max=10)) as client:
            for connections in (1, 1, 1, 2):
                with pytest.raises(RequestTimeout):
                    await client.invoke("192.0.2.1:1", RemotingCommand.request(10, body=bytes(100)), 3)
                assert len(made) == connections

    loops.run(main)


@pytest.mark.usefixtures("backend")
def test_a_connection_that_answers_others_is_kept() -> None:
    class AnswersSmallOnes:
        """A receiver."""

        def __init__(self, stream: MemoryStream) -> None:
            self.stream, self.peer = stream, Connection[None]()

        def received(self, data: bytes | bytearray) -> None:
            self.peer.receive_data(data)
            while isinstance(event := self.peer.next_event(), RequestReceived):
                if event.command.code == 10:
                    self.stream.write(self.peer.send(RemotingCommand.response(0).answering(event.command)))

        def drained(self) -> None: ...

    async def main() -> None:
        near, far = memory_streams()

        async def connector(address: str) -> ByteStream:
            return near

        async with open_remoting_client(connector=connector) as client, aio.open_nursery() as nursery:
            nursery.start_soon(far.run, AnswersSmallOnes(far), 65_536)
            nursery.start_soon(client.invoke, "192.0.2.1:1", RemotingCommand.request(11), 1000)
            for _ in range(5):
                await aio.sleep(4)
                await ask(client, "192.0.2.1:1", 10)
                with pytest.raises(RequestTimeout):
                    await client.invoke("192.0.2.1:1", RemotingCommand.request(12), 4)
            nursery.cancel()

    loops.run(main)


PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n"
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
PROXIES = [
    ("127.0.0.0/8", PROXY_LINE, "192.0.2.7"),
    ("127.0.0.1", PROXY_LOCAL, "127.0.0.1"),
    ("10.0.0.1", b"", "127.0.0.1"),
]


@pytest.mark.parametrize(("proxies", "header", "host"), PROXIES)
def test_a_request_is_that_of_whom_the_proxy_names(proxies: str, header: bytes, host: str) -> None:
    async def main() -> None:
        async with serving(Service(), proxies=proxies) as (_, address):
            stream = await connect(address)
            await stream.send_all(header + RemotingCommand.request(10, body=b"x").encode())
            answer = RemotingCommand.decode(await stream.receive_some(65536))
            assert answer.remark == f"{host} False"
            await stream.aclose()

    trio.run(main)


@pytest.mark.parametrize("start", [RemotingCommand.request(10).encode(), b"PROXY TCP4 nonsense\r\n"])
def test_a_proxy_that_does_not_say_is_disconnected(start: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(Service(), proxies="127.0.0.1") as (server, address):
            stream = await connect(address)
            await stream.send_all(start)
            with contextlib.suppress(trio.BrokenResourceError):  # what it has not read makes it a reset
                assert await stream.receive_some(1) == b""
            assert server.channels == ()
            await stream.aclose()

    trio.run(main)
    assert "(proxyProtocolFrom): bad PROXY header" in caplog.text


def test_a_proxy_that_says_nothing_is_disconnected() -> None:
    async def main() -> None:
        server = RemotingServer(
            RequestTable({}), proxies=parse_networks("0.0.0.0")
        )  # the address of a stream in memory
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve_stream, theirs)
            await ours.send_all(PROXY_LINE[:20])
            assert await ours.receive_some(1) == b""

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
