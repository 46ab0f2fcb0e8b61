"""Servers that accept TLS beside plain connections: modes, bounds of handshakes, and what a refused client is told.

A server runs under trio alone; test_connector.py has the TLS of clients under each loop.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from rocketpy.errors import TlsFailed
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, TlsSession, client_context
from rocketpy.tls.session import HANDSHAKE_S
from rocketpy.transport.tls import HANDSHAKES_OF_SOURCE_MAX, TlsAcceptor, TlsStream
from tests.support.certificates import HOST, PLAINTEXT, Authority, Issued, tls_config
from tests.support.silent_records import KeyLog

PEER, ANOTHER = Peer("10.0.0.1", 1000), Peer("10.0.0.2", 1000)
IDLE_S = 120.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def acceptor_of(authority: Authority, *given: dict[str, str], is_plain_served: bool = False) -> TlsAcceptor:
    tls = tls_config(authority.issue().settings(), *given)
    return TlsAcceptor(Certificates.of_server(tls), is_plain_served=is_plain_served)


def client_over(stream: trio.abc.Stream, authority: Authority, *given: dict[str, str]) -> TlsStream:
    return TlsStream(stream, TlsSession.client(client_context(tls_config(authority.trusting(), *given)), HOST))


def hello(authority: Authority) -> bytes:
    return TlsSession.client(client_context(tls_config(authority.trusting())), HOST).take_outgoing()


class Connections:
    """Connections of sockets, which are closed at the end."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def open(self) -> tuple[trio.SocketStream, trio.SocketStream]:
        """Both ends of a new one: the client's and the server's."""
        ends = socket.socketpair()
        self._sockets += ends
        near, far = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in ends)
        return near, far

    def close(self) -> None:
        for end in self._sockets:
            end.close()


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections()
    yield made
    made.close()


@pytest.mark.parametrize("pair", [memory_stream_pair, lockstep_stream_pair])
def test_bytes_travel_both_ways_at_once(authority: Authority, pair: type) -> None:
    """Also where neither side reads ahead of what the other writes."""
    acceptor = acceptor_of(authority)

    async def carry(stream: trio.abc.Stream) -> None:
        got = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, PLAINTEXT)
            while len(got) < len(PLAINTEXT):
                got += await stream.receive_some(1000)
        assert bytes(got) == PLAINTEXT

    async def main() -> None:
        near, far = pair()
        client = client_over(near, authority)
        servers = []

        async def serve() -> None:
            servers.append(await acceptor.shake_hands(far, PEER))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            nursery.start_soon(client.shake_hands)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, client)
            nursery.start_soon(carry, servers[0])
        await client.aclose()
        assert await servers[0].receive_some() == b""
        assert acceptor.statistics().handshakes == 1

    trio.run(main)


@pytest.mark.parametrize("is_plain_served", [True, False])
def test_plain_connections_are_served_or_refused(
    authority: Authority, connections: Connections, is_plain_served: bool
) -> None:
    """No byte of the first frame is lost.

    Holds: network, TLS of servers.
    """
    acceptor = acceptor_of(authority, is_plain_served=is_plain_served)

    async def main() -> None:
        near, far = connections.open()
        await near.send_all(b"\0\0\0\7frame")
        accepted = await acceptor.accept(far, PEER, idle_s=IDLE_S)
        if is_plain_served:
            assert accepted is far and await accepted.receive_some() == b"\0\0\0\7frame"
        else:
            assert accepted is None
        found = acceptor.statistics()
        assert (found.plain, found.refused) == ((1, {}) if is_plain_served else (0, {"plain": 1}))

    trio.run(main)


@pytest.mark.parametrize("sent", [0, 1, 5, 100])
def test_a_client_that_stops_costs_nothing_after_ten_seconds(
    authority: Authority, connections: Connections, sent: int
) -> None:
    """Holds: network, TLS of servers."""
    acceptor, clock = acceptor_of(authority), MockClock()

    async def main() -> None:
        near, far = connections.open()
        await near.send_all(b"\x16" + hello(authority)[1:sent] if sent else b"")
        async with trio.open_nursery() as nursery:
            done = trio.Event()

            async def accept() -> None:
                assert await acceptor.accept(far, PEER, idle_s=IDLE_S) is None
                done.set()

            nursery.start_soon(accept)
            await wait_all_tasks_blocked()
            clock.jump((HANDSHAKE_S if sent else IDLE_S) - 0.1)
            await wait_all_tasks_blocked()
            assert not done.is_set()
            clock.jump(0.2)
            await done.wait()
        assert acceptor.statistics().refused == ({"timeout": 1} if sent else {})

    trio.run(main, clock=clock)


def test_half_handshakes_of_one_machine_keep_no_other_waiting(authority: Authority, connections: Connections) -> None:
    acceptor, clock = acceptor_of(authority), MockClock()
    crowd = HANDSHAKES_OF_SOURCE_MAX + 10

    async def half(nursery: trio.Nursery, ends: list[trio.SocketStream]) -> None:
        near, far = connections.open()
        ends.append(near)
        await near.send_all(hello(authority)[:50])
        nursery.start_soon(lambda: acceptor.accept(far, PEER, idle_s=IDLE_S))

    async def handshake(peer: Peer) -> bool:
        near, far = connections.open()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client_over(near, authority).shake_hands)
            return await acceptor.accept(far, peer, idle_s=IDLE_S) is not None

    async def main() -> None:
        ends: list[trio.SocketStream] = []
        async with trio.open_nursery() as nursery:
            for _ in range(crowd):
                await half(nursery, ends)
            await wait_all_tasks_blocked()
            assert await handshake(ANOTHER)
            with trio.move_on_after(1) as waiting:
                nursery.start_soon(clock_on, clock, 2)
                await handshake(PEER)
            assert waiting.cancelled_caught, "of the crowd's machine it waits for its turn"
            clock.jump(HANDSHAKE_S)
        assert await handshake(PEER)
        found = acceptor.statistics()
        assert (found.handshakes, found.refused) == (2, {"timeout": crowd})
        assert not acceptor._turns_of, "a machine that is gone is forgotten"

    trio.run(main, clock=clock)


async def clock_on(clock: MockClock, seconds: float) -> None:
    await wait_all_tasks_blocked()
    clock.jump(seconds)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"\x16" + b"garbage" * 10, "protocol"), (b"\x16\x03\x01\x40\x00", "closed"), (b"\x16", "closed")],
)
def test_garbage_and_ends_after_the_first_byte(
    authority: Authority, connections: Connections, sent: bytes, reason: str
) -> None:
    acceptor = acceptor_of(authority, is_plain_served=True)

    async def main() -> None:
        near, far = connections.open()
        await near.send_all(sent)
        await near.send_eof()
        assert await acceptor.accept(far, PEER, idle_s=IDLE_S) is None
        assert acceptor.statistics().refused == {reason: 1}

    trio.run(main)


def test_a_connection_that_breaks_is_one_that_was_closed(authority: Authority, connections: Connections) -> None:
    acceptor = acceptor_of(authority)

    async def main() -> None:
        near, far = connections.open()
        await near.send_all(hello(authority))
        near.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        near.socket.close()
        assert await acceptor.accept(far, PEER, idle_s=IDLE_S) is None
        assert acceptor.statistics().refused == {"closed": 1}

    trio.run(main)


@pytest.mark.parametrize("is_sender_blocked", [False, True])
def test_records_without_data(
    authority: Authority, connections: Connections, tmp_path: Path, is_sender_blocked: bool
) -> None:
    """They end a connection; also between data, if their answers wait behind what the client does not read.

    Fault: A name server kept each answer to an update of keys for a client that read nothing."""
    acceptor = acceptor_of(authority)

    async def main() -> None:
        near, far = connections.open()
        context = client_context(tls_config(authority.trusting()))
        log, session = KeyLog(context, tmp_path / "keys"), TlsSession.client(context, HOST)
        accepted: list[trio.abc.Stream | None] = []

        async def accept() -> None:
            accepted.append(await acceptor.accept(far, PEER, idle_s=IDLE_S))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await TlsStream(near, session).shake_hands()
        stream, cipher = accepted[0], session._tls.cipher()
        assert stream is not None and cipher is not None
        records = log.client_13(cipher[0])

        async def flood() -> None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                for _ in range(20):
                    data = records.data(b"x") if is_sender_blocked else b""
                    await near.send_all(data + records.key_updates(30_000, is_requested=is_sender_blocked))

        async def send() -> None:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stream.send_all(bytes(1 << 24))

        async with trio.open_nursery() as nursery:
            if is_sender_blocked:
                nursery.start_soon(send)
                await wait_all_tasks_blocked()
            nursery.start_soon(flood)
            with pytest.raises(trio.BrokenResourceError):
                while data := await stream.receive_some():
                    assert set(data) == {ord("x")}
            nursery.cancel_scope.cancel()
        assert acceptor.statistics().refused == {"records": 1}

    trio.run(main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_certificate_is_told_why(
    authority: Authority, connections: Connections, version: ssl.TLSVersion
) -> None:
    acceptor = acceptor_of(authority, authority.asking())

    async def main() -> None:
        near, far = connections.open()
        context = client_context(tls_config(authority.trusting()))
        context.maximum_version = version
        client = TlsStream(near, TlsSession.client(context, HOST))
        told: list[str] = []

        async def talk() -> None:
            try:
                await client.shake_hands()
                await client.receive_some()
            except (TlsFailed, trio.BrokenResourceError) as exc:
                told.append(str(exc if isinstance(exc, TlsFailed) else exc.__cause__))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            assert await acceptor.accept(far, PEER, idle_s=IDLE_S) is None
            await trio.aclose_forcefully(far)
        assert acceptor.statistics().refused == {"certificate": 1}
        assert "ALERT" in told[0]

    trio.run(main)


def test_changed_certificates_are_for_new_connections(
    authority: Authority, connections: Connections, tmp_path: Path
) -> None:
    """An open connection goes on with the one it has."""
    used, other = authority.issue(), Authority(tmp_path, "next")
    acceptor = TlsAcceptor(Certificates.of_server(tls_config(used.settings())), is_plain_served=False)

    async def connect(trusted: Authority) -> tuple[TlsStream, TlsStream]:
        near, far = connections.open()
        client = client_over(near, trusted)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.shake_hands)
            server = await acceptor.accept(far, PEER, idle_s=IDLE_S)
        assert isinstance(server, TlsStream)
        return client, server

    async def main() -> None:
        before = await connect(authority)
        Issued(used.certificate, used.key).replace(other.issue())
        for _ in range(2):  # a change has to stand for an interval
            await acceptor.duty().run()
        after = await connect(other)
        for client, server in (before, after):
            await client.send_all(b"still here")
            assert await server.receive_some() == b"still here"
        assert acceptor.statistics().reloads == 1

    trio.run(main)
