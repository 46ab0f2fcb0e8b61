"""Looking up name servers at an HTTP service, whatever that service answers."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import outcome
import pytest
import trio

from rocketpy import aio
from rocketpy.errors import ConnectFailed, RemoteProtocolError, RocketError
from rocketpy.transport import address_server
from rocketpy.transport.address_server import AddressLookup, address_server_url, ask_address_server
from rocketpy.transport.streams import listening_port
from tests.support import loops

Serve = Callable[[trio.SocketStream], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"


@attrs.define
class Service:
    """An HTTP service on a local port that does what the test says, and keeps the requests."""

    serve: Serve
    requests: list[bytes] = attrs.field(factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return address_server_url(f"127.0.0.1:{self.port}")

    async def handle(self, stream: trio.SocketStream) -> None:
        self.requests.append(bytes(await stream.receive_some(4096)))
        with contextlib.suppress(trio.BrokenResourceError):  # the client has read enough
            await self.serve(stream)


@asynccontextmanager
async def service(serve: Serve) -> AsyncIterator[Service]:
    made = Service(serve)
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(functools.partial(trio.serve_tcp, host="127.0.0.1"), made.handle, 0)
        made.port = listening_port(listener)
        yield made
        nursery.cancel_scope.cancel()


def answering(*pieces: bytes, is_left_open: bool = False) -> Serve:
    async def serve(stream: trio.SocketStream) -> None:
        for piece in pieces:
            await stream.send_all(piece)
        if is_left_open:
            await trio.sleep_forever()

    return serve


def ask(serve: Serve, timeout_s: float = 10.0) -> list[str]:
    """Raises what the question raises, under trio and asyncio alike."""

    async def main() -> outcome.Outcome[list[str]]:
        async with service(serve) as made:
            asked = await outcome.acapture(ask_address_server, made.url, timeout_s=timeout_s)
            question = functools.partial(ask_address_server, timeout_s=timeout_s)
            also = await trio.to_thread.run_sync(outcome.capture, aio.run, question, made.url)
        assert str(also) == str(asked)
        return asked

    found: list[str] = trio.run(main).unwrap()
    return found


@pytest.mark.parametrize(
    ("domain", "subgroup", "unit", "url"),
    [
        ("jmenv.example", None, None, "http://jmenv.example:8080/rocketmq/nsaddr"),
        ("jmenv.example:80", "mine", None, "http://jmenv.example:80/rocketmq/mine"),
        ("jmenv.example", "", "u1", "http://jmenv.example:8080/rocketmq/nsaddr-u1?nofix=1"),
    ],
)
def test_where_it_is_asked(domain: str, subgroup: str | None, unit: str | None, url: str) -> None:
    assert address_server_url(domain, subgroup, unit) == url


def test_the_first_line_is_the_list() -> None:
    """Holds: cluster, four ways to name the name servers."""

    async def main() -> None:  # under trio, as the service; `ask` asks under both
        async with service(answering(OK + b"\r\n", b" 10.0.0.1:9876;", b"ns.example:9877;;[::1]:1 \r\nmore")) as made:
            found = await ask_address_server(made.url)
            assert found == ["10.0.0.1:9876", "ns.example:9877", "[::1]:1"]
            [request] = made.requests
            assert request.startswith(b"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n" % made.port)

    trio.run(main)


def test_a_service_that_leaves_the_connection_open_is_read_to_its_length() -> None:
    body = b"10.0.0.1:9876\n"
    head = OK + b"Content-Length: %d\r\n\r\n" % len(body)
    assert ask(answering(head, body, is_left_open=True)) == ["10.0.0.1:9876"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "expected 200"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n10.0.0.1:9876", "404"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://else/\r\n\r\n", "302"),
        (OK + b"\r\n", "named 0 name servers"),
        (OK + b"\r\n<html>", "answered"),
        (OK + b"\r\n10.0.0.1:0", "not host:port"),
        (OK + b"\r\n10.0.0.1:99999", "answered"),
        (OK + b"\r\n:9876", "not host:port"),
        (OK + b"\r\na b:9876", "not host:port"),
        (OK + b"\r\n" + ";".join(f"10.0.0.{n}:1" for n in range(65)).encode(), "named 65 name servers"),
        (OK + b"\r\n\xff\xfe:1", "not host:port"),
    ],
)
def test_what_is_no_list_is_refused(answer: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        ask(answering(answer))


def test_an_answer_is_bounded() -> None:
    async def endless(stream: trio.SocketStream) -> None:
        await stream.send_all(OK + b"\r\n")
        while True:
            await stream.send_all(b"10.0.0.1:9876;" * 100)

    with pytest.raises(RemoteProtocolError, match="more than 16384 bytes"):
        ask(endless)


@pytest.mark.parametrize("pieces", [(), (b"H",), (OK + b"\r\n10.0.0.1",)])
def test_a_service_that_does_not_answer_takes_its_time_and_no_more(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ConnectFailed, match=r"did not answer within 0\.05 s"):
        ask(answering(*pieces, is_left_open=True), timeout_s=0.05)


@pytest.mark.usefixtures("backend")
def test_nobody_listens() -> None:
    async def main() -> None:
        with pytest.raises(ConnectFailed):
            await ask_address_server("http://127.0.0.1:1/rocketmq/nsaddr", timeout_s=1e9)

    loops.run(main)


@pytest.mark.usefixtures("backend")
def test_a_list_is_followed_and_kept_when_the_service_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers: list[list[str] | RocketError] = [
        ConnectFailed("down"),
        ["a:1", "b:1"],
        ConnectFailed("down"),
        ConnectFailed("down"),
        ["b:1", "a:1"],
        ["c:1"],
    ]
    asked_s: list[float] = []
    taken: list[list[str]] = []

    async def answer(url: str) -> list[str]:
        asked_s.append(aio.now_s())
        if not answers:
            await aio.sleep_forever()
        found = answers.pop(0)
        if isinstance(found, RocketError):
            raise found
        return found

    async def main() -> None:
        with aio.move_on_after(1000):
            await AddressLookup("http://x/", taken.append, answer).run()

    loops.run(main)
    assert taken == [["a:1", "b:1"], ["c:1"]]
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(asked_s)]
    assert gaps == [address_server.AFTER_FAILURE_S, *[address_server.REFRESH_S] * 5]
    assert [record.levelname for record in caplog.records if record.name == address_server.__name__] == [
        "WARNING",
        "INFO",
        "WARNING",
        "INFO",
    ]
