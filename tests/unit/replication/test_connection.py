"""A slave's connection to the HA port by TLS: plain bytes for its user; or a sentence with the remedy."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import BrokerSettings, MessageStoreConfig
from rocketpy.replication import connection as connection_module
from rocketpy.replication.connection import connect_ha
from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.guide import MasterAddress
from rocketpy.replication.protocols import SlaveSide
from rocketpy.tls import Certificates, client_context, server_context
from tests.support.certificates import HOST, Authority, tls_config

SECONDS = 10.0
SHORT_S = 0.2
Serve = Callable[[socket.socket], None]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.contextmanager
def master(serve: Serve) -> Iterator[str]:
    """Serves one connection in a thread; returns its address."""
    with socket.create_server((HOST, 0)) as listener:

        def run() -> None:
            accepted, _ = listener.accept()
            accepted.settimeout(SECONDS)
            with accepted, contextlib.suppress(OSError):
                serve(accepted)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        thread.join()


def by_tls(context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], None]) -> Serve:
    def serve_it(accepted: socket.socket) -> None:
        with context.wrap_socket(accepted, server_side=True) as stream:
            serve(stream)

    return serve_it


def exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        assert piece, f"the end after {len(data)} of {size} bytes"
        data += piece
    return data


def waits(is_over: threading.Event) -> None:
    is_over.wait(SECONDS)


def trusting(authority: Authority) -> ssl.SSLContext:
    return client_context(tls_config(authority.trusting()))


def test_plain_bytes_cross_both_ways_and_the_last_ones_too(authority: Authority) -> None:
    log, got = random.Random(1).randbytes(3_000_000), bytearray()

    def serve(stream: ssl.SSLSocket) -> None:
        stream.sendall(log)
        while piece := stream.recv(65_536):
            got.extend(piece)

    context = server_context(tls_config(authority.issue().settings()))
    with master(by_tls(context, serve)) as address:
        with connect_ha(address, SECONDS, trusting(authority)) as connection:
            assert exactly(connection, len(log)) == log
            connection.sendall(b"acknowledged")
        connection.close()
    assert got == b"acknowledged", "what was written before the end has arrived"
    assert not [thread for thread in threading.enumerate() if thread.name == "tls"]


def test_the_end_of_the_master_is_the_end_of_the_plain_bytes(authority: Authority) -> None:
    context = server_context(tls_config(authority.issue().settings()))
    with (
        master(by_tls(context, lambda stream: stream.sendall(b"last"))) as address,
        connect_ha(address, SECONDS, trusting(authority)) as connection,
    ):
        assert exactly(connection, 4) == b"last"
        assert connection.recv(1) == b""


def test_a_master_that_reads_nothing_does_not_keep_its_slave(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "FAREWELL_S", SHORT_S)
    is_over = threading.Event()

    def serve(stream: ssl.SSLSocket) -> None:
        is_over.wait(SECONDS)

    context = server_context(tls_config(authority.issue().settings()))
    with master(by_tls(context, serve)) as address:
        with connect_ha(address, SECONDS, trusting(authority)) as connection:
            connection.settimeout(SHORT_S)
            with contextlib.suppress(TimeoutError):
                connection.sendall(bytes(20_000_000))
        is_over.set()


def refusal_by(address: str, tls: ssl.SSLContext, timeout_s: float = SECONDS) -> str:
    """Return why there is no connection, or no byte by one."""
    with pytest.raises(MasterUnusable) as raised, connect_ha(address, timeout_s, tls) as connection:
        assert connection.recv(1) == b""
        raise MasterUnusable("it closed the connection")
    return str(raised.value)


NOT_SERVED = "set tls.server.mode=permissive or enforcing on the master, or useTLS and haUseTLS to false here"
BUSY = "the master is busy, or does not serve TLS there (tls.server.mode)"
GIVE_CERTIFICATE = "give the master a certificate that names this address and is signed by an authority of "


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("expired", "certificate has expired"),
        ("of another authority", "unable to get local issuer certificate"),
        ("for another host", "IP address mismatch"),
    ],
)
def test_a_master_with_another_certificate(authority: Authority, tmp_path: Path, shown: str, message: str) -> None:
    if shown == "expired":
        issued = authority.issue(days=-1)
    elif shown == "for another host":
        issued = authority.issue("10.0.0.1")
    else:
        issued = Authority(tmp_path / "other").issue()
    serve = by_tls(server_context(tls_config(issued.settings())), lambda stream: None)
    with master(serve) as address:
        text = refusal_by(address, trusting(authority))
    assert text.startswith(f"no TLS with {address}: its certificate is refused: ") and message in text
    assert f"; {GIVE_CERTIFICATE}tls.client.trustCertPath" in text


@pytest.mark.parametrize("answer", [b"", b"\0" * 12])
def test_a_master_without_tls(authority: Authority, answer: bytes) -> None:
    def serve(accepted: socket.socket) -> None:
        accepted.recv(1)
        accepted.sendall(answer)

    with master(serve) as address:
        text = refusal_by(address, trusting(authority))
    assert text.startswith(f"no TLS with {address}: ") and text.endswith(f"; {NOT_SERVED}")


def test_a_master_that_does_not_answer_a_hello(authority: Authority) -> None:
    is_over = threading.Event()
    with master(lambda _: waits(is_over)) as address:
        text = refusal_by(address, trusting(authority), timeout_s=SHORT_S)
        is_over.set()
    assert text == f"no TLS with {address}: no TLS handshake in time; {BUSY}"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_master_that_asks_for_a_certificate(authority: Authority, version: ssl.TLSVersion) -> None:
    """By TLS 1.3 it refuses after the slave's side of the handshake, when the slave reads its first bytes."""
    context = server_context(tls_config(authority.issue().settings(), authority.asking()))
    context.maximum_version = version
    with master(by_tls(context, lambda stream: None)) as address:
        text = refusal_by(address, trusting(authority))
    assert text.startswith(f"no TLS with {address}: it refuses the connection: ") and "ALERT" in text
    assert text.endswith("; give this slave a certificate that the master trusts: tls.client.certPath")


def test_a_master_that_resets_the_connection_after_the_handshake(
    authority: Authority,
) -> None:
    """Fault: A slave whose connection was reset said that its master closed it during the TLS handshake."""

    def serve(stream: ssl.SSLSocket) -> None:
        stream.sendall(b"log")
        assert stream.recv(1) == b"x"
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    context = server_context(tls_config(authority.issue().settings()))
    with (
        master(by_tls(context, serve)) as address,
        pytest.raises(MasterUnusable) as raised,
        connect_ha(address, SECONDS, trusting(authority)) as connection,
    ):
        assert exactly(connection, 3) == b"log"
        connection.sendall(b"x")
        assert connection.recv(1) == b""
        raise MasterUnusable("it closed the connection")
    cut = f"{address} cut the connection after the TLS handshake: {ConnectionResetError(errno.ECONNRESET, '')}"
    assert str(raised.value).startswith(f"it closed the connection; {cut}")


@pytest.mark.parametrize("uses_tls", [True, False])
def test_a_slave_gets_the_log_by_tls_with_haUseTLS(authority: Authority, uses_tls: bool) -> None:
    calls = Certificates.of_client(tls_config(authority.trusting()))
    settings = BrokerSettings(store=MessageStoreConfig(ha_use_tls=uses_tls))
    unused: Any = None
    side = SlaveSide(unused, unused, settings, calls=calls)
    first = []
    with (
        master(lambda accepted: first.append(accepted.recv(1))) as address,
        contextlib.suppress(MasterUnusable),
        side.connect(MasterAddress("", address), SECONDS) as connection,
    ):
        connection.sendall(b"\0")
    assert first == ([b"\x16"] if uses_tls else [b"\0"])
