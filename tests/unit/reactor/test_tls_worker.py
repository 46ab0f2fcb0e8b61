"""A TLS worker passes bytes both ways, whole and in order, whatever their size; it outlives clients and selectors.

The worker runs in a thread of the test, which is the selector; clients are Python's `ssl` over loopback.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import os
import random
import socket
import ssl
import struct
import termios
import threading
import time
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import attrs
import pytest
import trustme

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.config import TlsConfig
from rocketpy.native.core import lib
from rocketpy.reactor import tls_handshakes, tls_worker
from rocketpy.reactor.handoff import handoff_pair, pass_to_tls
from rocketpy.reactor.ring import STOP_INTAKE, STOP_LEAVE, WorkerBlock
from rocketpy.reactor.tls_handshakes import Arrival
from rocketpy.reactor.tls_worker import TlsMain
from rocketpy.reactor.worker_messages import HOST, encode_host
from rocketpy.reactor.worker_spec import WorkerContext
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, TlsSession
from rocketpy.tls.session import SILENT_BYTES_MAX
from tests.support.silent_records import Client13, KeyLog, connect_13
from tests.support.waiting import is_readable, wait_until

SECONDS = 20.0
AUTHORITY = trustme.CA()


@attrs.define(eq=False)
class Rig:
    """One TLS worker."""

    directory: Path
    waiting_max: int = tls_worker.WAITING_MAX
    handshake_s: float = SECONDS
    block: WorkerBlock = attrs.field(factory=lambda: WorkerBlock("tls-0", 0))
    pair: tuple[socket.socket, socket.socket] = attrs.field(factory=handoff_pair)
    ha_pair: tuple[socket.socket, socket.socket] = attrs.field(factory=handoff_pair)
    listener: socket.socket = attrs.field(factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=1024))
    trust: ssl.SSLContext = attrs.field(factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    threads: list[threading.Thread] = attrs.field(factory=list)
    faults: list[BaseException] = attrs.field(factory=list)

    def start(self) -> None:
        self.write_certificate()
        AUTHORITY.configure_trust(self.trust)
        certificates = Certificates.of_server(self.tls())
        main = TlsMain(self.block, [self.pair[1], self.ha_pair[1]], certificates, self.handshake_s, self.waiting_max)

        def run() -> None:
            try:
                main(WorkerContext("tls-0", self.block, self.block.mark_ready))
            except BaseException as exc:
                self.faults.append(exc)

        self.threads.append(threading.Thread(target=run))
        self.threads[0].start()
        wait_until(lambda: self.block.is_ready, SECONDS)

    def tls(self) -> TlsConfig:
        chain, key = self.directory / "chain.pem", self.directory / "key.pem"
        return TlsConfig(tls_server_cert_path=str(chain), tls_server_key_path=str(key))

    def write_certificate(self) -> None:
        issued = AUTHORITY.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(self.directory / "key.pem")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self.directory / "chain.pem").write_bytes(chain)

    def stop(self) -> None:
        self.block.order(STOP_LEAVE)
        self.threads[0].join(SECONDS)
        assert not self.threads[0].is_alive()
        assert not self.faults
        for end in (*self.pair, *self.ha_pair, self.listener):
            end.close()

    def connect(self, *, buffer: int = 0) -> tuple[socket.socket, socket.socket]:
        """The client's plain socket, and the selector's end of its connection."""
        client = socket.create_connection(self.listener.getsockname())
        accepted, (host, port) = self.listener.accept()
        near, far = socket.socketpair()
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        for end in (accepted, far):
            end.setblocking(False)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as the selector does
        rights = array.array("i", [accepted.fileno(), far.fileno()])
        self.pair[0].sendmsg([HOST.write(**encode_host(host, port))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        accepted.close()
        far.close()
        for end in (client, near):
            end.settimeout(SECONDS)
        return client, near

    def open(self, *, buffer: int = 0) -> tuple[ssl.SSLSocket, socket.socket]:
        client, near = self.connect(buffer=buffer)
        return self.trust.wrap_socket(client, server_hostname="127.0.0.1", suppress_ragged_eofs=False), near

    def count(self, counter: int) -> int:
        return self.block.counter(counter)


@pytest.fixture
def waiting_max() -> int:
    return tls_worker.WAITING_MAX


@pytest.fixture
def handshake_s() -> float:
    return SECONDS


@pytest.fixture
def rig(tmp_path: Path, waiting_max: int, handshake_s: float) -> Iterator[Rig]:
    made = Rig(tmp_path, waiting_max, handshake_s)
    made.start()
    yield made
    made.stop()


def exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        assert piece, f"closed with {size - len(data)} bytes missing"
        data += piece
    return bytes(data)


def is_reset(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except OSError:
        return True


@pytest.mark.parametrize("size", [1, 100, 16_384, 16_385, 65_536, 300_000, 3_000_000])
def test_bytes_cross_whole_and_in_order(rig: Rig, size: int) -> None:
    client, near = rig.open()
    there, back = random.Random(size).randbytes(size), random.Random(-size).randbytes(size)
    with client, near:
        for source, target, data in ((client, near, there), (near, client, back)):
            sender = threading.Thread(target=source.sendall, args=(data,))
            sender.start()
            assert exactly(target, size) == data
            sender.join()


def test_both_directions_at_once_with_small_buffers_and_slow_readers(rig: Rig) -> None:
    """No direction waits for the other: both senders are blocked, and each reader alone sets its own free."""
    client, near = rig.open(buffer=65_536)
    size = 2_000_000
    data = random.Random(7).randbytes(size)
    with client, near:
        up = threading.Thread(target=client.sendall, args=(data,))
        down = threading.Thread(target=near.sendall, args=(data,))
        for sender in (up, down):
            sender.start()
        assert exactly(near, size) == data
        assert exactly(client, size) == data
        for sender in (up, down):
            sender.join()


def test_a_slow_client_does_not_delay_another(rig: Rig) -> None:
    slow, slow_near = rig.open(buffer=65_536)
    other, other_near = rig.open()
    with slow, slow_near, other, other_near:
        slow_near.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            slow_near.sendall(bytes(20_000_000))
        other.sendall(b"ping")
        assert exactly(other_near, 4) == b"ping"
        other_near.sendall(b"pong")
        assert exactly(other, 4) == b"pong"


@pytest.mark.parametrize("waiting_max", [100_000])
def test_clients_that_do_not_read_are_closed_at_the_bound(rig: Rig) -> None:
    """The connection that has waited longest goes first; a connection that reads stays."""
    reading, reading_near = rig.open()
    silent = [rig.open(buffer=65_536) for _ in range(4)]
    for _, near in silent:
        near.settimeout(0.2)
        with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
            near.sendall(bytes(20_000_000))
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_UNREAD_CLOSED) >= 1, SECONDS)
    assert rig.count(lib.RP_COUNT_TLS_UNREAD_CLOSED) < 4
    reading.sendall(b"ping")
    assert exactly(reading_near, 4) == b"ping"
    for end in (reading, reading_near, *(end for pair in silent for end in pair)):
        end.close()


def test_the_client_ends_and_the_selector_reads_what_came_before(rig: Rig) -> None:
    client, near = rig.open()
    with near:
        client.sendall(b"last words")
        client.close()
        assert exactly(near, 10) == b"last words"
        assert near.recv(1) == b""


def test_the_selector_ends_and_the_client_reads_a_farewell(rig: Rig) -> None:
    client, near = rig.open()
    with client:
        near.sendall(b"last words")
        near.close()
        assert exactly(client, 10) == b"last words"
        assert client.recv(1) == b"", "TLS's own end, not a cut connection (suppress_ragged_eofs is off)"


def test_at_a_stop_the_client_has_every_answer_and_then_a_reset(rig: Rig) -> None:
    """Fault: A stop ended TLS connections with FIN, after which a Java client waited out the timeout of its request."""
    answer = random.Random(6).randbytes(200_000)
    client, near = rig.open(buffer=65_536)
    idle, idle_near = rig.open()
    with client, idle:
        for stream, peer in ((client, near), (idle, idle_near)):
            stream.sendall(b"x")
            assert exactly(peer, 1) == b"x", "the handshake is complete on both sides"
        rig.block.order(STOP_INTAKE)
        leaving = threading.Thread(target=lambda: (near.sendall(answer), near.close()))
        leaving.start()
        idle_near.close()
        assert exactly(client, len(answer)) == answer
        leaving.join()
        for stream in (client, idle):
            with pytest.raises(ConnectionResetError):
                socket.socket.recv(stream, 1)  # below TLS, which calls a reset an end


def test_at_a_stop_a_client_that_acknowledges_nothing_delays_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: Clients were looked at in turn: the first that had not acknowledged its bytes held back all resets."""
    looks: Counter[int] = Counter()
    slow, slow_near = rig.open()
    other, other_near = rig.open()
    slow_port = slow.getsockname()[1]

    def unacknowledged_bytes(client: socket.socket) -> int:
        port = client.getpeername()[1]
        looks[port] += 1
        return port == slow_port or looks[port] < 3

    monkeypatch.setattr(tls_worker, "unacknowledged_bytes", unacknowledged_bytes)
    monkeypatch.setattr(tls_worker, "FAREWELL_S", 10 * SECONDS)
    monkeypatch.setattr(tls_worker, "STOP_S", 0.1)
    with slow, other:
        for stream, peer in ((slow, slow_near), (other, other_near)):
            stream.sendall(b"x")
            assert exactly(peer, 1) == b"x", "the handshake is complete on both sides"
        rig.block.order(STOP_INTAKE)
        slow_near.close()
        wait_until(lambda: looks[slow_port], SECONDS)
        other_near.close()
        with pytest.raises(ConnectionResetError):
            socket.socket.recv(other, 1)
        assert looks[slow_port] >= 2 and rig.count(lib.RP_COUNT_TLS_UNREAD_CLOSED) == 0


def test_at_a_stop_a_client_that_has_reset_is_not_waited_for(rig: Rig) -> None:
    client, near = rig.open(buffer=65_536)
    client.sendall(b"x")
    assert exactly(near, 1) == b"x", "the handshake is complete on both sides"
    rig.block.order(STOP_INTAKE)
    near.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while near.send(bytes(65_536)):
            pass
    near.close()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_CONNECTIONS) == 0, SECONDS)


def test_a_client_that_never_reads_does_not_outlive_its_selector_for_long(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A connection whose client read nothing stayed in the TLS worker for ever when its selector closed."""
    monkeypatch.setattr(tls_worker, "FAREWELL_S", 0.1)
    client, near = rig.open(buffer=65_536)
    other, other_near = rig.open()
    with client, other, other_near:
        near.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            near.sendall(bytes(20_000_000))
        near.close()
        wait_until(lambda: rig.count(lib.RP_COUNT_TLS_CONNECTIONS) == 1, SECONDS)
        assert rig.count(lib.RP_COUNT_TLS_UNREAD_CLOSED) == 1
        with pytest.raises(OSError):
            while client.recv(65_536):
                pass
        other.sendall(b"ping")
        assert exactly(other_near, 4) == b"ping"


def test_garbage_after_the_first_byte_ends_that_connection_only(rig: Rig) -> None:
    client, near = rig.connect()
    with client, near:
        client.sendall(b"\x16\x03\x01" + random.Random(3).randbytes(2000))
        with contextlib.suppress(ConnectionResetError):
            while client.recv(4096):  # an alert, then the end
                pass
        assert near.recv(1) == b""
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_FAILED) == 1, SECONDS)
    other, other_near = rig.open()
    with other, other_near:
        other.sendall(b"x")
        assert exactly(other_near, 1) == b"x"


def test_a_client_that_is_refused_reads_why_whatever_it_has_sent(rig: Rig) -> None:
    """Fault: A broker reset the connection of a refused client that had sent more, so that it did not see the alert."""
    client, near = rig.connect()
    with client, near:
        client.sendall(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00" + bytes(100_000))
        alert = exactly(client, 7)
        assert alert[:1] == b"\x15" and client.recv(1) == b"", "the end is no reset"


def test_garbage_in_place_of_a_record_ends_that_connection(rig: Rig) -> None:
    client, near = rig.open()
    with near:
        client.sendall(b"before")
        assert exactly(near, 6) == b"before"
        raw = socket.socket(fileno=client.detach())
        with raw:
            raw.sendall(bytes(100))
            assert near.recv(1) == b""


def test_a_flood_of_records_without_data_ends_that_connection(rig: Rig) -> None:
    """Its selector reads what came before; others are served meanwhile.

    Fault: A client that sent updates of keys stopped a TLS worker: one read of OpenSSL handled as many as came."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(trust)
    client, near = rig.connect()
    flooder, records = connect_13(trust, client, rig.directory)
    other, other_near = rig.open()
    with flooder, near, other, other_near:
        flooder.sendall(records.data(b"before"))
        assert exactly(near, 6) == b"before"
        with contextlib.suppress(OSError):
            for _ in range(100):
                flooder.sendall(records.key_updates(SILENT_BYTES_MAX))
                other.sendall(b"ping")
                assert exactly(other_near, 4) == b"ping"
                if is_readable(near.fileno(), 0):
                    break
        assert near.recv(1) == b""
        wait_until(lambda: rig.count(lib.RP_COUNT_TLS_FAILED) == 1, SECONDS)
        near.sendall(b"answer")  # the selector closes as after any other end
        near.close()
        other.sendall(b"ping")
        assert exactly(other_near, 4) == b"ping"


@pytest.mark.parametrize("is_requested", [False, True])
def test_a_turn_reads_one_part_of_records_without_data(tmp_path: Path, is_requested: bool) -> None:
    """Also between data. Answers that the client does not read end it."""
    with opened_tunnel(Rig(tmp_path)) as (pump, tunnel, records, far, near):
        sent = 0
        while tunnel.failure is None and sent < 2_000_000:
            far.sendall(flood := records.data(b"x") + records.key_updates(40_000, is_requested=is_requested))
            sent += len(flood)
            left = unread(tunnel.client)
            while left and tunnel.failure is None:
                pump.turn(0)
                assert 0 < left - unread(tunnel.client) <= tls_worker.PART
                left = unread(tunnel.client)
            assert tunnel.session.outgoing_bytes <= 2 * SILENT_BYTES_MAX
        assert exactly(near, 1) == b"x"
        assert (tunnel.failure is not None) == is_requested


def unread(stream: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4)))[0])


@contextlib.contextmanager
def opened_tunnel(
    rig: Rig,
) -> Iterator[tuple[tls_worker.Pump, tls_worker.Tunnel, Client13, socket.socket, socket.socket]]:
    """A pump with one connection, whose turns are the test's; what makes records, the client's end, the selector's."""
    rig.write_certificate()
    AUTHORITY.configure_trust(rig.trust)
    session, doorbell = TlsSession.server(Certificates.of_server(rig.tls()).context), os.eventfd(0)
    log, client = KeyLog(rig.trust, rig.directory / "keys"), TlsSession.client(rig.trust, "127.0.0.1")
    for _ in range(2):
        session.receive(client.take_outgoing())
        client.receive(session.take_outgoing())
    cipher = client._tls.cipher()
    assert cipher is not None
    with contextlib.ExitStack() as stack:
        far, accepted = map(stack.enter_context, socket.socketpair())
        near, inner = map(stack.enter_context, socket.socketpair())
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for end in (accepted, inner):
            end.setblocking(False)
        pump = tls_worker.Pump(doorbell, tls_worker.WAITING_MAX)
        tunnel = tls_worker.Tunnel(accepted, inner, session)
        pump.add(tunnel)
        yield pump, tunnel, log.client_13(cipher[0]), far, near
        pump.close()
    os.close(doorbell)
    for end in (*rig.pair, *rig.ha_pair, rig.listener):
        end.close()


def test_a_selector_that_has_gone_during_a_handshake_costs_that_connection_only(rig: Rig) -> None:
    """Its client has sent a request behind the handshake, which is read when the pump gets the connection.

    Fault: A selector that died during a handshake ended the TLS worker, and so the connections of all others."""
    far, accepted = socket.socketpair()
    near, inner = socket.socketpair()
    doorbell = os.eventfd(0)
    with far, near:
        client = threading.Thread(target=send_one, args=(rig.trust, far))
        client.start()
        session, early = TlsSession.server(Certificates.of_server(rig.tls()).context), b""
        while not early:
            early = session.receive(accepted.recv(65_536))
            accepted.sendall(session.take_outgoing())
        client.join()
        near.close()
        pump = tls_worker.Pump(doorbell, tls_worker.WAITING_MAX)
        pump.add(tls_worker.Tunnel(accepted, inner, session), early)
        assert len(pump) == 0
    os.close(doorbell)


def send_one(trust: ssl.SSLContext, plain: socket.socket) -> None:
    with trust.wrap_socket(plain.dup(), server_hostname="127.0.0.1") as stream:
        stream.sendall(b"nobody reads this")


@pytest.mark.parametrize("handshake_s", [0.05])
def test_a_client_that_stops_in_the_middle_of_a_handshake_is_closed(rig: Rig) -> None:
    client, near = rig.connect()
    with client, near:
        client.sendall(b"\x16\x03\x01")
        assert is_reset(client)
        assert near.recv(1) == b""
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_TIMED_OUT) == 1, SECONDS)


def test_many_half_handshakes_of_one_address_cost_its_oldest(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "TLS_WORKER_HANDSHAKES_MAX", 8)
    half = [rig.connect() for _ in range(20)]
    for client, _ in half:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):  # the first ones are closed already
            client.sendall(b"\x16\x03\x01")
    client, near = rig.open()  # the last one is served
    with client, near:
        client.sendall(b"x")
        assert exactly(near, 1) == b"x"
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_REFUSED) >= 12, SECONDS)
    assert is_reset(half[0][0])
    for some in half:
        for end in some:
            end.close()


def test_clients_that_flood_a_tls_worker_do_not_keep_a_slave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However full the way of the selectors is, and from however many addresses its half handshakes come.

    Fault: The replicator passed slaves by the way of the selectors, which a flood of handshakes kept full."""
    monkeypatch.setattr(tls_handshakes, "TLS_WORKER_HANDSHAKES_MAX", 4)
    rig, completed, hosts = Rig(tmp_path), list[tls_handshakes.Handshake](), itertools.count(1)
    rig.write_certificate()
    AUTHORITY.configure_trust(rig.trust)
    rig.pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # it is soon full
    ways = [rig.pair[1], rig.ha_pair[1]]
    worker = tls_handshakes.HandshakeLoop(ways, Certificates.of_server(rig.tls()), completed.append)
    with contextlib.ExitStack() as stack:

        def connect(way: socket.socket, host: str) -> socket.socket | None:
            client, accepted = map(stack.enter_context, socket.socketpair())
            plain = pass_to_tls(way, accepted, Peer(host, 1))
            accepted.close()
            return None if plain is None else stack.enter_context(plain) and client

        def flood() -> None:
            while (client := connect(rig.pair[0], str(IPv4Address(next(hosts))))) is not None:
                client.sendall(b"\x16\x03\x01")

        flood()
        slave = connect(rig.ha_pair[0], "127.0.0.1")
        assert slave is not None, "the way of the replicator has room"
        session = TlsSession.client(rig.trust, "127.0.0.1")
        slave.setblocking(False)
        for _ in range(4):
            slave.sendall(session.take_outgoing())
            worker.turn(0)
            flood()
            with contextlib.suppress(BlockingIOError):
                session.receive(slave.recv(65_536))
        assert [handshake.peer for handshake in completed] == [Peer("127.0.0.1", 1)]
        completed[0].close()
        worker.stop()
        worker.run()
    for end in (*rig.pair, *rig.ha_pair, rig.listener):
        end.close()


def test_a_new_certificate_serves_new_connections(rig: Rig) -> None:
    client, near = rig.open()
    old = client.getpeercert(binary_form=True)
    rig.write_certificate()
    wait_until(lambda: rig.count(lib.RP_COUNT_TLS_RELOADS) == 1, SECONDS)
    other, other_near = rig.open()
    with client, near, other, other_near:
        assert other.getpeercert(binary_form=True) != old
        client.sendall(b"x")
        assert exactly(near, 1) == b"x"


def test_a_handshake_that_is_complete_at_the_stop_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last turn is over; the client sees a reset, and no descriptor is left."""
    rig = Rig(tmp_path)
    rig.start()
    (stream, client), (inner, near) = socket.socketpair(), socket.socketpair()
    session = TlsSession.server(Certificates.of_server(rig.tls()).context)
    late = tls_handshakes.Handshake(Arrival(stream, inner, Peer("127.0.0.1", 1)), session, 0.0, way=0)
    stop = tls_handshakes.HandshakeLoop.stop

    def stop_late(handshakes: tls_handshakes.HandshakeLoop) -> None:
        handshakes.completed(late)
        stop(handshakes)

    monkeypatch.setattr(tls_handshakes.HandshakeLoop, "stop", stop_late)
    rig.stop()
    with client, near:
        assert stream.fileno() == inner.fileno() == -1


def test_at_the_stop_clients_get_the_rest_of_their_answers(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.start()
    client, near = rig.open(buffer=65_536)
    client.sendall(b"x")
    assert exactly(near, 1) == b"x", "the handshake is complete on both sides"
    answer = random.Random(5).randbytes(500_000)
    stopper = threading.Thread(target=rig.stop)

    def leave() -> None:
        near.sendall(answer)
        near.close()

    selector = threading.Thread(target=leave)
    selector.start()
    stopper.start()
    time.sleep(0.1)  # the worker is leaving, and the client has read nothing
    with client:
        assert exactly(client, len(answer)) == answer
    selector.join()
    stopper.join()
