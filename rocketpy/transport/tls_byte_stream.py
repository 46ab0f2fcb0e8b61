"""TLS of clients: a byte stream whose bytes are encrypted on another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rocketpy.errors import ConnectFailed, TlsFailed
from rocketpy.remoting.abc import Peer
from rocketpy.tls import TlsSession
from rocketpy.tls.handshake_counts import CLOSED

from .byte_stream import ByteStream, Receiver

if TYPE_CHECKING:
    import ssl

RECEIVE_SIZE = 65_536
ALERT_S = 1.0  # for the last bytes to a server that is refused


class EarlyStream(ByteStream, Protocol):
    """A stream that can be read before it runs."""

    async def receive_early(self) -> bytes: ...


async def shake_hands(
    stream: EarlyStream, context: Callable[[], ssl.SSLContext], address: str, host: str
) -> TlsByteStream:
    """Do the handshake with a server, whose certificate has to name `host`.

    Raises:
        ConnectFailed: it cannot be; the server was told so, if it reads.
    """
    try:
        session, early = TlsSession.client(context(), host), b""
        try:
            while not session.is_established:
                stream.write(session.take_outgoing())
                if data := await stream.receive_early():
                    early += session.receive(data)
                else:
                    session.receive_end()
        except TlsFailed as exc:
            stream.write(session.take_outgoing())  # the alert
            stream.close(ALERT_S)
            await stream.run(_Nobody(), RECEIVE_SIZE)
            reason = "it closed the connection during the TLS handshake; it may not speak TLS"
            raise ConnectFailed(f"connect to <{address}> failed: {reason if exc.reason == CLOSED else exc}") from exc
    except BaseException:
        stream.abort()
        raise
    stream.write(session.take_outgoing())
    return TlsByteStream(stream, session, early)


class _Nobody:
    """The receiver of a stream that only has to send its last bytes."""

    def received(self, data: bytes | bytearray) -> None: ...

    def drained(self) -> None: ...


class TlsByteStream:
    """See ByteStream; also the receiver of the stream below. Closed like TCP: nobody waits for the peer's farewell."""

    def __init__(self, below: ByteStream, session: TlsSession, early: bytes) -> None:
        """`early`: plaintext that came with the end of the handshake."""
        self._below = below
        self._session = session
        self._early = early
        self._receiver: Receiver

    @property
    def peer(self) -> Peer:
        return self._below.peer

    @property
    def unsent_size(self) -> int:
        return self._below.unsent_size

    @property
    def unacknowledged_size(self) -> int:
        return self._below.unacknowledged_size

    def write(self, data: bytes) -> None:
        try:
            self._session.send(data)
        except TlsFailed:
            self.abort()
            return
        self._below.write(self._session.take_outgoing())

    def pause(self) -> None:
        self._below.pause()

    def resume(self) -> None:
        self._below.resume()

    def close(self, within_s: float) -> None:
        self._below.close(within_s)

    def abort(self) -> None:
        self._below.abort()

    async def run(self, receiver: Receiver, receive_size: int) -> None:
        self._receiver = receiver
        if self._early:
            receiver.received(self._early)
        await self._below.run(self, receive_size)

    # --- Receiver -----------------------------------------------------------------------------------------------------

    def received(self, data: bytes | bytearray) -> None:
        try:
            plaintext = self._session.receive(data)
        except TlsFailed:
            self.abort()
            return
        if self._session.has_outgoing:  # answers of TLS itself
            self._below.write(self._session.take_outgoing())
        if plaintext:
            self._receiver.received(plaintext)
        if self._session.is_ended:
            self.abort()

    def drained(self) -> None:
        self._receiver.drained()
