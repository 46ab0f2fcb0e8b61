"""Attempts to get into a name server that serves TLS, or to pose as one: each is refused, and counted, and others are
served meanwhile. The name server is a process of its own; each attempt is made with bare sockets."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trustme

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions, TlsOptions
from rocketpy.client.sync import Producer
from rocketpy.codes import RequestCode
from rocketpy.errors import RocketError
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter
from rocketpy.tls import HANDSHAKE_BYTES_MAX, HANDSHAKE_S, HANDSHAKES_OF_SOURCE_MAX
from tests.support.broker import free_ports
from tests.support.certificates import HOST, Authority, Issued
from tests.support.pair import NameServer
from tests.support.wire import until

PROXY = "127.0.0.2"
ELSEWHERE = "127.0.0.3"
CLOSED_S = 5.0  # a refused connection is closed at once; the machine may be busy
QUESTION = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


@attrs.frozen
class Target:
    """A running name server."""

    process: NameServer
    metrics_port: int
    authority: Authority

    def connect(self, source: str = HOST) -> socket.socket:
        port = self.process.namesrv_port
        return socket.create_connection((HOST, port), timeout=CLOSED_S, source_address=(source, 0))

    def context(self, certificate: Issued | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def ask(self, context: ssl.SSLContext, source: str = HOST) -> bool:
        """Ask a question by TLS. Returns: whether it was answered. Raises: OSError."""
        with self.connect(source) as plain, context.wrap_socket(plain, server_hostname=HOST) as connection:
            return answered(connection)

    def has_metrics(self) -> bool:
        with contextlib.suppress(OSError):
            return self.refused("none") == 0
        return False

    def expect_refused(self, reason: str, count: int) -> None:
        """Wait until so many connections are counted: a client is told before."""
        until(lambda: self.refused(reason) == count, f"{count} connections are refused: {reason}")

    def refused(self, reason: str) -> int:
        with urllib.request.urlopen(f"http://{HOST}:{self.metrics_port}/metrics", timeout=60) as answer:
            found = re.search(rf'tls_refused_total{{reason="{reason}"}} (\d+)', answer.read().decode())
        return int(found[1]) if found else 0


def answered(connection: socket.socket) -> bool:
    """Ask a question, and read until its answer or the end of the connection."""
    connection.sendall(QUESTION.encode())
    cutter = FrameCutter()
    while (frame := cutter.next_frame()) is None:
        data = connection.recv(65_536)
        if not data:
            return False
        cutter.feed(data)
    return RemotingCommand.from_frame(frame).code == 0


def is_closed(connection: socket.socket) -> bool:
    """Read to the end, which a reset is, too."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


@contextlib.contextmanager
def running(directory: Path, authority: Authority, *given: dict[str, str]) -> Iterator[Target]:
    metrics_port, namesrv_port = free_ports()
    settings = {"metricsPort": str(metrics_port), "tls.config.file": "/dev/null", "tls.server.mode": "enforcing"}
    for one in given:
        settings |= one
    process = NameServer(directory / "namesrv", 0, namesrv_port, directory / "log", settings)
    process.start()
    target = Target(process, metrics_port, authority)
    try:
        until(target.has_metrics, "the metrics are served")  # from a moment after the name server serves
        yield target
        process.check_crashes()
        assert "failed" not in process.text(), process.text()
    finally:
        process.kill_all()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Target]:
    with running(tmp_path_factory.mktemp("enforcing"), authority, authority.issue().settings()) as target:
        yield target


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Target]:
    given = authority.issue().settings(), authority.asking("require")
    with running(tmp_path_factory.mktemp("asking"), authority, *given) as target:
        yield target


@pytest.fixture(autouse=True)
def bystander(enforcing: Target) -> Iterator[None]:
    """A connection that is there before each attempt, and is served after it."""
    plain = enforcing.connect(ELSEWHERE)
    with enforcing.context().wrap_socket(plain, server_hostname=HOST) as connection:
        assert answered(connection)
        yield
        assert answered(connection)


# --- into the name server ---------------------------------------------------------------------------------------------


def test_plain_requests(enforcing: Target) -> None:
    """Holds: network, TLS of servers."""
    before = enforcing.refused("plain")
    for data in (QUESTION.encode(), b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\x00\x10" + bytes(16)):
        with enforcing.connect() as connection:
            connection.sendall(data)
            assert is_closed(connection)
    enforcing.expect_refused("plain", before + 4)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions(enforcing: Target, version: ssl.TLSVersion) -> None:
    context = enforcing.context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    before = enforcing.refused("protocol")
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        enforcing.ask(context)
    enforcing.expect_refused("protocol", before + 1)


@pytest.mark.parametrize("ciphers", ["AES256-SHA", "AES128-GCM-SHA256", "aNULL:eNULL:@SECLEVEL=0", "ECDHE+AES+SHA384"])
def test_weak_ciphers(enforcing: Target, ciphers: str) -> None:
    context = enforcing.context()
    context.set_ciphers(ciphers)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake_failure"):
        enforcing.ask(context)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16" + b"\xff" * 1000,
        b"\x16\x03\x01\x00\x00" * 1000,
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\x40\x01" + bytes(0x4001),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(0x200 - 6),
        b"\x16" + bytes(range(256)) * 8,
    ],
)
def test_garbage_after_the_first_byte(enforcing: Target, data: bytes) -> None:
    with enforcing.connect() as connection:
        connection.sendall(data)
        with contextlib.suppress(OSError):  # it may be closed already
            connection.shutdown(socket.SHUT_WR)
        assert is_closed(connection)


def test_an_oversized_handshake(enforcing: Target) -> None:
    """A hello may have 128 KiB by the rules of TLS. It is refused long before."""
    before = enforcing.refused("size")
    hello = b"\x01" + (130_000).to_bytes(3, "big") + bytes(130_000)
    sent = 0
    with enforcing.connect() as connection, contextlib.suppress(OSError):
        for at in range(0, len(hello), 1000):
            piece = hello[at : at + 1000]
            connection.sendall(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
            sent += len(piece)
            time.sleep(0.001)
    enforcing.expect_refused("size", before + 1)
    assert sent > HANDSHAKE_BYTES_MAX / 2


def test_half_handshakes_of_one_machine(enforcing: Target) -> None:
    """Others are served at once, and after ten seconds nothing is left of them."""
    before = enforcing.refused("timeout")
    crowd = HANDSHAKES_OF_SOURCE_MAX * 3
    context = enforcing.context()
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(enforcing.connect()) for _ in range(crowd)]
        for number, connection in enumerate(halves):
            connection.sendall(b"\x16\x03\x01\x02\x00\x01"[: 1 + number % 6])
        begin_s = time.monotonic()
        for _ in range(20):
            assert enforcing.ask(context, source=ELSEWHERE)
        assert time.monotonic() - begin_s < HANDSHAKE_S / 2, "they waited for nothing"
        for connection in halves:
            connection.settimeout(2 * HANDSHAKE_S)
            assert is_closed(connection)
    enforcing.expect_refused("timeout", before + crowd)
    assert enforcing.ask(context)


def test_a_proxy_names_its_client_before_the_handshake(authority: Authority, tmp_path: Path) -> None:
    """Without the header, or with one from elsewhere, the connection is closed."""
    header = b"PROXY TCP4 10.9.8.7 127.0.0.1 5000 9876\r\n"
    with running(tmp_path, authority, authority.issue().settings(), {"proxyProtocolFrom": PROXY}) as target:
        context = target.context()
        with target.connect(PROXY) as plain:
            plain.sendall(header)
            with context.wrap_socket(plain, server_hostname=HOST) as connection:
                assert answered(connection)
        with target.connect(PROXY) as plain, pytest.raises(OSError):
            context.wrap_socket(plain, server_hostname=HOST)
        with target.connect(PROXY) as plain:
            plain.sendall(header + QUESTION.encode())
            assert is_closed(plain)
        until(lambda: "TLS connection of 10.9.8.7:5000" in target.process.text(), "the log names the client")
        with target.connect() as plain:
            plain.sendall(header)
            assert is_closed(plain), "only a proxy may name another client"


# --- certificates of clients ------------------------------------------------------------------------------------------


def self_signed(directory: Path) -> Issued:
    """A certificate of an authority of its own, which names the same machine as the true one."""
    return Authority(directory, "self").issue("client")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", ["nothing", "expired", "of another authority"])
def test_clients_without_a_certificate_of_the_authority(
    asking: Target, authority: Authority, tmp_path: Path, shown: str, version: ssl.TLSVersion
) -> None:
    certificates = {
        "nothing": None,
        "expired": authority.issue("client", days=-1),
        "of another authority": self_signed(tmp_path),
    }
    context = asking.context(certificates[shown])
    context.minimum_version = context.maximum_version = version
    before = asking.refused("certificate")
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):  # TLS 1.3: at the first read
        asking.ask(context)
    asking.expect_refused("certificate", before + 1)
    good = asking.context(authority.issue("client"))
    good.minimum_version = good.maximum_version = version
    assert asking.ask(good)


# --- posing as a name server ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("expired", "certificate has expired"),
        ("of another authority", "unable to get local issuer certificate"),
        ("self-signed", "self-signed certificate"),
        ("for another host", "IP address mismatch"),
    ],
)
def test_our_clients_refuse_false_name_servers(tmp_path: Path, authority: Authority, shown: str, message: str) -> None:
    if shown == "self-signed":
        ca = trustme.CA()
        issued = Issued(tmp_path / "self.pem", tmp_path / "self-key.pem")
        ca.cert_pem.write_to_path(issued.certificate)
        ca.private_key_pem.write_to_path(issued.key)
    elif shown == "expired":
        issued = authority.issue(days=-1)
    elif shown == "for another host":
        issued = authority.issue("10.0.0.1", "name-server.example.org")
    else:
        issued = Authority(tmp_path, "foreign").issue()
    with running(tmp_path, authority, issued.settings()) as target:
        options = ProducerOptions(
            name_servers=f"{HOST}:{target.process.namesrv_port}", tls=TlsOptions(ca_file=authority.ca_file), retries=0
        )
        with Producer("G", options) as producer, pytest.raises(RocketError, match=message):
            producer.send(Message("T", b"secret"))
        until(lambda: target.refused("alert") > 0, "the server knows that it is not trusted")


def test_our_clients_send_nothing_plain(authority: Authority) -> None:
    """Whoever takes the place of a server that speaks TLS, and does not, learns nothing."""
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(CLOSED_S)
        options = ProducerOptions(name_servers=f"{HOST}:{port}", tls=TlsOptions(ca_file=authority.ca_file), retries=0)
        with Producer("G", options) as producer, contextlib.ExitStack() as stack:
            got: list[bytes] = []

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    got.append(connection.recv(65_536))
                    connection.sendall(b"\0\0\0\7not TLS")

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join)
            with pytest.raises(RocketError):
                producer.send(Message("T", b"secret"))
        assert got[0][:1] == b"\x16" and b"{" not in got[0][:5]
