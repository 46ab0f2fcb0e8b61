"""ByteStream: a connection by writes and callbacks, the same over trio and over asyncio.

A write never waits, and the writes of one turn of the loop leave together. What the peer sends comes by a callback, so
that a channel can wake all tasks whose answers arrive together without a task of its own under asyncio.

Short: the kinds of streams, and their users, meet here.
"""

from __future__ import annotations

from typing import Protocol

from rocketpy.remoting.abc import Peer

REST_READS_MAX = 256
"""Reads of what the peer had sent when a write failed. A buffer holds less, and the peer may go on."""


class Receiver(Protocol):
    """The user of a stream. Both are called by `ByteStream.run`, and must not raise."""

    def received(self, data: bytes | bytearray) -> None:
        """Bytes of the peer."""

    def drained(self) -> None:
        """All bytes that were written have left this process."""


class ByteStream(Protocol):
    """One connection. `run` has to run for anything to move."""

    @property
    def peer(self) -> Peer: ...

    @property
    def unsent_size(self) -> int:
        """Bytes that were written and have not left this process."""

    @property
    def unacknowledged_size(self) -> int:
        """Bytes that have left, and the peer's machine has not acknowledged; 0 where the system does not tell."""

    def write(self, data: bytes) -> None:
        """Send bytes soon. The writer bounds `unsent_size`."""

    def pause(self) -> None:
        """Receive nothing more, until `resume`."""

    def resume(self) -> None: ...

    def close(self, within_s: float) -> None:
        """End the stream when all bytes have left, or after this time."""

    def abort(self) -> None:
        """End the stream now."""

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        """Carry bytes until either side ends the stream; closes it, also when cancelled.

        Args:
            receive_size: bytes of one read, where the backend leaves the choice.
        """
