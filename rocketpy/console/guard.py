"""Guard: the outermost layer of the console. Every request passes it, and every answer gets its headers.

It refuses hosts that are not ours (DNS rebinding), bodies that are too large, and more requests at a time than it has
places; it ends a request that takes too long; and it turns a fault into one line in the log and an answer of one line.

An answer is made as a whole, then sent. Browsers that do not read it take no place: the server ends their connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rocketpy import aio
from rocketpy.faults import Faults, printable

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUESTS_MAX = 32  # at the same time
BODY_S = 10.0  # a body; it takes no place meanwhile
PLACE_S = 5.0  # until a place is free: requests take turns, so a flood of short ones only delays others
REQUEST_S = 20.0  # the brokers' answers and the page together, until the page is complete
BODY_BYTES_MAX = 64 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # `no-referrer` would also take the header Origin from forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def host_of(header: str) -> str:
    """Return the name in a header Host, without its port, in small letters."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._places = aio.Semaphore(REQUESTS_MAX)
        self._faults = Faults(name="console")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # uvicorn is told to serve nothing else
        for event in await self._answer(scope, receive):
            await send(event)

    async def _answer(self, scope: Scope, receive: Receive) -> list[Event]:
        refusal = self._refusal(scope)
        if refusal is not None:
            return plain(scope, *refusal)
        body: bytes | None = None
        with aio.move_on_after(BODY_S) as time:
            body = await _read(receive)
        if time.cancelled_caught:
            return plain(scope, 408, f"no whole body within {BODY_S:g} s")
        if body is None:
            return plain(scope, 413, f"a body of more than {BODY_BYTES_MAX} bytes")
        with aio.move_on_after(PLACE_S) as time:
            await self._places.acquire()
        if time.cancelled_caught:
            return plain(scope, 503, f"{REQUESTS_MAX} requests are in progress; try again in a moment")
        try:
            return await self._within_time(scope, _replay(body, receive))
        finally:
            self._places.release()

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and text if the request is refused by its head."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            shown = printable(host_of(hosts[0])) if hosts else ""
            return 421, f"the host {shown!r} is not one of this console; start it with --host {shown or 'NAME'}"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST"
        return None

    async def _within_time(self, scope: Scope, receive: Receive) -> list[Event]:
        events: list[Event] = []

        async def keep(event: Event) -> None:
            events.append(with_headers(event))

        try:
            with aio.move_on_after(REQUEST_S) as time:
                await self._app(scope, receive, keep)
            if time.cancelled_caught:
                return plain(scope, 504, f"no page within {REQUEST_S:g} s; the brokers are slow")
        except Exception as fault:
            if aio.is_stray_cancellation(fault):
                raise
            is_known = "route" in scope or "endpoint" in scope  # the places of faults are bounded
            self._faults.report(f"page {scope['path'][:100]!r}"[:100] if is_known else "a page", fault)
            return plain(scope, 500, "an unexpected error; the log of the console tells more")
        return events


async def _read(receive: Receive) -> bytes | None:
    """Return the body; None: it is too large. A part of a form is nothing: it may name another message."""
    pieces: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return b""  # the browser is gone
        pieces.append(event.get("body", b""))
        size += len(pieces[-1])
        if size > BODY_BYTES_MAX:
            return None
        if not event.get("more_body", False):
            return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the whole body first."""
    is_given = False

    async def replayed() -> Event:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def with_headers(event: Event) -> Event:
    """Add HEADERS and `cache-control` to the first event of an answer, where the page has not set them."""
    if event["type"] == "http.response.start":
        given = {name.lower() for name, _ in event["headers"]}
        more = [*HEADERS, (b"cache-control", b"no-store")]
        event["headers"] = [*event["headers"], *(pair for pair in more if pair[0] not in given)]
    return event


def plain(scope: Scope, status: int, text: str) -> list[Event]:
    """Return an answer of one line of text."""
    body = b"" if scope["method"] == "HEAD" else f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"2"))
    return [
        with_headers({"type": "http.response.start", "status": status, "headers": headers}),
        {"type": "http.response.body", "body": body},
    ]
