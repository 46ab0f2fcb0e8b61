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
