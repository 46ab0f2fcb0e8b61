"""ByteStream over an asyncio transport, of any loop.

TLS is tls/session.py's on both backends: asyncio's own would close without telling the server why.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from rocketpy import aio
from rocketpy.errors import ConnectFailed, NumberInvalid
from rocketpy.message.host import parse_host
from rocketpy.remoting.abc import Peer

from .byte_stream import REST_READS_MAX, ByteStream, Receiver
from .sockets import peer_named, unacknowledged_bytes

if TYPE_CHECKING:
    import ssl

CLOSE_S = 1.0  # for the loop to drop an aborted connection
REST_SIZE = 65_536  # of one read after the loop has stopped to read


async def open_stream(address: str, context: Callable[[], ssl.SSLContext] | None) -> ByteStream:
    """Connect; with a context, encrypted. Raises: ConnectFailed."""
    try:
        host, port = parse_host(address)
        _, stream = await asyncio.get_running_loop().create_connection(AsyncioByteStream, host, port)
    except (OSError, ValueError, NumberInvalid) as exc:
        raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc
    if context is None:
        return stream
    from .tls_byte_stream import shake_hands

    return await shake_hands(stream, context, address, host)


class AsyncioByteStream(asyncio.Protocol):
    """See ByteStream."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._receiver: Receiver | None = None
        self._early = b""  # came before `run`
        self._came = aio.Event()  # more of them, or the end
        self._pending: list[bytes] = []  # written in this turn of the loop
        self._pending_size = 0
        self._is_choked = False  # the transport holds bytes that the socket does not take
        self._lost = aio.Event()

    # --- ByteStream ---------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        return peer_named(self._transport.get_extra_info("peername"))

    @property
    def unsent_size(self) -> int:
        return self._pending_size + (self._transport.get_write_buffer_size() if self._is_choked else 0)

    @property
    def unacknowledged_size(self) -> int:
        return unacknowledged_bytes(self._transport.get_extra_info("socket"))

    def write(self, data: bytes) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append(data)
        self._pending_size += len(data)

    def _flush(self) -> None:
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        if not data or self._lost.is_set():
            return
        self._transport.write(data)
        self._tell_drained()

    def _tell_drained(self) -> None:
        if not self._is_choked and not self._pending and self._receiver is not None:
            self._receiver.drained()

    def pause(self) -> None:
        self._transport.pause_reading()

    def resume(self) -> None:
        if not self._lost.is_set():
            self._transport.resume_reading()

    def close(self, within_s: float) -> None:
        self._flush()
        self._transport.close()
        asyncio.get_running_loop().call_later(within_s, self.abort)

    def abort(self) -> None:
        if not self._lost.is_set():
            self._transport.abort()

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        self._receiver = receiver
        try:
            if self._early:
                receiver.received(self._early)
            await self._lost.wait()
        finally:
            self.abort()
            await aio.shielded(CLOSE_S, self._lost.wait)

    async def receive_early(self) -> bytes:
        """Return bytes that come before `run`, as those of a handshake; none at the end of the stream."""
        while not self._early and not self._lost.is_set():
            self._came = aio.Event()
            await self._came.wait()
        data, self._early = self._early, b""
        return data

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of other classes
        self._transport.set_write_buffer_limits(0)  # pause_writing tells of bytes that wait

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:
            self._early += data
            self._came.set()
        else:
            self._receiver.received(data)

    def pause_writing(self) -> None:
        self._is_choked = True

    def resume_writing(self) -> None:
        self._is_choked = False
        self._tell_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if exc is not None:
                self._receive_rest()
        finally:
            self._lost.set()
            self._came.set()

    def _receive_rest(self) -> None:
        """Read what the peer sent before a write failed: it may be the answers to earlier requests."""
        with contextlib.suppress(OSError):  # nothing more is there
            descriptor = socket.dup(self._transport.get_extra_info("socket").fileno())
            with socket.socket(fileno=descriptor) as rest:  # those that the loops give away have no `recv`
                rest.setblocking(False)
                for _ in range(REST_READS_MAX):
                    if not (data := rest.recv(REST_SIZE)):
                        break
                    self.data_received(data)
