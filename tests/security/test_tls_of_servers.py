"""Attempts to get into a name server or a broker that serves TLS, or to pose as one: each is refused, and counted, and
others are served meanwhile. The servers are processes of their own; each attempt is made with bare sockets."""

from __future__ import annotations

import contextlib
import os
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
from rocketpy.tls.session import HANDSHAKE_BYTES_MAX, SILENT_BYTES_MAX
from rocketpy.transport.tls import HANDSHAKES_OF_SOURCE_MAX
from tests.support.broker import RunningBroker, free_ports
from tests.support.certificates import HOST, Authority, Issued
from tests.support.pair import LoneBroker, NameServer
from tests.support.silent_records import connect_13
from tests.support.waiting import fresh_metrics, is_readable
from tests.support.wire import until

PROXY = "127.0.0.2"
ELSEWHERE = "127.0.0.3"
CLOSED_S = 5.0  # a refused connection is closed at once; the machine may be busy
CROWD_S = 2.0  # for a handshake, where the end of those that stop is waited for
NAME_SERVER, BROKER = "name server", "broker"
OF_BROKER = {  # the sample of a broker that counts refusals of a reason; all others are failed handshakes
    "plain": "rocketpy_remoting_plain_refused_total",
    "timeout": "rocketpy_tls_handshakes_timed_out_total",
}


@attrs.frozen
class Target:
    """A running server. A broker has a name server beside it, which is left alone."""

    kind: str
    process: RunningBroker
    metrics_port: int
    authority: Authority

    @property
    def port(self) -> int:
        return self.process.port if self.kind == BROKER else self.process.namesrv_port

    @property
    def question(self) -> RemotingCommand:
        of_broker, of_namesrv = RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        return RemotingCommand.request(of_broker if self.kind == BROKER else of_namesrv)

    def connect(self, source: str = HOST) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=CLOSED_S, source_address=(source, 0))

    def context(self, certificate: Issued | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority.ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def ask(self, context: ssl.SSLContext, source: str = HOST) -> bool:
        """Ask a question by TLS. Returns: whether it was answered. Raises: OSError."""
        with self.connect(source) as plain, context.wrap_socket(plain, server_hostname=HOST) as connection:
            return self.answers(connection)

    def hear(self, context: ssl.SSLContext) -> bytes:
        """Connect by TLS, and read: with TLS 1.3 a client learns there that it was refused. Raises: OSError."""
        with self.connect() as plain, context.wrap_socket(plain, server_hostname=HOST) as connection:
            return connection.recv(1)

    def answers(self, connection: socket.socket) -> bool:
        """Ask a question, and read until its answer or the end of the connection."""
        connection.sendall(self.question.encode())
        cutter = FrameCutter()
        while (frame := cutter.next_frame()) is None:
            data = connection.recv(65_536)
            if not data:
                return False
            cutter.feed(data)
        return RemotingCommand.from_frame(frame).code == 0

    def descriptors(self) -> int:
        """Open files of the processes that have its connections."""
        assert self.process.process is not None
        pids = [self.process.process.pid]
        if self.kind == BROKER:
            workers = self.process.workers()
            pids = [workers["tls 0"], workers["selector 0"]]
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)

    def has_metrics(self) -> bool:
        with contextlib.suppress(OSError):
            return self.refused("none") == 0
        return False

    def expect_refused(self, reason: str, count: int) -> None:
        """Wait until so many connections are counted: a client is told before."""
        until(lambda: self.refused(reason) == count, f"{count} connections are refused: {reason}")

    def refused(self, reason: str) -> int:
        url = f"http://{HOST}:{self.metrics_port}/metrics"
        with urllib.request.urlopen(fresh_metrics(url), timeout=60) as answer:
            text = answer.read().decode()
        name = f'tls_refused_total{{reason="{reason}"}}'
        if self.kind == BROKER:
            name = OF_BROKER.get(reason, "rocketpy_tls_handshakes_failed_total") + "{.*}"
        return sum(int(float(count)) for count in re.findall(rf"{name} (\S+)", text))


def is_closed(connection: socket.socket) -> bool:
    """Read to the end, which a reset is, too."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


@contextlib.contextmanager
def running(kind: str, directory: Path, authority: Authority, *given: dict[str, str]) -> Iterator[Target]:
    """A name server alone; or a broker with a name server, which has the same settings."""
    metrics_port, _ = free_ports()
    port, namesrv_port = free_ports()
    settings = authority.trusting()
    settings |= {"metricsPort": str(metrics_port), "tls.config.file": "/dev/null", "tls.server.mode": "enforcing"}
    for one in given:
        settings |= one
    make = NameServer if kind == NAME_SERVER else RunningBroker
    process = make(directory / "store", port, namesrv_port, directory / "log", settings)
    process.start()
    target = Target(kind, process, metrics_port, authority)
    try:
        until(target.has_metrics, "the metrics are served")  # from a moment after the name server serves
        yield target
        process.check_crashes()
        assert "Traceback" not in process.text() and " failed" not in process.text(), process.text()
    finally:
        process.kill_all()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=[NAME_SERVER, BROKER])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Target]:
    with running(kind, tmp_path_factory.mktemp("enforcing"), authority, authority.issue().settings()) as target:
        yield target


@pytest.fixture
def enforcing(server: Target) -> Iterator[Target]:
    """A server with a connection that is there before each attempt, and is served after it.

    Its handshake is the last one that a TLS worker has counted: the counts are those of before the attempt."""
    with bystander(server):
        yield server


@contextlib.contextmanager
def bystander(target: Target) -> Iterator[None]:
    plain = target.connect(ELSEWHERE)
    with target.context().wrap_socket(plain, server_hostname=HOST) as connection:
        assert target.answers(connection)
        yield
        assert target.answers(connection)


@pytest.fixture(scope="module")
def asking(kind: str, tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Target]:
    own = authority.issue(HOST)
    given = own.settings(), own.settings("client"), authority.asking("require")
    with running(kind, tmp_path_factory.mktemp("asking"), authority, *given) as target:
        yield target


# --- into a server ----------------------------------------------------------------------------------------------------


def test_plain_requests(enforcing: Target) -> None:
    """Holds: network, TLS of servers."""
    before = enforcing.refused("plain")
    for data in (enforcing.question.encode(), b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\x00\x10" + bytes(16)):
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


@pytest.mark.parametrize("size", [130_000, 16_000_000])
def test_an_oversized_handshake(enforcing: Target, size: int) -> None:
    """A hello may have 128 KiB by the rules of TLS. Servers refuse it long before."""
    before = enforcing.refused("size")
    hello = b"\x01" + size.to_bytes(3, "big") + bytes(min(size, 1_000_000))
    sent = 0
    with enforcing.connect() as connection, contextlib.suppress(OSError):
        for at in range(0, len(hello), 1000):
            piece = hello[at : at + 1000]
            connection.sendall(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
            sent += len(piece)
            time.sleep(0.001)
    enforcing.expect_refused("size", before + 1)
    assert sent > HANDSHAKE_BYTES_MAX / 2 if size == 130_000 else sent < 500_000


@pytest.mark.parametrize("is_requested", [False, True])
def test_records_without_data(enforcing: Target, tmp_path: Path, is_requested: bool) -> None:
    """A stranger whose handshake is complete sends updates of keys. Others are served meanwhile.

    Fault: One connection with a flood of updates of keys stopped a TLS worker of a broker until it was killed."""
    before, context = enforcing.refused("records"), enforcing.context()
    connection, records = connect_13(enforcing.context(), enforcing.connect(), tmp_path)
    with connection:
        with contextlib.suppress(OSError):
            for _ in range(64):
                connection.sendall(records.key_updates(SILENT_BYTES_MAX, is_requested=is_requested))
                assert enforcing.ask(context, source=ELSEWHERE)
        assert is_closed(connection)
    enforcing.expect_refused("records", before + 1)


def test_half_handshakes_of_one_machine(kind: str, authority: Authority, tmp_path: Path) -> None:
    """Others are served while all of them wait, and after the time for a handshake nothing is left of them."""
    given = authority.issue().settings(), {"tlsHandshakeTimeoutMillis": str(int(CROWD_S * 1000))}
    with running(kind, tmp_path, authority, *given) as target, bystander(target):
        descriptors = target.descriptors()
        crowd = HANDSHAKES_OF_SOURCE_MAX * 3
        context = target.context()
        with contextlib.ExitStack() as stack:
            halves = [stack.enter_context(target.connect()) for _ in range(crowd)]
            for number, connection in enumerate(halves):
                connection.sendall(b"\x16\x03\x01\x02\x00\x01"[: 1 + number % 6])
            answers = 0  # while no half handshake is over: who waits for them has one at most
            while answers < 20 and not any(is_readable(half.fileno(), 0) for half in halves):
                assert target.ask(context, source=ELSEWHERE)
                answers += 1
            assert answers > 2, "others waited for the half handshakes"
            for connection in halves:
                connection.settimeout(10 * CROWD_S)
                assert is_closed(connection)
            target.expect_refused("timeout", crowd)
            until(lambda: target.descriptors() <= descriptors, "no descriptor of them is open")
        assert target.ask(context)


def test_a_proxy_names_its_client_before_the_handshake(kind: str, authority: Authority, tmp_path: Path) -> None:
    """Without the header, or with one from elsewhere, the connection is closed."""
    header = b"PROXY TCP4 10.9.8.7 127.0.0.1 5000 9876\r\n"
    with running(kind, tmp_path, authority, authority.issue().settings(), {"proxyProtocolFrom": PROXY}) as target:
        context = target.context()
        with target.connect(PROXY) as plain:
            plain.sendall(header)
            with context.wrap_socket(plain, server_hostname=HOST) as connection:
                assert target.answers(connection)
        with target.connect(PROXY) as plain, pytest.raises(OSError):
            context.wrap_socket(plain, server_hostname=HOST)
        with target.connect(PROXY) as plain:
            plain.sendall(header + target.question.encode())
            assert is_closed(plain)
        with target.connect(PROXY) as plain:
            plain.sendall(header + b"\x16" + b"no TLS " * 100)
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
    good = asking.context(authority.issue("client"))
    good.minimum_version = good.maximum_version = version
    assert asking.ask(good)
    before = asking.refused("certificate")
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        asking.hear(context)
    asking.expect_refused("certificate", before + 1)
    assert asking.ask(good)


# --- posing as a server -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("expired", "certificate has expired"),
        ("of another authority", "unable to get local issuer certificate"),
        ("self-signed", "self-signed certificate"),
        ("for another host", "IP address mismatch"),
    ],
)
def test_our_clients_refuse_false_servers(
    kind: str, tmp_path: Path, authority: Authority, shown: str, message: str
) -> None:
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
    with posing(kind, tmp_path, authority, issued) as target:
        options = ProducerOptions(
            name_servers=target.process.namesrv, tls=TlsOptions(ca_file=authority.ca_file), retries=0
        )
        with Producer("G", options) as producer, pytest.raises(RocketError, match=message):
            producer.send(Message("T", b"secret"))
        until(lambda: target.refused("alert") > 0, "the server knows that it is not trusted")


@contextlib.contextmanager
def posing(kind: str, directory: Path, authority: Authority, issued: Issued) -> Iterator[Target]:
    """A server with this certificate. A false broker is known to a true name server."""
    if kind == NAME_SERVER:
        with running(kind, directory, authority, issued.settings()) as target:
            yield target
        return
    with running(NAME_SERVER, directory, authority, authority.issue().settings()) as namesrv:
        metrics_port, _ = free_ports()
        port, _ = free_ports()
        settings = issued.settings() | authority.trusting()
        settings |= {"metricsPort": str(metrics_port), "tls.config.file": "/dev/null", "tls.server.mode": "enforcing"}
        broker = LoneBroker(
            directory / "broker", port, namesrv.process.namesrv_port, directory / "broker.log", settings
        )
        try:
            broker.start()
            yield Target(BROKER, broker, metrics_port, authority)
        finally:
            broker.kill_all()


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
