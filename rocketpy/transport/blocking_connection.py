"""BlockingConnection: requests of one thread without an event loop, for readers of large responses.

A response is received by one call, into memory of its own. Under an event loop the same bytes take a turn for each
piece that arrives, and two copies more. Responses that nobody waits for yet stay in the socket, whose size bounds them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

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
        self._early: dict[int, RemotingCommand] = {}  # by opaque: responses to requests of later ones
        self._early_size = 0
        try:
            self._socket = socket.create_connection(parse_host(address), connect_timeout_s)
        except (OSError, ValueError, NumberInvalid) as exc:
            raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)  # the kernel keeps the time: a socket with a timeout of Python does not wait here

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
        """Let each wait for bytes of the peer end after so many seconds."""
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, requests: Sequence[RemotingCommand]) -> None:
        """Number the requests, and send them together.

        Raises:
            ConnectionLost, RequestTimeout: the connection is of no further use.
        """
        for request in requests:
            request.opaque = self._next_opaque
            self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        try:
            self._socket.sendall(b"".join([request.encode() for request in requests]))
        except OSError as exc:
            raise self._lost(exc) from exc
        self._unanswered.update(request.opaque for request in requests)

    def response(self, opaque: int) -> RemotingCommand:
        """Wait for the response to a request; those that come before it are kept.

        Raises:
            ConnectionLost, RequestTimeout, RemoteProtocolError: it does not come. TooManyRequests: more than
                EARLY_SIZE_MAX bytes came before it.
        """
        while (response := self._early.pop(opaque, None)) is None:
            self._receive()
        self._early_size -= len(response.body or b"")
        return response

    def close(self) -> None:
        """Close it; what the peer still sends is dropped."""
        self._socket.close()

    def _receive(self) -> None:
        kind, header_size, body_size = frame_sizes(self._read(PREFIX_SIZE))
        header = self._read(header_size)
        command = RemotingCommand.from_frame(Frame(kind, header, self._read(body_size) or None))
        if command.is_response and command.opaque in self._unanswered:
            self._unanswered.remove(command.opaque)
            self._early[command.opaque] = command
            self._early_size += body_size
            if len(self._early) > 1 and self._early_size > EARLY_SIZE_MAX:
                raise TooManyRequests(f"<{self.address}> sent {self._early_size} bytes before the response that is due")

    def _read(self, size: int) -> bytes:
        """Return so many bytes, as a rule by one call."""
        parts = []
        while size > 0:
            try:
                part = self._socket.recv(size, socket.MSG_WAITALL)
            except OSError as exc:
                raise self._lost(exc) from exc
            if not part:
                raise ConnectionLost(f"the connection to <{self.address}> was closed by the peer")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _lost(self, error: OSError) -> ConnectionLost | RequestTimeout:
        if isinstance(error, BlockingIOError):
            return RequestTimeout(f"<{self.address}> sent nothing, or read nothing, within the time")
        return ConnectionLost(f"the connection to <{self.address}> broke: {error}")
