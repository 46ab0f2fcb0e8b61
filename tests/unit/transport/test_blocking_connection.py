"""Requests without an event loop, against a peer that is written out: a thread with the other end of the connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from rocketpy.codes import RequestCode
from rocketpy.errors import ConnectFailed, ConnectionLost, RemoteProtocolError, RequestTimeout, TooManyRequests
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, RequestReceived
from rocketpy.transport import blocking_connection
from rocketpy.transport.blocking_connection import BlockingConnection

WAIT_S = 30.0
Peer = Callable[[socket.socket], None]


@contextmanager
def connected(peer: Peer, wait_s: float = WAIT_S) -> Iterator[BlockingConnection]:
    """A connection to a thread that runs `peer` with its end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = BlockingConnection(f"127.0.0.1:{listener.getsockname()[1]}", WAIT_S)
        end = listener.accept()[0]
    connection.limit_waits(wait_s)

    def run() -> None:
        with end, suppress(ConnectionError):  # the test may close its end with unread bytes
            peer(end)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield connection
    finally:
        connection.close()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def requests_of(end: socket.socket, count: int) -> list[RemotingCommand]:
    """The first requests that come."""
    protocol: Connection[None] = Connection()
    found: list[RemotingCommand] = []
    while len(found) < count:
        protocol.receive_data(end.recv(65_536))
        while isinstance(event := protocol.next_event(), RequestReceived):
            found.append(event.command)
    return found


def response_to(request: RemotingCommand, body: bytes | None) -> bytes:
    return RemotingCommand.response(body=body).answering(request).encode()


def asked(count: int) -> list[RemotingCommand]:
    return [RemotingCommand.request(RequestCode.PULL_MESSAGE) for _ in range(count)]


@pytest.mark.parametrize("body", [None, b"x", bytes(range(256)) * 8192], ids=["none", "short", "2 MiB"])
@pytest.mark.parametrize("piece", [1 << 30, 7])
def test_a_response_is_read_whole_however_it_comes(body: bytes | None, piece: int) -> None:
    if body and len(body) > 256:
        piece *= 1000

    def answer(end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests_of(end, 2):
            frame = response_to(request, body)
            for at in range(0, len(frame), piece):
                end.sendall(frame[at : at + piece])
        end.recv(1)  # until the other end is closed

    with connected(answer) as connection:
        requests = asked(2)
        connection.send(requests)
        assert not connection.is_reusable
        for request in requests:
            response = connection.response(request.opaque)
            assert (response.opaque, response.body) == (request.opaque, body)
        assert connection.is_reusable


def test_responses_in_another_order_are_kept() -> None:
    def answer(end: socket.socket) -> None:
        for request in reversed(requests_of(end, 3)):
            end.sendall(response_to(request, b"%d" % request.opaque))
        end.recv(1)

    with connected(answer) as connection:
        requests = asked(3)
        connection.send(requests)
        assert connection.response(1).body == b"1"
        assert not connection.is_reusable, "a response was not taken"
        assert [connection.response(opaque).body for opaque in (0, 2)] == [b"0", b"2"]


def test_what_comes_early_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never sends the first response cannot fill the memory with others."""
    monkeypatch.setattr(blocking_connection, "EARLY_SIZE_MAX", 2500)

    def answer(end: socket.socket) -> None:
        for request in requests_of(end, 5)[1:]:
            end.sendall(response_to(request, bytes(1000)))
        end.recv(1)

    with connected(answer) as connection:
        connection.send(asked(5))
        with pytest.raises(TooManyRequests, match="sent 3000 bytes before the response that is due"):
            connection.response(0)


def test_requests_of_the_peer_and_unknown_responses_are_dropped() -> None:
    def answer(end: socket.socket) -> None:
        (request,) = requests_of(end, 1)
        end.sendall(RemotingCommand.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED).encode())
        end.sendall(response_to(RemotingCommand(0, opaque=request.opaque + 7), b"other"))
        end.sendall(response_to(request, b"mine"))
        end.recv(1)

    with connected(answer) as connection:
        connection.send(asked(1))
        assert connection.response(0).body == b"mine"


@pytest.mark.parametrize("sent", [0, 3, 9, 40, 500])
def test_an_end_in_the_middle_is_an_error(sent: int) -> None:
    def answer(end: socket.socket) -> None:
        (request,) = requests_of(end, 1)
        end.sendall(response_to(request, bytes(1000))[:sent])

    with connected(answer) as connection:
        connection.send(asked(1))
        with pytest.raises(ConnectionLost, match="was closed by the peer"):
            connection.response(0)


@pytest.mark.parametrize("sent", [0, 9, 500])
def test_a_wait_ends_in_time(sent: int) -> None:
    def answer(end: socket.socket) -> None:
        (request,) = requests_of(end, 1)
        end.sendall(response_to(request, bytes(1000))[:sent])
        end.recv(1)

    with connected(answer, 0.05) as connection:
        connection.send(asked(1))
        with pytest.raises(RequestTimeout, match="neither sent nor read all"):
            connection.response(0)


@pytest.mark.parametrize("is_frame", [True, False])
def test_a_peer_that_sends_something_else_meanwhile_does_not_prolong_a_wait(is_frame: bool) -> None:
    """A task would wait for ever: each frame, and each byte of one, came before the timeout of a single call."""
    asked_for = RemotingCommand.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED).encode()

    def answer(end: socket.socket) -> None:
        (request,) = requests_of(end, 1)
        piece = asked_for if is_frame else response_to(request, bytes(1 << 20))
        with contextlib.suppress(OSError):
            while True:
                end.sendall(piece if is_frame else piece[:1])
                piece = piece if is_frame else piece[1:]
                time.sleep(0.01)

    with connected(answer, 0.2) as connection:
        connection.send(asked(1))
        with pytest.raises(RequestTimeout):
            connection.response(0)


def test_a_connection_with_a_request_sent_in_part_is_not_used_again() -> None:
    """The next request would begin in the middle of that one."""
    is_over = threading.Event()

    def answer(end: socket.socket) -> None:
        is_over.wait(WAIT_S)

    with connected(answer, 0.1) as connection:
        with pytest.raises(RequestTimeout):
            connection.send([RemotingCommand(RequestCode.PULL_MESSAGE, body=bytes(8 << 20)) for _ in range(4)])
        assert not connection.is_reusable
        is_over.set()


def test_bytes_that_are_no_frame_are_an_error() -> None:
    def answer(end: socket.socket) -> None:
        requests_of(end, 1)
        end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        end.recv(1)

    with connected(answer) as connection:
        connection.send(asked(1))
        with pytest.raises(RemoteProtocolError):
            connection.response(0)


def test_a_connection_that_the_peer_has_closed_is_not_used_again() -> None:
    closed = threading.Event()

    def leave(end: socket.socket) -> None:
        end.shutdown(socket.SHUT_RDWR)
        closed.set()

    with connected(leave) as connection:
        assert closed.wait(WAIT_S)
        assert not connection.is_reusable


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no port", "host.invalid:9876"])
def test_nobody_listens(address: str) -> None:
    with pytest.raises(ConnectFailed, match=f"connect to <{address}> failed"):
        BlockingConnection(address, 1.0)
