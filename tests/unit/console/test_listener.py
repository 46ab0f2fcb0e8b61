"""The socket on which the console listens: how many connections it has at most."""

from __future__ import annotations

import contextlib
import socket

import pytest

from rocketpy.console import server
from rocketpy.console.settings import ConsoleSettings


def test_connections_beyond_the_limit_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that say nothing took all descriptors, and each attempt to accept one more was a line in the log."""
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(server.listener(ConsoleSettings(port=0)))

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(listening.getsockname(), 5))

        def accept() -> socket.socket:
            return stack.enter_context(listening.accept()[0])

        connect()
        first = accept()
        connect()
        accept()
        third = connect()
        with pytest.raises(BlockingIOError):
            accept()
        with contextlib.suppress(ConnectionError):
            assert third.recv(1) == b""
        first.close()
        connect()
        assert accept().fileno() >= 0


def test_connections_of_one_address_beyond_its_share_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: One host held all connections of the console, and locked everybody out."""
    monkeypatch.setattr(server, "CLIENT_CONNECTIONS_MAX", 1)
    with contextlib.ExitStack() as stack:
        settings = ConsoleSettings(port=0, proxies=("127.0.0.9",))
        listening = stack.enter_context(server.listener(settings))

        def connect(source: str) -> socket.socket:
            where = listening.getsockname()
            return stack.enter_context(socket.create_connection(where, 5, source_address=(source, 0)))

        def accept() -> str:
            connection, address = listening.accept()
            stack.enter_context(connection)
            return str(address[0])

        connect("127.0.0.2")
        assert accept() == "127.0.0.2"
        refused = connect("127.0.0.2")
        with pytest.raises(BlockingIOError):
            accept()
        with contextlib.suppress(ConnectionError):
            assert refused.recv(1) == b""
        for other in ("127.0.0.3", "127.0.0.9", "127.0.0.9"):  # the last one is the proxy of many browsers
            connect(other)
            assert accept() == other
