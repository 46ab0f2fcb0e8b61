"""Heads of requests: what is read, and what is refused."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.metrics.scrape import HEAD_BYTES_MAX, BadRequest, Request, encoded, parse_head, read_request
from tests.support.cases import cases

REQUEST = b"GET /metrics?queues=T HTTP/1.1\r\nHost: h\r\nAccept-Encoding:  gzip \r\nX: a:b\r\n\r\n"
READ = Request("GET", "/metrics", "queues=T", {"host": "h", "accept-encoding": "gzip", "x": "a:b"})


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: the client's end, and the other one."""
    client, server = socket.socketpair()
    server.settimeout(10)
    with client, server:
        yield client, server


@pytest.mark.parametrize("data", [REQUEST, REQUEST.replace(b"\r\n", b"\n"), REQUEST + b"a body"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_head_that_comes_in_pieces(data: bytes, size: int) -> None:
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # each piece is received alone
    with client, server:
        for start in range(0, len(data), size):
            client.send(data[start : start + size])
        assert read_request(server) == READ


def test_a_client_that_ends_has_no_request(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    client.sendall(REQUEST[:-2])
    client.shutdown(socket.SHUT_WR)
    assert read_request(server) is None


def test_a_long_head_is_refused_before_its_end(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    client.sendall(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (HEAD_BYTES_MAX // 6))
    with pytest.raises(BadRequest):
        read_request(server)


@cases(
    "head", ["", "GET", "GET /", "GET / HTTP/1.1 x", "\x16\x03\x01", "GET / SMTP/1", "GET / HTTP/1.1\nno colon", "a\rb"]
)
def test_what_is_no_head(head: str) -> None:
    with pytest.raises(BadRequest):
        parse_head(head)


@given(st.text(st.characters(max_codepoint=255)))
def test_any_text_is_read_or_refused(head: str) -> None:
    try:
        parse_head(head)
    except BadRequest:
        return


def test_an_answer_is_read_by_a_client_of_http(pair: tuple[socket.socket, socket.socket]) -> None:
    reader, writer = pair
    writer.sendall(encoded("200 OK", [("Content-Type", "text/plain")], b"all\r\n\r\nof it"))
    answer = http.client.HTTPResponse(reader)
    answer.begin()
    assert (answer.status, answer.reason, answer.headers["Content-Type"]) == (200, "OK", "text/plain")
    assert answer.read() == b"all\r\n\r\nof it" and answer.will_close
