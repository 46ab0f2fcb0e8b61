"""ByteStream over a socket, for clients under trio.

It asks the socket itself, because trio's streams pass several coroutines for each read. One task reads, and the writes
of a turn leave together by `aio.call_soon`; a second task waits for room once a socket had none.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

import rocketpy.aio.on_trio  # noqa: F401 -- before a broker forks its workers, which then share its memory
from rocketpy import aio
from rocketpy.errors import ConnectFailed
from rocketpy.message.host import parse_host
from rocketpy.remoting.abc import Peer

from .byte_stream import REST_READS_MAX, ByteStream, Receiver
from .sockets import peer_named, unacknowledged_bytes
from .streams import connect

if TYPE_CHECKING:
    import ssl

NOTHING = memoryview(b"")
READ_SIZE = 262_144  # of one read; the buffer belongs to the loop
_BUFFER: trio.lowlevel.RunVar[memoryview] = trio.lowlevel.RunVar("buffer of reads")


async def open_stream(address: str, context: Callable[[], ssl.SSLContext] | None) -> ByteStream:
    """Connect; with a context, encrypted. Raises: ConnectFailed."""
    opened = await connect(address)
    try:
        stream = TrioSocketStream(socket.socket(fileno=opened.socket.detach()))
    except OSError as exc:
        raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc
    if context is None:
        return stream
    from .tls_byte_stream import shake_hands

    return await shake_hands(stream, context, address, parse_host(address)[0])


def _buffer() -> memoryview:
    """Return the memory into which all sockets of the loop read: none keeps bytes there between two turns."""
    try:
        return _BUFFER.get()
    except LookupError:
        buffer = memoryview(bytearray(READ_SIZE))
        _BUFFER.set(buffer)
        return buffer


class TrioSocketStream:
    """See ByteStream; of a connected socket, which it owns."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setblocking(False)
        try:
            self._peer = peer_named(connection.getpeername())
        except OSError:
            connection.close()
            raise
        _send_without_measure(connection)
        self._buffer = _buffer()
        self._backend = aio.running()
        self._receiver: Receiver | None = None
        self._pending: list[bytes] = []  # written in this turn of the loop
        self._pending_size = 0
        self._left = NOTHING  # of earlier turns: the socket had no room for it
        self._room_wanted: trio.Event | None = None  # once the socket had no room a task waits for it
        self._readable: trio.Event | None = None  # while paused
        self._is_running = self._is_closing = self._is_over = False
        self._end: aio.Timer | None = None  # of a close
        self._scope = trio.CancelScope()  # of the reads

    # --- ByteStream ---------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def unsent_size(self) -> int:
        return self._pending_size + len(self._left)

    @property
    def unacknowledged_size(self) -> int:
        return unacknowledged_bytes(self._socket)

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._backend.call_soon(self._flush)
        self._pending.append(data)
        self._pending_size += len(data)

    def pause(self) -> None:
        if self._readable is None:
            self._readable = trio.Event()

    def resume(self) -> None:
        if self._readable is not None:
            self._readable.set()
            self._readable = None

    def close(self, within_s: float) -> None:
        if not self._is_closing and not self._is_over:
            self._is_closing = True
            self._end = self._backend.call_at(trio.current_time() + within_s, self.abort)
            self._flush()

    def abort(self) -> None:
        self._is_over = True
        self._scope.cancel()
        if not self._is_running:
            self._close_socket()

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        self._receiver, self._is_running = receiver, True
        try:
            if self._left:
                self._wait_for_room()
            if self._room_wanted is None:
                with self._scope:
                    await self._read(receiver)
            if self._room_wanted is not None and not self._is_over:
                with trio.CancelScope() as self._scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._write_left)
                        await self._read(receiver)
                        nursery.cancel_scope.cancel()
        finally:
            self._is_over = True
            if self._end is not None:
                self._end.cancel()
            self._close_socket()

    async def receive_early(self) -> bytes:
        """Return bytes that come before `run`, as those of a handshake; none at the end of the stream."""
        while not self._is_over:
            self._flush()
            while self._left and not self._is_over:
                await trio.lowlevel.wait_writable(self._socket)
                self._send(self._left)
            if self._is_over:  # a send has failed
                break
            await trio.lowlevel.wait_readable(self._socket)
            data = self._receive()
            if data is not None:
                return data
        return b""

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, receiver: Receiver) -> None:
        """Read until the stream ends."""
        while not self._is_over:
            if self._readable is not None:
                await self._readable.wait()
                continue
            await trio.lowlevel.wait_readable(self._socket)
            data = self._receive()
            if data is not None:
                if not data:
                    self._is_over = True
                    return
                receiver.received(data)
                del data  # it would stay until the next read

    def _receive(self) -> bytes | None:
        """Read once. Returns: the bytes; none at the end of the stream; None if none are there."""
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""
        return bytes(self._buffer[:size])

    def _receive_rest(self) -> None:
        """Read what the peer sent before a write failed: it may be the answers to earlier requests."""
        for _ in range(REST_READS_MAX):
            if self._receiver is None or self._is_over or not (data := self._receive()):
                break
            self._receiver.received(data)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write what this turn has brought, unless earlier bytes wait."""
        if self._left or self._is_over:
            return
        if self._pending:
            data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending.clear()
            self._pending_size = 0
            self._send(memoryview(data))
        if not self._left:
            self._all_left()
        elif self._is_running:
            self._wait_for_room()

    def _send(self, data: memoryview) -> None:
        """Give the socket what it takes; the others wait in `_left`."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._left = NOTHING
            try:
                self._receive_rest()
            finally:
                self.abort()
            return
        self._left = data[sent:]

    def _all_left(self) -> None:
        if self._is_closing:
            self.abort()
        elif self._receiver is not None and not self._is_over:
            self._receiver.drained()

    def _wait_for_room(self) -> None:
        if self._room_wanted is None:
            self._room_wanted = trio.Event()
            self._scope.cancel()  # the reads go on beside the task that writes
        self._room_wanted.set()

    async def _write_left(self) -> None:
        """Write whenever the socket had no room."""
        while True:
            assert self._room_wanted is not None
            await self._room_wanted.wait()
            while self._left and not self._is_over:
                await trio.lowlevel.wait_writable(self._socket)
                self._send(self._left)
            self._room_wanted = trio.Event()
            self._flush()

    def _close_socket(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _send_without_measure(connection: socket.socket) -> None:
    """Undo what trio sets: with at most 16 KiB that are not sent yet, a batch would leave in ten turns."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 0)  # as the system has it
