"""The guard: which requests it refuses, and that every answer has the headers that protect a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.console import guard
from rocketpy.console.guard import BODY_BYTES_MAX, BODY_S, PLACE_S, REQUEST_S, REQUESTS_MAX, Guard, host_of
from tests.support import loops
from tests.support.cases import cases
from tests.support.console import Browser

HEADERS = [(b"host", b"localhost")]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def browse(test: Callable[[Browser], Awaitable[None]], app: Any = echo) -> None:
    async def main() -> None:
        await test(Browser(Guard(app, frozenset({"localhost", "console.example.com", "::1"}))))

    loops.run(main, backend="asyncio")


@cases(
    "header, host",
    [("localhost:8180", "localhost"), ("Console.Example.com", "console.example.com"), ("[::1]:8180", "::1"), ("", "")],
)
def test_hosts(header: str, host: str) -> None:
    assert host_of(header) == host


@cases("host", ["evil.example.com", "localhost.evil.example.com:8180", "127.0.0.2", "", "[::2]", "<script>"])
def test_a_foreign_host_is_refused(host: str) -> None:
    """A page of another site whose name was made to lead to this console must not read it."""

    async def test(browser: Browser) -> None:
        browser.host = host
        assert (await browser.get("/")).status == 421

    browse(test)


def test_every_answer_is_protected() -> None:
    async def test(browser: Browser) -> None:
        for reply in (await browser.get("/"), await browser.ask("DELETE", "/", b"", {})):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert (reply.headers["x-content-type-options"], reply.headers["cache-control"]) == ("nosniff", "no-store")
            assert reply.headers["referrer-policy"] == "same-origin"

    browse(test)


def test_methods_and_sizes() -> None:
    async def test(browser: Browser) -> None:
        assert (await browser.ask("PUT", "/", b"", {})).status == 405
        assert (await browser.ask("POST", "/", b"x" * BODY_BYTES_MAX, {})).status == 200
        assert (await browser.ask("POST", "/", b"x" * (BODY_BYTES_MAX + 1), {})).status == 413

    browse(test)


def test_a_part_of_a_form_is_none() -> None:
    """Fault: A form whose browser was gone counted as far as it had come: `offset=1` of `offset=12`."""
    events = [{"type": "http.request", "body": b"offset=1", "more_body": True}, {"type": "http.disconnect"}]
    answers: list[Any] = []

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        answers.append(event)

    async def main() -> None:
        scope = {"type": "http", "method": "POST", "path": "/", "headers": HEADERS}
        await Guard(echo, frozenset({"localhost"}))(scope, receive, send)

    loops.run(main, backend="asyncio")
    assert answers[-1]["body"] == b""


def test_a_page_that_takes_too_long_ends() -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        await aio.sleep_forever()

    async def test(browser: Browser) -> None:
        with loops.within(REQUEST_S + 1):
            assert (await browser.get("/")).status == 504

    browse(test, never)


def statuses_at_once(count: int, took_s: float) -> list[int]:
    """Return the statuses of requests at the same time, each of which takes so long."""
    replies: list[int] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await aio.sleep(took_s)
        await echo(scope, receive, send)

    async def test(browser: Browser) -> None:
        async def get() -> None:
            replies.append((await browser.get("/")).status)

        async with aio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(get)
        assert (await browser.get("/")).status == 200

    browse(test, slow)
    return sorted(replies)


def test_more_requests_than_places_are_refused_after_a_while() -> None:
    assert statuses_at_once(REQUESTS_MAX + 5, PLACE_S + 1) == [200] * REQUESTS_MAX + [503] * 5


def test_short_requests_take_turns() -> None:
    """Fault: 40 connections with many requests each, for a style sheet, had all others refused."""
    assert statuses_at_once(10 * REQUESTS_MAX, PLACE_S / 20) == [200] * 10 * REQUESTS_MAX


def test_bodies_that_do_not_come_take_no_place() -> None:
    """Whoever reaches the port, without an account, could keep all others away by 32 connections."""

    async def silent(status: list[int]) -> None:
        async def send(event: Any) -> None:
            status.append(event.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/", "headers": HEADERS}
        await guarded(scope, aio.sleep_forever, send)

    guarded = Guard(echo, frozenset({"localhost"}))

    async def main() -> None:
        statuses: list[list[int]] = [[] for _ in range(2 * REQUESTS_MAX)]
        with loops.within(BODY_S + 1):
            async with aio.open_nursery() as nursery:
                for status in statuses:
                    nursery.start_soon(silent, status)
                await aio.sleep(1)
                assert (await Browser(guarded).get("/")).status == 200
        assert {status[0] for status in statuses} == {408}

    loops.run(main, backend="asyncio")


def test_answers_that_are_not_read_take_no_place() -> None:
    """Fault: 32 strangers who did not read their answers kept all others away for minutes, before any login."""
    guarded = Guard(echo, frozenset({"localhost"}))

    async def main() -> None:
        async with aio.open_nursery() as nursery:

            async def unread() -> None:
                async def receive() -> Any:
                    return {"type": "http.request", "body": b"", "more_body": False}

                async def send(event: Any) -> None:
                    await aio.sleep_forever()

                await guarded({"type": "http", "method": "GET", "path": "/", "headers": HEADERS}, receive, send)

            for _ in range(2 * REQUESTS_MAX):
                nursery.start_soon(unread)
            await aio.sleep(1)
            assert (await Browser(guarded).get("/")).status == 200
            nursery.cancel()

    loops.run(main, backend="asyncio")


def test_a_fault_is_one_line_for_the_browser_and_a_trace_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def faulty(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("secret of the cluster")

    async def test(browser: Browser) -> None:
        reply = await browser.get("/")
        assert (reply.status, reply.text.count("\n")) == (500, 1)
        assert "secret" not in reply.text

    browse(test, faulty)
    assert "KeyError" in caplog.text


def test_an_answer_that_fails_half_way_is_an_error_as_a_whole() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("later")

    async def test(browser: Browser) -> None:
        assert (await browser.get("/")).status == 500

    browse(test, broken)


def test_the_policy_allows_nothing_inline() -> None:
    assert "inline" not in guard.POLICY
    assert "frame-ancestors 'none'" in guard.POLICY
