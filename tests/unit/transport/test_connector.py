"""Byte streams over sockets, under both backends and uvloop: bytes, ends, TLS, and what a failure says."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import queue
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from rocketpy import aio
from rocketpy.errors import ConnectFailed
from rocketpy.remoting.abc import Peer
from rocketpy.tls import trusting_context
from rocketpy.transport.byte_stream import ByteStream
from rocketpy.transport.connector import connect, tls_connector
from rocketpy.transport.sockets import linger
from tests.support.memory_streams import Collected

MESSAGE = b"to and fro" * 30_000  # more than one TLS record, and than one read
LOOPS = ["trio", "asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
Serve = Callable[[socket.socket], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a test in one of the loops, in real time."""

    def run_it(main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with aio.move_on_after(30) as scope:
                await main()
            assert not scope.cancelled_caught

        if request.param == "trio":
            trio.run(bounded)
            return
        factory: Any = None
        if request.param == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bounded())

    return run_it


@contextlib.contextmanager
def serving(
    serve: Serve, context: ssl.SSLContext | None = None, errors: queue.Queue[str] | None = None
) -> Iterator[str]:
    """The address of a server that serves one connection after the other, in a thread; `errors` gets those of TLS."""

    def accept() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), plain:
                try:
                    served = plain if context is None else context.wrap_socket(plain, server_side=True)
                except ssl.SSLError as error:
                    if errors is not None:
                        errors.put(str(error))
                    continue
                with served:
                    serve(served)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def assert_true(value: bool) -> None:
    assert value


class Returned(Collected):
    """Ends the stream when the whole message is back."""

    def __init__(self, stream: ByteStream) -> None:
        super().__init__()
        self.stream = stream
        self.drained_count = 0

    def received(self, data: bytes | bytearray) -> None:
        super().received(data)
        if len(self.data) >= len(MESSAGE):
            self.stream.close(1)

    def drained(self) -> None:
        self.drained_count += 1
        assert self.stream.unsent_size == 0


async def exchange(stream: ByteStream) -> bytes:
    """What the peer returns of MESSAGE."""
    returned = Returned(stream)
    for at in range(0, len(MESSAGE), 100_000):
        stream.write(MESSAGE[at : at + 100_000])
    assert stream.unsent_size >= len(MESSAGE)  # and perhaps the end of a handshake
    await stream.run(returned, 65536)
    assert returned.drained_count
    return returned.data


def test_bytes_travel_both_ways(run: Any) -> None:
    async def main() -> None:
        with serving(echo) as address:
            stream = await connect(address)
            assert stream.peer == Peer("127.0.0.1", int(address.rpartition(":")[2]))
            assert await exchange(stream) == MESSAGE

    run(main)


@pytest.mark.parametrize("resets", [True, False])
def test_the_peer_ends_it(run: Any, resets: bool) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"early")
        if not resets:
            connection.recv(1000)

    async def main() -> None:
        with serving(serve) as address:
            stream, collected = await connect(address), Collected()
            stream.write(b"x" * 100)
            await stream.run(collected, 65536)
            assert collected.data in (b"early", b"")
            stream.write(b"nobody reads it")
            stream.close(1)
            stream.abort()

    run(main)


def test_answers_that_came_before_a_write_failed_are_received(run: Any) -> None:
    """Fault: A write after the peer's reset ended the stream with answers unread."""
    may_answer, is_reset = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        may_answer.wait(10)
        connection.sendall(b"answer")
        linger(connection, resets=True)
        connection.close()
        is_reset.set()

    def wait_for_the_reset() -> None:
        """The loop has looked for bytes already in this turn."""
        may_answer.set()
        assert is_reset.wait(10)

    async def main() -> None:
        with serving(serve) as address:
            stream, collected = await connect(address), Collected()
            async with aio.open_nursery() as nursery:
                nursery.start_soon(stream.run, collected, 65536)
                stream.write(b"request")
                while stream.unsent_size:
                    await aio.sleep(0)
                aio.call_soon(wait_for_the_reset)
                stream.write(b"another request")
            assert collected.data == b"answer"

    run(main)


def test_what_is_written_leaves_before_a_close(run: Any) -> None:
    got = bytearray()

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            got.extend(data)
        done.set()

    done = threading.Event()

    async def main() -> None:
        with serving(serve) as address:
            stream = await connect(address)
            stream.write(MESSAGE)
            stream.close(10)
            await stream.run(Collected(), 65536)
            assert await aio.in_thread(done.wait, 10)
        assert got == MESSAGE

    run(main)


def test_a_peer_that_does_not_read_is_left_in_time(run: Any) -> None:
    gone = threading.Event()

    async def main() -> None:
        with serving(lambda _: assert_true(gone.wait(30))) as address:
            stream = await connect(address)
            stream.write(bytes(64 << 20))  # more than the buffers of both machines take
            async with aio.open_nursery() as nursery:
                nursery.start_soon(stream.run, Collected(), 65536)
                while not stream.unacknowledged_size:
                    await aio.sleep(0.001)
                stream.close(0.05)
            gone.set()

    run(main)


def test_nothing_comes_while_it_is_paused(run: Any) -> None:
    async def main() -> None:
        with serving(echo) as address:
            stream = await connect(address)
            collected = Collected()
            async with aio.open_nursery() as nursery:
                nursery.start_soon(stream.run, collected, 65536)
                await aio.sleep(0)
                stream.pause()
                stream.write(MESSAGE)
                await aio.sleep(0.05)
                assert len(collected.data) < len(MESSAGE)
                stream.resume()
                while len(collected.data) < len(MESSAGE):
                    await aio.sleep(0.001)
                nursery.cancel()

    run(main)


@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:port", "127.0.0.1:1"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_no_connection(run: Any, address: str, encrypted: bool) -> None:
    open_it = tls_connector(lambda: trusting_context(None, None, None, verify=True)) if encrypted else connect

    async def main() -> None:
        with pytest.raises(ConnectFailed, match=f"connect to <{address}> failed: ") as caught:
            await open_it(address)
        assert "TLS" not in str(caught.value)

    run(main)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize(
    ("knows_authority", "name", "message"),
    [
        (True, "127.0.0.1", None),
        (False, "127.0.0.1", "its certificate is refused: unable to get local issuer certificate"),
        (True, "127.0.0.2", "its certificate is refused: IP address mismatch"),
    ],
)
def test_servers_are_trusted_by_their_certificate(
    run: Any, authority: trustme.CA, tmp_path: Path, knows_authority: bool, name: str, message: str | None
) -> None:
    """Holds: network, TLS of clients."""
    errors: queue.Queue[str] = queue.Queue()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(served)
    trusted = tmp_path / "ca.pem"
    (authority if knows_authority else trustme.CA()).cert_pem.write_to_path(trusted)

    async def main() -> None:
        with serving(echo, served, errors) as address:
            open_it = tls_connector(lambda: trusting_context(trusted, None, None, verify=True))
            if message is None:
                assert await exchange(await open_it(address)) == MESSAGE
            else:
                with pytest.raises(ConnectFailed, match=f"connect to <{address}> failed: {message}"):
                    await open_it(address)
                assert "alert" in await aio.in_thread(errors.get, True, 30), "the server is told"
            trusting_all = tls_connector(lambda: trusting_context(None, None, None, verify=False))
            assert await exchange(await trusting_all(address)) == MESSAGE

    run(main)


def test_a_server_that_asks_for_a_certificate(run: Any, authority: trustme.CA, tmp_path: Path) -> None:
    """TLS 1.3 tells a client without one after the handshake: the stream ends."""
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    authority.configure_trust(served)
    served.verify_mode = ssl.CERT_REQUIRED
    trusted, shown = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(shown)

    async def main() -> None:
        with serving(echo, served) as address:
            having = tls_connector(lambda: trusting_context(trusted, shown, None, verify=True))
            assert await exchange(await having(address)) == MESSAGE
            collected = Collected()
            with contextlib.suppress(ConnectFailed):
                stream = await tls_connector(lambda: trusting_context(trusted, None, None, verify=True))(address)
                await stream.run(collected, 65536)
            assert collected.data == b""

    run(main)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "it closed the connection during the TLS handshake; it may not speak TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no TLS with it: WRONG_VERSION_NUMBER"),
    ],
)
def test_servers_without_tls(run: Any, answer: bytes, message: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    async def main() -> None:
        with serving(serve) as address, pytest.raises(ConnectFailed, match=message):
            await tls_connector(lambda: trusting_context(None, None, None, verify=True))(address)

    run(main)


def test_a_context_that_cannot_be_made_leaves_no_connection(run: Any) -> None:
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            assert connection.recv(1) == b""
        ended.set()

    def no_context() -> ssl.SSLContext:
        raise FileNotFoundError("ca.pem")

    async def main() -> None:
        with serving(serve) as address:
            with pytest.raises(FileNotFoundError):
                await tls_connector(no_context)(address)
            assert await aio.in_thread(ended.wait, 10)

    run(main)
