"""The first byte of a connection tells TLS from plain frames; what begins with a handshake goes to a TLS worker.

Held: no byte of the client is taken from its socket before; the connection goes on with the same number and peer.
"""

from __future__ import annotations

import socket

import pytest

from rocketpy.native.core import lib
from rocketpy.networks import parse_networks
from rocketpy.reactor.selector import network_array
from rocketpy.reactor.tls_handshakes import Arrival, take_arrival
from tests.support.selector_rig import SelectorRig, body_of, frame

HELLO = b"\x16\x03\x01\x00\x05hello"


def arrived(rig: SelectorRig, worker: int = 0) -> Arrival | None:
    try:
        return take_arrival(rig.tls[worker][1])
    except BlockingIOError:
        return None


def test_a_handshake_goes_to_the_tls_worker_with_its_first_byte(make_rig) -> None:
    rig = make_rig(tls_workers=1)
    client = rig.connect()
    client.sendall(HELLO)
    arrival = rig.turn_until(lambda: arrived(rig))
    assert arrival.client.recv(100) == HELLO
    assert (arrival.peer.host, arrival.peer.port) == client.getsockname()
    assert rig.open_count == 1
    arrival.close()


def test_plain_bytes_of_the_tls_worker_are_the_connections(make_rig) -> None:
    rig = make_rig(tls_workers=1)
    client = rig.connect(listener=1)
    client.sendall(HELLO)
    arrival = rig.turn_until(lambda: arrived(rig))
    arrival.inner.sendall(frame(b"decrypted"))
    record = rig.next()
    assert body_of(record.frame) == b"decrypted"
    assert (record.peer, record.listener) == (client.getsockname(), 1)
    rig.reply(record.connection, b"answer")
    assert rig.receive(arrival.inner, 6) == b"answer"
    arrival.close()
    assert rig.next().kind == lib.RP_MSG_CLOSED
    assert rig.open_count == 0


def test_a_plain_connection_stays_with_the_selector(make_rig) -> None:
    rig = make_rig(tls_workers=1)
    client = rig.connect()
    client.sendall(frame(b"plain"))
    assert body_of(rig.next().frame) == b"plain"
    client.sendall(frame(b"more"))
    assert body_of(rig.next().frame) == b"more"
    assert arrived(rig) is None


def test_a_plain_connection_is_closed_where_tls_is_required(make_rig) -> None:
    rig = make_rig(tls_workers=1, is_tls_required=1)
    client = rig.connect()
    client.sendall(frame(b"plain"))
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_PLAIN_REFUSED) == 1
    assert rig.records() == []


def test_without_tls_workers_a_handshake_is_a_bad_frame(make_rig) -> None:
    rig = make_rig()
    client = rig.connect()
    client.sendall(HELLO)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_FRAMES_BAD) == 1


def test_connections_are_spread_over_the_tls_workers(make_rig) -> None:
    rig = make_rig(tls_workers=2)
    for _ in range(4):
        rig.connect().sendall(HELLO)
    found = [[], []]

    def all_here() -> bool:
        for worker in range(2):
            while (arrival := arrived(rig, worker)) is not None:
                found[worker].append(arrival)
        return sum(map(len, found)) == 4

    rig.turn_until(all_here)
    assert [len(some) for some in found] == [2, 2]
    for arrival in (*found[0], *found[1]):
        arrival.close()


def test_a_worker_that_is_behind_costs_the_connection_and_not_the_selector(make_rig) -> None:
    rig = make_rig(tls_workers=1)
    full = rig.tls[0][0]
    with pytest.raises(BlockingIOError):
        while True:
            full.send(bytes(20))
    client = rig.connect()
    client.sendall(HELLO)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_TLS_REFUSED) == 1 and rig.counter(lib.RP_COUNT_CONNECTIONS_REFUSED) == 0
    other = rig.connect()
    other.sendall(frame(b"plain"))
    assert body_of(rig.next().frame) == b"plain"


@pytest.mark.parametrize("size", [1, 7, 200])
def test_a_silent_connection_waits_and_a_handshake_may_follow_a_proxy_header(make_rig, size: int) -> None:
    """In pieces of `size` bytes: no byte after the header is the selector's."""
    rig = make_rig(tls_workers=1, proxies=network_array(parse_networks("127.0.0.0/8")), proxy_count=1)
    client = rig.connect()
    rig.turn()
    data = b"PROXY TCP4 203.0.113.9 192.0.2.1 50000 10911\r\n" + HELLO
    for at in range(0, len(data), size):
        client.sendall(data[at : at + size])
        rig.turn()
    arrival = rig.turn_until(lambda: arrived(rig))
    assert (arrival.peer.host, arrival.peer.port) == ("203.0.113.9", 50000)
    got = b""
    while len(got) < len(HELLO):
        got += arrival.client.recv(100)
    assert got == HELLO
    arrival.close()


def test_a_connection_that_closes_without_a_byte_is_no_fault(make_rig) -> None:
    rig = make_rig(tls_workers=1)
    client = rig.connect()
    client.shutdown(socket.SHUT_WR)
    assert rig.is_closed(client)
    assert rig.open_count == 0
