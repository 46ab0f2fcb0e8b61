"""The HA port tells TLS from plain bytes by the first one, passes TLS to a worker, and goes on with its plain bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.handoff import handoff_pair
from rocketpy.reactor.tls_handshakes import Arrival, take_arrival
from tests.support.master_rig import MasterRig
from tests.support.own_frames import MAGIC
from tests.support.waiting import wait_until

HELLO = b"\x16\x03\x01"


@pytest.fixture
def worker() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(the replicator's end, the TLS worker's end)"""
    pair = handoff_pair()
    yield pair
    for end in pair:
        end.close()


def arrival_at(worker: socket.socket) -> Arrival:
    arrival = take_arrival(worker)
    assert arrival is not None
    return arrival


def test_a_connection_by_tls_is_passed_on_and_its_plain_bytes_are_served(
    open_rig: Callable[..., MasterRig], worker: tuple[socket.socket, socket.socket]
) -> None:
    rig = open_rig(tls_workers=[worker[0]])
    log = rig.append(100_000)
    slave = rig.connect()
    rig.say_bytes(slave, HELLO)
    arrival = arrival_at(worker[1])
    assert arrival.client.recv(10) == HELLO, "nothing was read of it"
    assert (arrival.peer.host, arrival.peer.port) == slave.getsockname()
    assert [state.address for state in rig.slaves()] == [f"127.0.0.1:{arrival.peer.port}"]
    arrival.inner.setblocking(False)
    arrival.inner.sendall((0).to_bytes(8, "big"))
    assert rig.received(arrival.inner, len(log))[12 : 12 + 1000] == log[:1000]
    arrival.close()
    rig.turn_until(lambda: rig.table.closed()["left"] == 1)


@pytest.mark.parametrize("first", [b"\0", MAGIC, b"GET /"])
def test_plain_bytes_are_refused_where_tls_is_required(
    open_rig: Callable[..., MasterRig],
    worker: tuple[socket.socket, socket.socket],
    first: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = open_rig(tls_workers=[worker[0]], is_tls_required=True)
    rig.append(1000)
    slave = rig.connect()
    slave.sendall(first)
    rig.wait_until_closed(slave)
    assert rig.table.closed()["plain"] == 1 and not rig.table.sent_bytes
    assert (
        "it is not encrypted, and tls.server.mode is enforcing here; set useTLS=true and haUseTLS=true" in caplog.text
    )


def test_plain_slaves_are_served_beside_tls(
    open_rig: Callable[..., MasterRig], worker: tuple[socket.socket, socket.socket]
) -> None:
    rig = open_rig(tls_workers=[worker[0]])
    log = rig.append(1000)
    assert rig.received(rig.connect(0), 1000)[12:] == log


def test_tls_without_workers_is_refused(open_rig: Callable[..., MasterRig], caplog: pytest.LogCaptureFixture) -> None:
    rig = open_rig()
    slave = rig.connect()
    slave.sendall(HELLO)
    rig.wait_until_closed(slave)
    assert rig.table.closed()["no_tls"] == 1
    assert "it speaks TLS, and tls.server.mode is disabled here" in caplog.text


def test_a_worker_that_is_behind_costs_the_connection_only(
    open_rig: Callable[..., MasterRig], worker: tuple[socket.socket, socket.socket]
) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            worker[0].send(bytes(20))
    rig = open_rig(tls_workers=[worker[0]])
    log = rig.append(1000)
    slave, other = rig.connect(), rig.connect(0)
    slave.sendall(HELLO)
    rig.wait_until_closed(slave)
    assert rig.table.closed()["no_tls"] == 1
    assert rig.received(other, 1000)[12:] == log


def test_a_connection_that_stays_in_its_handshake_is_closed_in_time(
    open_rig: Callable[..., MasterRig], worker: tuple[socket.socket, socket.socket]
) -> None:
    rig = open_rig(tls_workers=[worker[0]])
    slave = rig.connect()
    rig.say_bytes(slave, HELLO)
    arrival = arrival_at(worker[1])
    rig.pass_time(20.1)
    wait_until(lambda: rig.table.closed()["silent"] == 1, "the master to close it")
    assert arrival.inner.recv(1) == b""
    arrival.close()
