"""The HTTP service that names the name servers, for those who are given no list.

A GET answers `host:port;host:port` in the first line of its body. The request is one of HTTP/1.0, so that the answer
comes in one piece and ends with the connection. Whatever the service sends, it takes 3 s and 16 KiB at most.

Source: RocketMQ 4.9 `TopAddressing`, `MixAll#getWSAddr`. The reference asks `jmenv.tbsite.net` by default; here the
service must be named.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import attrs

from rocketpy import aio
from rocketpy.errors import ConnectFailed, NumberInvalid, RemoteProtocolError, RocketError
from rocketpy.message.host import format_host, parse_host
from rocketpy.message.numbers import int_or

from .byte_stream import ByteStream
from .connector import Connector, connect

logger = logging.getLogger(__name__)

PORT = 8080
SUBGROUP = "nsaddr"
TIMEOUT_S = 3.0
REFRESH_S = 120.0
AFTER_FAILURE_S = 10.0  # while no list is known
ANSWER_MAX = 16 * 1024
NAME_SERVERS_MAX = 64
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:")


def address_server_url(domain: str, subgroup: str | None = None, unit: str | None = None) -> str:
    """Return the URL to ask: `domain` is a host, or `host:port` (8080 when left out)."""
    host = domain if ":" in domain else f"{domain}:{PORT}"
    suffix = f"-{unit}?nofix=1" if unit else ""
    return f"http://{host}/rocketmq/{subgroup or SUBGROUP}{suffix}"


async def ask_address_server(url: str, *, timeout_s: float = TIMEOUT_S, connector: Connector = connect) -> list[str]:
    """The name servers that the service names, as `host:port`.

    Raises:
        ConnectFailed: it cannot be reached, or did not answer in time. RemoteProtocolError: its answer is no list.
    """
    answer = b""
    with aio.move_on_after(timeout_s) as scope:
        answer = await _get(url, connector)
    if scope.cancelled_caught:
        raise ConnectFailed(f"the address server {url} did not answer within {timeout_s:g} s")
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split(" ")[1:2] != ["200"]:
        raise RemoteProtocolError(f"the address server {url} answered {status[:100]!r}, expected 200")
    lines = body.strip().splitlines()
    return _addresses(lines[0].decode("utf-8", "replace") if lines else "", url)


async def _get(url: str, connector: Connector) -> bytes:
    """The whole answer, head and body."""
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    stream = await connector(parts.netloc)
    stream.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode())
    answer = _Answer(stream)
    await stream.run(answer, 4096)
    if len(answer.data) > ANSWER_MAX:
        raise RemoteProtocolError(f"the address server {url} answered more than {ANSWER_MAX} bytes")
    return answer.data


@attrs.define(eq=False)
class _Answer:
    """Collects what the service sends, until that is enough."""

    stream: ByteStream
    data: bytes = b""

    def received(self, data: bytes | bytearray) -> None:
        self.data += data
        if len(self.data) > ANSWER_MAX or _is_whole(self.data):
            self.stream.abort()

    def drained(self) -> None:
        """The request has left."""


def _is_whole(answer: bytes) -> bool:
    """Return True if the body is as long as its header says: some services leave the connection open."""
    head, end, body = answer.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        size = int_or(value.strip().decode("ascii", "replace"), -1) if end and name == b"content-length" else -1
        if size >= 0:
            return len(body) >= size
    return False


def _addresses(text: str, url: str) -> list[str]:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    try:
        hosts = [parse_host(part) for part in parts]
    except (ValueError, NumberInvalid) as exc:
        raise RemoteProtocolError(f"the address server {url} answered {text[:100]!r}: {exc}") from exc
    if not hosts or len(hosts) > NAME_SERVERS_MAX:
        raise RemoteProtocolError(f"the address server {url} named {len(hosts)} name servers, expected 1 to 64")
    for (host, port), part in zip(hosts, parts, strict=True):
        if not host or not _HOST_CHARACTERS.issuperset(host) or not 1 <= port <= 65_535:
            raise RemoteProtocolError(f"the address server {url} named {part[:100]!r}, which is not host:port")
    return list(dict.fromkeys(format_host(host) for host in hosts))


@attrs.define(eq=False)
class AddressLookup:
    """Keeps the list of name servers up to date. After a failure the last list stays in use.

    Args:
        changed: called with each list that differs from the one before.
    """

    url: str
    changed: Callable[[list[str]], None]
    ask: Callable[[str], Awaitable[list[str]]] = ask_address_server
    _known: frozenset[str] = frozenset()
    _has_failed: bool = False

    async def run(self) -> None:
        """Ask now, and again every two minutes; sooner while no list is known."""
        while True:
            await self.refresh()
            await aio.sleep(REFRESH_S if self._known else AFTER_FAILURE_S)

    async def refresh(self) -> None:
        """Ask once. A failure is logged once, until an answer comes again."""
        try:
            found = await self.ask(self.url)
        except RocketError as exc:
            if not self._has_failed:
                kept = "the last list stays in use" if self._known else "no name server is known"
                logger.warning("cannot look up the name servers: %s; %s; asking again", exc, kept)
            self._has_failed = True
            return
        self._has_failed = False
        if frozenset(found) != self._known:
            logger.info("the address server %s names the name servers %s", self.url, ";".join(found))
            self._known = frozenset(found)
            self.changed(found)
