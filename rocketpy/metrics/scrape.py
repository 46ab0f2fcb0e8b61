"""One scrape as HTTP: reads a request of a connection that is closed after its answer.

Of a request only its head is read, of a bounded size. The standard library has a server for this, with e-mail, HTML and
an HTTP client: 3 MiB of memory of a process that is asked for one page.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

import attrs

HEAD_BYTES_MAX = 65_536
RECEIVE_BYTES = 4_096


class BadRequest(Exception):
    """The head is not that of an HTTP request, or is longer than HEAD_BYTES_MAX."""


class ScrapeFailed(Exception):
    """There is no answer now; the text says why, to the client as well."""


@attrs.frozen
class Request:
    """The head of a request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # by their names in lower case

    def environ(self) -> dict[str, str]:
        """Return what an application finds out of a request, by WSGI."""
        return {
            "REQUEST_METHOD": self.method,
            "PATH_INFO": self.path,
            "QUERY_STRING": self.query,
            "HTTP_ACCEPT": self.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": self.headers.get("accept-encoding", ""),
        }


def read_request(connection: socket.socket) -> Request | None:
    """Read the head of a request; None: the client has ended before.

    Raises:
        BadRequest: as its text says. OSError, of the connection.
    """
    head, is_whole = bytearray(), False
    while not is_whole:
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            return None
        seen = max(0, len(head) - 2)  # its end may come in parts
        head += received
        if len(head) > HEAD_BYTES_MAX:
            raise BadRequest
        is_whole = any(head.find(end, seen) >= 0 for end in (b"\n\n", b"\n\r\n"))
    text = head.replace(b"\r\n", b"\n")
    return parse_head(text[: text.index(b"\n\n")].decode("latin-1"))


def parse_head(head: str) -> Request:
    """Read the head of a request, whose lines end with a line feed. Raises: BadRequest."""
    first, *lines = head.split("\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/") or "\r" in head:
        raise BadRequest
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest
        headers.setdefault(name.strip().lower(), value.strip())
    path, _, query = words[1].partition("?")
    return Request(words[0], path, query, headers)


def encoded(status: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    """Return a whole answer."""
    fields = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.0 {status}\r\n{head}\r\n".encode("latin-1") + body
