"""Encrypted connections: who is trusted, what a failure says, and commands that travel over them.

Under trio, as servers have them; test_connector.py has the client's under each loop.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization

from rocketpy.errors import ConfigError, ConnectFailed
from rocketpy.remoting.abc import Peer
from rocketpy.tls import trusting_context
from rocketpy.transport.streams import open_listeners, peer_of
from rocketpy.transport.tls import tls_connector

MESSAGE = b"to and fro" * 10_000  # more than one TLS record


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.asynccontextmanager
async def echo(authority: trustme.CA, name: str = "127.0.0.1", *, asks: bool = False) -> AsyncIterator[str]:
    """The address of a server that returns what it gets; with `asks`, to clients with a certificate only."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    if asks:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def serve(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        with contextlib.suppress(trio.BrokenResourceError):
            async with plain:
                async for data in stream:
                    await stream.send_all(data)

    listeners = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def returned(connector: Callable[[str], Awaitable[trio.abc.Stream]], address: str) -> bytes:
    """What the server of `echo` returns of MESSAGE."""
    got = bytearray()
    with trio.fail_after(30):
        stream = await connector(address)
        assert peer_of(stream) == Peer("127.0.0.1", int(address.rpartition(":")[2]))
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, MESSAGE)
            while len(got) < len(MESSAGE):
                got += await stream.receive_some()
    return bytes(got)


def trusting(authority: trustme.CA, directory: Path) -> Path:
    file = directory / "ca.pem"
    authority.cert_pem.write_to_path(file)
    return file


def test_bytes_travel_both_ways(authority: trustme.CA, tmp_path: Path) -> None:
    async def main() -> None:
        async with echo(authority) as address:
            context = trusting_context(trusting(authority, tmp_path), None, None, verify=True)
            assert await returned(tls_connector(lambda: context), address) == MESSAGE

    trio.run(main)


@pytest.mark.parametrize(
    ("knows_authority", "name", "message"),
    [
        (False, "127.0.0.1", "its certificate is refused: unable to get local issuer certificate"),
        (True, "127.0.0.2", "its certificate is refused: IP address mismatch"),
    ],
)
def test_servers_that_are_not_trusted(
    authority: trustme.CA, tmp_path: Path, knows_authority: bool, name: str, message: str
) -> None:
    """Holds: network, TLS of clients."""

    async def main() -> None:
        async with echo(authority, name) as address:
            trusted = trusting(authority if knows_authority else trustme.CA(), tmp_path)
            with pytest.raises(ConnectFailed, match=f"connect to <{address}> failed: {message}"):
                await returned(tls_connector(lambda: trusting_context(trusted, None, None, verify=True)), address)
            assert (
                await returned(tls_connector(lambda: trusting_context(None, None, None, verify=False)), address)
                == MESSAGE
            )

    trio.run(main)


def test_server_that_asks_for_a_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    trusted, shown = trusting(authority, tmp_path), tmp_path / "client.pem"
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(shown)

    async def main() -> None:
        async with echo(authority, asks=True) as address:
            context = trusting_context(trusted, shown, None, verify=True)
            assert await returned(tls_connector(lambda: context), address) == MESSAGE
            with pytest.raises((ConnectFailed, trio.BrokenResourceError, ExceptionGroup)):  # TLS 1.3 tells it later
                await returned(tls_connector(lambda: trusting_context(trusted, None, None, verify=True)), address)

    trio.run(main)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "it closed the connection during the TLS handshake; it may not speak TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no TLS with it: WRONG_VERSION_NUMBER"),
    ],
)
def test_servers_without_tls(answer: bytes, message: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async def main() -> None:
        listeners = await open_listeners("127.0.0.1", 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            with pytest.raises(ConnectFailed, match=message):
                connector = tls_connector(lambda: trusting_context(None, None, None, verify=True))
                await connector(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:port", "127.0.0.1:1"])
def test_no_connection(address: str) -> None:
    with pytest.raises(ConnectFailed, match=f"<{address}>"):
        trio.run(tls_connector(lambda: trusting_context(None, None, None, verify=True)), address)


def test_files_that_cannot_be_used(authority: trustme.CA, tmp_path: Path) -> None:
    trusted, text = trusting(authority, tmp_path), tmp_path / "text"
    text.write_text("no PEM")
    certificate, key, locked = (tmp_path / name for name in ("cert.pem", "key.pem", "locked.pem"))
    issued = authority.issue_cert("client@example.org")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    read = serialization.load_pem_private_key(key.read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(read.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    for files, named in [
        ((tmp_path / "none", None, None), f"{tmp_path / 'none'}: No such file"),
        ((text, None, None), f"{text}: "),
        ((trusted, certificate, None), f"{certificate}: "),
        ((trusted, certificate, trusted), f"{certificate} with the key {trusted}: "),
        ((trusted, certificate, locked), f"{certificate} with the key {locked}: "),
    ]:
        with pytest.raises(ConfigError, match=f"TLS: cannot use {named}"):
            trusting_context(*files, verify=True)
    assert trusting_context(trusted, certificate, key, verify=True).verify_mode == ssl.CERT_REQUIRED
