"""Cuts of the network between places: silent, one way or both, and undone."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.ha.network import CLIENTS, MISSING, OCTETS, Network, is_possible, network, subnets_of_routes

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 4000))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(100):
        connection.sendall(data)
"""


def echoed(connection: socket.socket, data: bytes, wait_s: float) -> bytes:
    """Return the bytes that come back until then; TCP repeats lost ones."""
    connection.settimeout(wait_s)
    try:
        connection.sendall(data)
        return connection.recv(100)
    except TimeoutError:
        return b""


@contextmanager
def echoing() -> Iterator[Network]:
    """Two networks; a server in `a` sends back the bytes that it gets."""
    with network("a", "b") as places:
        words = places.command("a", [sys.executable, "-c", ECHO, places.address("a")])
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == "ready\n"
                yield places
            finally:
                server.kill()


@pytest.mark.skipif(not is_possible(), reason=MISSING)
@pytest.mark.parametrize("directions", [[(CLIENTS, "a")], [("a", CLIENTS)], [(CLIENTS, "a"), ("a", CLIENTS)]])
def test_a_cut_is_silent_and_can_be_undone(directions: list[tuple[str, str]]) -> None:
    with echoing() as places:
        check(places, directions)


@pytest.mark.skipif(not is_possible(), reason=MISSING)
def test_a_bad_link_is_bad_while_it_is_there() -> None:
    with echoing() as places, socket.create_connection((places.address("a"), 4000), 30.0) as connection:
        with places.bad_link(CLIENTS, "a", delay_ms=1, jitter_ms=5, loss=0.0, seed=1):
            assert echoed(connection, b"late", 30.0) == b"late"
        with places.bad_link(CLIENTS, "a", delay_ms=0, jitter_ms=0, loss=1.0, seed=1):
            assert echoed(connection, b"lost", 0.5) == b""
        assert echoed(connection, b"", 30.0) == b"lost", "it was sent again"


@pytest.mark.skipif(not is_possible(), reason=MISSING)
def test_two_networks_at_once_have_subnets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of processes whose ids differ by a multiple of the number of subnets."""
    first = os.getpid()
    with network("a") as one:
        monkeypatch.setattr(os, "getpid", lambda: first + len(OCTETS))
        with network("a") as other:
            assert one.subnet != other.subnet
            for places in (one, other):
                with pytest.raises(ConnectionRefusedError):  # it is reached, and nobody listens there
                    socket.create_connection((places.address("a"), 4000), 30.0)


@pytest.mark.skipif(not is_possible(), reason=MISSING)
def test_a_subnet_that_has_a_route_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container network, or of a test that was killed."""
    with network() as places:
        taken = ipaddress.ip_network(places.subnet)
        assert taken in subnets_of_routes()
    monkeypatch.setattr("tests.support.ha.network.subnets_of_routes", lambda: [taken])
    with network() as places:
        assert ipaddress.ip_network(places.subnet) != taken


def check(places: Network, directions: list[tuple[str, str]]) -> None:
    with socket.create_connection((places.address("a"), 4000), 30.0) as connection:
        assert echoed(connection, b"before", 30.0) == b"before"
        for source, target in directions:
            places.cut(source, target)
        assert echoed(connection, b"during", 0.5) == b""
        with pytest.raises(TimeoutError):
            socket.create_connection((places.address("a"), 4000), 0.3)
        for source, target in directions:
            places.join(source, target)
        assert echoed(connection, b"", 30.0) == b"during", "the connection has outlived the cut"
