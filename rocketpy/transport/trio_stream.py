"""ByteStream over any trio stream, for servers: one task reads, another writes what was queued meanwhile."""

from __future__ import annotations

import trio

from rocketpy.remoting.abc import Peer

from . import trio_socket_stream  # noqa: F401 -- before a broker forks its workers, which then share its memory
from .byte_stream import Receiver
from .streams import close_in_order, unacknowledged_bytes


class TrioByteStream:
    """See ByteStream."""

    def __init__(self, stream: trio.abc.Stream, peer: Peer) -> None:
        self._stream = stream
        self._peer = peer
        self._outgoing = bytearray()
        self._writing_size = 0
        self._wanted = trio.Event()  # there is data to write, or the stream is to be closed
        self._readable = trio.Event()
        self._readable.set()
        self._is_closing = False
        self._scope = trio.CancelScope()
        self._write_scope = trio.CancelScope()

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def unsent_size(self) -> int:
        return len(self._outgoing) + self._writing_size

    @property
    def unacknowledged_size(self) -> int:
        return unacknowledged_bytes(self._stream)

    def write(self, data: bytes) -> None:
        if not self._outgoing:
            self._wanted.set()
        self._outgoing += data

    def pause(self) -> None:
        if self._readable.is_set():
            self._readable = trio.Event()

    def resume(self) -> None:
        self._readable.set()

    def close(self, within_s: float) -> None:
        self._is_closing = True
        self._write_scope.deadline = trio.current_time() + within_s
        self._wanted.set()

    def abort(self) -> None:
        self._scope.cancel()

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, receiver)
                    await self._read(receiver, receive_size)
                    nursery.cancel_scope.cancel()
        finally:
            close_in_order(self._stream)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    async def _read(self, receiver: Receiver, receive_size: int) -> None:
        while True:
            if not self._readable.is_set():
                await self._readable.wait()
            try:
                data = await self._stream.receive_some(receive_size)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            receiver.received(data)
            del data  # it would stay until the next read, which may never come

    async def _write(self, receiver: Receiver) -> None:
        """Write what is queued until the stream is closed and nothing waits, or the stream breaks; that ends all."""
        with self._write_scope:
            while self._outgoing or not self._is_closing:
                await self._wanted.wait()
                self._wanted = trio.Event()
                if not await self._write_outgoing():
                    break
                receiver.drained()
        self._scope.cancel()

    async def _write_outgoing(self) -> bool:
        """Return whether the stream accepted everything."""
        while self._outgoing:
            data, self._outgoing = self._outgoing, bytearray()
            self._writing_size = len(data)
            try:
                await self._stream.send_all(memoryview(data))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            self._writing_size = 0
        return True
