"""Where clients of a group send to and read from: its members, and the topic of plain messages."""

from __future__ import annotations

import contextlib
import ssl

import attrs

from rocketpy.remoting.signature import Credentials
from tests.support.history import Connection

TOPIC = "History"
QUEUES = 4
SEND_TIMEOUT_S = 6.0  # of senders that go on with another member: longer than slaveTimeout, so most answers are seen
ANSWER_S = 30.0  # of a request whose answer the test needs; the machine may be busy
READ_TIMEOUT_S = 2.0
STORED_CODES = (0, 10, 11, 12)


@attrs.frozen
class Server:
    """A member as clients reach it."""

    member: str
    host: str
    port: int
    tls: ssl.SSLContext | None = None
    """None: by plain connections."""
    credentials: Credentials | None = None
    """None: requests are not signed."""


def connected(server: Server, timeout_s: float) -> contextlib.closing[Connection]:
    """Raises: OSError."""
    return contextlib.closing(Connection(server.port, timeout_s, server.host, server.tls, server.credentials))


def key_of(body: bytes) -> str:
    return body.split(b" ", 1)[0].decode()
