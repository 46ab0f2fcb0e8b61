"""Cuts of the network between places: silent, one way or both, and undone."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.support.ha.network import CLIENTS, MISSING, Network, is_possible, network

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
    """What comes back until then; TCP sends again what was lost."""
    connection.settimeout(wait_s)
    try:
        connection.sendall(data)
        return connection.recv(100)
    except TimeoutError:
        return b""


@pytest.mark.skipif(not is_possible(), reason=MISSING)
@pytest.mark.parametrize("directions", [[(CLIENTS, "a")], [("a", CLIENTS)], [(CLIENTS, "a"), ("a", CLIENTS)]])
def test_a_cut_is_silent_and_can_be_undone(directions: list[tuple[str, str]]) -> None:
    with network("a", "b") as places:
        words = places.command("a", [sys.executable, "-c", ECHO, places.address("a")])
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None and server.stdout.readline() == "ready\n"
                check(places, directions)
            finally:
                server.kill()


def check(places: Network, directions: list[tuple[str, str]]) -> None:
    with socket.create_connection((places.address("a"), 4000), 10.0) as connection:
        assert echoed(connection, b"before", 10.0) == b"before"
        for source, target in directions:
            places.cut(source, target)
        assert echoed(connection, b"during", 0.5) == b""
        with pytest.raises(TimeoutError):
            socket.create_connection((places.address("a"), 4000), 0.3)
        for source, target in directions:
            places.join(source, target)
        assert echoed(connection, b"", 20.0) == b"during", "the connection has outlived the cut"
