"""Byte streams in memory, for either backend: what one end writes, the other receives in a later turn of the loop."""

from __future__ import annotations

import math

from rocketpy import aio
from rocketpy.remoting.abc import Peer
from rocketpy.transport.byte_stream import Receiver

PEER = Peer("10.0.0.1", 5)


class MemoryStream:
    """One end; implements byte_stream.ByteStream. With `is_choked` the other end takes nothing."""

    def __init__(self) -> None:
        self.is_choked = False
        self.other: MemoryStream
        self._incoming = bytearray()
        self._receiver: Receiver | None = None
        self._is_paused = self._is_over = False
        self._ends_at_s = math.inf
        self._changed = aio.Event()

    peer = PEER
    unacknowledged_size = 0

    @property
    def unsent_size(self) -> int:
        return len(self.other._incoming)

    def write(self, data: bytes) -> None:
        if not self.other._is_over:
            self.other._incoming += data
            self.other._changed.set()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._changed.set()

    def close(self, within_s: float) -> None:
        self._ends_at_s = aio.now_s() + within_s
        self._changed.set()

    def abort(self) -> None:
        self._is_over = True
        self._changed.set()

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        self._receiver = receiver
        try:
            while not self._has_ended():
                self._changed = aio.Event()
                if self._incoming and not self._is_paused and not self.other.is_choked:
                    data = bytes(self._incoming[:receive_size])
                    del self._incoming[:receive_size]
                    receiver.received(data)
                    self.other._tell_drained()
                    continue
                with aio.move_on_at(self._ends_at_s):
                    await self._changed.wait()
        finally:
            self._is_over = True
            self.other._changed.set()

    def _has_ended(self) -> bool:
        if self._is_over or (self.other._is_over and not self._incoming):
            return True
        return self._ends_at_s < math.inf and (not self.unsent_size or aio.now_s() >= self._ends_at_s)

    def _tell_drained(self) -> None:
        self._changed.set()
        if not self.unsent_size and self._receiver is not None:
            self._receiver.drained()


def memory_streams() -> tuple[MemoryStream, MemoryStream]:
    """Both ends."""
    near, far = MemoryStream(), MemoryStream()
    near.other, far.other = far, near
    return near, far


class Collected:
    """A receiver that keeps what comes."""

    def __init__(self) -> None:
        self.data = b""

    def received(self, data: bytes) -> None:
        self.data += data

    def drained(self) -> None:
        """Nothing waits for it."""
