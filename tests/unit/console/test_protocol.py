"""Connections of the console whose clients do not read their answers: they end. Odd requests do not fill the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from rocketpy.console import server
from rocketpy.console.alarm_file import AlarmSettings
from rocketpy.console.settings import ConsoleSettings
from rocketpy.logs import LogLimit
from tests.support.cases import cases
from tests.support.certificates import Authority

uvicorn = pytest.importorskip("uvicorn")

ANSWERED_S = 0.5
BODY = bytes(8 << 20)  # more than sockets hold
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
STUCK = [
    REQUEST,  # complete, and in the buffer of the transport
    REQUEST * 3,  # the second one waits for the buffer
    LAST_REQUEST,  # closing, which waits for the buffer
    REQUEST + b"?\r\n\r\n",  # what follows is no request: closing
]


async def page(scope: Any, receive: Any, send: Any) -> None:
    length = str(len(BODY)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": BODY})


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWERED_S", ANSWERED_S)


def connect(port: int, sent: bytes, context: ssl.SSLContext | None) -> socket.socket:
    """Send requests on a connection that takes little."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
    connection.sendall(sent)
    return connection


async def ends_unread(sent: bytes, theirs: ssl.SSLContext | None = None, ours: ssl.SSLContext | None = None) -> None:
    """Check that the server forgets a connection whose client sends this and reads nothing."""
    config = uvicorn.Config(
        page, http=server._protocol(), ws="none", lifespan="off", log_config=None, timeout_keep_alive=1
    )
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    kind: Any = config.http_protocol_class
    listening = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0, ssl=theirs)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with contextlib.closing(await asyncio.to_thread(connect, port, sent, ours)):
            async with asyncio.timeout(20):
                while not state.total_requests or state.connections or state.tasks:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


@cases("sent", STUCK)
def test_connections_that_are_not_read_are_aborted(sent: bytes, brief: None) -> None:
    """Fault: Connections whose clients read no answer were kept for ever, also after the console had closed them."""
    asyncio.run(ends_unread(sent))


@cases("sent", STUCK)
def test_connections_by_tls_that_are_not_read_are_aborted(sent: bytes, brief: None, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue()
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(issued.certificate, issued.key)
    asyncio.run(ends_unread(sent, theirs, ssl.create_default_context(cafile=str(authority.ca_file))))


def test_a_client_that_reads_gets_its_answers(brief: None) -> None:
    """A connection may be idle for longer than an answer may take."""

    async def main() -> None:
        config = uvicorn.Config(page, http=server._protocol(), ws="none", lifespan="off", log_config=None)
        config.load()
        state = uvicorn.server.ServerState()
        kind: Any = config.http_protocol_class
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(len(BODY)) == BODY
                await asyncio.sleep(2 * ANSWERED_S)
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


ODD_REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n",
    b"?\r\n\r\n",
)


def test_odd_requests_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Each request to upgrade its connection, and each that is none, was lines in the log."""
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "filters", [])
    settings, answers = ConsoleSettings(port=0), []

    async def empty(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    def ask(port: int) -> None:
        for sent in ODD_REQUESTS * 10:
            with contextlib.closing(connect(port, sent, None)) as connection:
                answers.append(connection.recv(4096).partition(b"\r\n")[0])

    async def main() -> None:
        serving = server._Serving(settings, AlarmSettings(), None, server._Certificates(settings))
        with contextlib.closing(server.listener(settings)) as listening:
            task = asyncio.create_task(serving._serve(empty, listening))
            await asyncio.to_thread(ask, listening.getsockname()[1])
            signal.raise_signal(signal.SIGTERM)
            await task

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert answers == [b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request"] * 10
    lines = [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"]
    assert sorted(line.partition(".")[0] for line in lines) == [
        "Invalid HTTP request received",
        "No supported WebSocket library detected",
        "Unsupported upgrade request",
    ]


def test_a_limited_line_tells_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = server.LimitedLines()
    now_s = [0.0]
    monkeypatch.setattr(lines, "_limit", LogLimit(10.0, lambda: now_s[0]))
    told = []
    for moment_s in (0.0, 1.0, 2.0, 11.0):
        now_s[0] = moment_s
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "h11_impl.py", 7, "odd from %s", ("a",), None)
        if lines.filter(record):
            told.append(record.getMessage())
    assert told == ["odd from a", "odd from a (and 2 more since the last line about it)"]
