"""BlockingConnection: requests of one thread without an event loop, for readers of large responses.

A response is received by one call, into memory of its own. Under an event loop the same bytes take a turn for each
piece that arrives, and two copies more. Responses that nobody waits for yet stay in the socket, whose size bounds them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rocketpy.errors import ConnectFailed, ConnectionLost, NumberInvalid, RequestTimeout, TooManyRequests
from rocketpy.message.host import parse_host
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import PREFIX_SIZE, Frame, frame_sizes

EARLY_SIZE_MAX = 32 << 20
"""Bytes of responses that came before the one that is waited for."""


class BlockingConnection:
    """One connection, for one thread at a time. After an error it is of no further use but to be closed."""

    def __init__(self, address: str, connect_timeout_s: float) -> None:
        """Connect (TCP_NODELAY) to `host:port`.

        Raises:
            ConnectFailed: no such address, or nobody listens there.
        """
        self.address = address
        self._next_opaque = 0
        self._unanswered: set[int] = set()
        self._early: dict[int, RemotingCommand] = {}  # by opaque: received, and not taken yet
        self._early_size = 0
        try:
            self._socket = socket.create_connection(parse_host(address), connect_timeout_s)
        except (OSError, ValueError, NumberInvalid) as exc:
            raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait_s = connect_timeout_s
        # With a timeout of Python the socket would not block, and MSG_WAITALL not wait: see `_limited`.
        self._socket.settimeout(None)

    @property
    def is_reusable(self) -> bool:
        """Return True if the connection is open, and every response has been taken."""
        if self._unanswered or self._early:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as exc:
            return isinstance(exc, BlockingIOError)
        return False  # it was closed, or sends what nobody has asked for

    def limit_waits(self, seconds: float) -> None:
        """Let each call of `send` and `response` end after so many seconds."""
        self._wait_s = seconds

    def send(self, requests: Sequence[RemotingCommand]) -> None:
        """Number the requests, and send them together.

        Raises:
            ConnectionLost, RequestTimeout: the connection is of no further use.
        """
        for request in requests:
            request.opaque = self._next_opaque
            self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        self._unanswered.update(request.opaque for request in requests)
        data, due_s = memoryview(b"".join([request.encode() for request in requests])), time.monotonic() + self._wait_s
        while data:
            with self._limited(socket.SO_SNDTIMEO, due_s):
                data = data[self._socket.send(data) :]

    def response(self, opaque: int) -> RemotingCommand:
        """Wait for the response to a request. Responses to other requests that arrive first are kept.

        Raises:
            ConnectionLost, RequestTimeout, RemoteProtocolError: it does not come. TooManyRequests: more than
                EARLY_SIZE_MAX bytes came before it.
        """
        due_s = time.monotonic() + self._wait_s
        while opaque not in self._early:
            if self._early_size > EARLY_SIZE_MAX:
                raise TooManyRequests(f"<{self.address}> sent {self._early_size} bytes before the response that is due")
            self._receive(due_s)
        response = self._early.pop(opaque)
        self._early_size -= len(response.body or b"")
        return response

    def close(self) -> None:
        """Close it; what the peer still sends is dropped."""
        self._socket.close()

    def _receive(self, due_s: float) -> None:
        kind, header_size, body_size = frame_sizes(self._read(PREFIX_SIZE, due_s))
        header = self._read(header_size, due_s)
        command = RemotingCommand.from_frame(Frame(kind, header, self._read(body_size, due_s) or None))
        if command.is_response and command.opaque in self._unanswered:
            self._unanswered.remove(command.opaque)
            self._early[command.opaque] = command
            self._early_size += body_size

    def _read(self, size: int, due_s: float) -> bytes:
        """Return so many bytes, as a rule by one call."""
        parts = []
        while size > 0:
            with self._limited(socket.SO_RCVTIMEO, due_s):
                part = self._socket.recv(size, socket.MSG_WAITALL)
            if not part:
                raise ConnectionLost(f"the connection to <{self.address}> was closed by the peer")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextmanager
    def _limited(self, option: int, due_s: float) -> Iterator[None]:
        """Let the kernel end a call of the socket at a time of time.monotonic().

        Raises:
            ConnectionLost, RequestTimeout: also before the call.
        """
        left_us = int((due_s - time.monotonic()) * 1e6)
        try:
            if left_us <= 0:  # to the kernel 0 is no limit
                raise BlockingIOError
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", *divmod(left_us, 1_000_000)))
            yield
        except BlockingIOError:
            raise RequestTimeout(f"<{self.address}> neither sent nor read all within {self._wait_s:g} s") from None
        except OSError as exc:
            raise ConnectionLost(f"the connection to <{self.address}> broke: {exc}") from exc
