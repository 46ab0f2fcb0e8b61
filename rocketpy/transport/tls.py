"""Encrypted streams of servers, under trio, beside plain ones. tls_byte_stream.py has those of clients.

A ClientHello begins with another byte than a frame, so one port serves both. The byte is looked at and left in the
socket. The bytes themselves are tls/session.py's.

A half handshake takes 40 KiB and the time of its connection, so it has a bound in time, in bytes and in number. Beyond
the numbers its connections wait for their turn, within the same time; a TLS worker of a broker
(reactor/tls_handshakes.py) closes the oldest instead.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable

import trio

from rocketpy.errors import TlsFailed
from rocketpy.networks import network_of
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, HandshakeCounts, TlsSession, TlsStatistics
from rocketpy.tls.certificates import LOOK_S
from rocketpy.tls.handshake_counts import CLOSED, PLAIN, RECORDS, TIMEOUT
from rocketpy.tls.session import HANDSHAKE_S

from .duties import Duty
from .streams import close_in_order

TLS_HANDSHAKE = 0x16  # first byte of a TLS connection; that of a plain one is 0
NAMESRV_HANDSHAKES_MAX = 256  # of a name server at once
HANDSHAKES_OF_SOURCE_MAX = 32  # of them, of one source
RECEIVE_SIZE = 65_536
SEND_SIZE = 65_536  # that is encrypted at once: a copy of so many bytes waits for the socket
ALERT_S = 1.0  # for the last bytes to a peer that is refused


class TlsStream(trio.abc.Stream):
    """A stream whose bytes are encrypted on `transport_stream`, after `shake_hands`. It is closed like TCP: nobody
    waits for the peer's farewell. One task sends and one receives. `refuse` is told of a session that fails later."""

    def __init__(
        self, transport_stream: trio.abc.Stream, session: TlsSession, refuse: Callable[[TlsFailed], None] | None = None
    ) -> None:
        self.transport_stream = transport_stream
        self._session = session
        self._refuse = refuse
        self._early = b""  # plaintext that came with the end of the handshake
        self._sending = trio.Lock()

    async def shake_hands(self) -> None:
        """Finish the handshake.

        Raises:
            TlsFailed: it cannot be; the peer was told so, if it reads. trio.BrokenResourceError: the stream broke.
        """
        try:
            while not self._session.is_established:
                await self._flush()
                if data := await self.transport_stream.receive_some(RECEIVE_SIZE):
                    self._early += self._session.receive(data)
                else:
                    self._session.receive_end()
        except TlsFailed:
            await self._tell_failure()
            raise
        await self._flush()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        for at in range(0, len(view), SEND_SIZE):
            try:
                self._session.send(view[at : at + SEND_SIZE])
            except TlsFailed as exc:  # a bad record is, for the user of a stream, a broken stream
                raise trio.BrokenResourceError from exc
            await self._flush()

    async def wait_send_all_might_not_block(self) -> None:
        await self.transport_stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return plaintext, of any number of bytes: whole records."""
        plaintext, self._early = self._early, b""
        while not plaintext and not self._session.is_ended:
            data = await self.transport_stream.receive_some(max_bytes)
            if not data:
                break
            try:
                plaintext = self._session.receive(data)
            except TlsFailed as exc:
                if self._refuse is not None:
                    self._refuse(exc)
                raise trio.BrokenResourceError from exc
            if not self._sending.locked():  # else the sender takes it along: a reader that waited could wait for ever
                await self._flush()
        return plaintext

    async def aclose(self) -> None:
        await self.transport_stream.aclose()

    async def _flush(self) -> None:
        """Send what waits: records, and answers of TLS itself. Taken within the lock, so their order stays."""
        if self._session.has_outgoing:
            async with self._sending:
                while outgoing := self._session.take_outgoing():
                    await self.transport_stream.send_all(outgoing)

    async def _tell_failure(self) -> None:
        close_in_order(self)
        with trio.move_on_after(ALERT_S), contextlib.suppress(trio.BrokenResourceError):
            await self._flush()


class TlsAcceptor:
    """The TLS of a server: tells encrypted connections from plain ones, and bounds handshakes (`handshake_s`)."""

    def __init__(self, certificates: Certificates, *, is_plain_served: bool, handshake_s: float = HANDSHAKE_S) -> None:
        self._certificates, self._handshake_s = certificates, handshake_s
        self._is_plain_served = is_plain_served
        self._counts = HandshakeCounts()
        self._turns = trio.Semaphore(NAMESRV_HANDSHAKES_MAX)
        self._turns_of: defaultdict[str, trio.Semaphore] = defaultdict(lambda: trio.Semaphore(HANDSHAKES_OF_SOURCE_MAX))

    @property
    def context(self) -> ssl.SSLContext:
        """The context of new connections; safe to read from another thread."""
        return self._certificates.context

    def refresh(self) -> None:
        """Load the files now if they have changed since they were loaded. A second look cannot be waited for."""
        self._certificates.load_changed()

    def statistics(self) -> TlsStatistics:
        return self._counts.statistics(self._certificates)

    def duty(self) -> Duty:
        """The background duty that loads changed files."""
        return reload_duty(self._certificates)

    async def accept(self, stream: trio.abc.Stream, peer: Peer, *, idle_s: float) -> trio.abc.Stream | None:
        """Return the stream that carries the commands of a connection; None: it ended or is refused.

        `idle_s` bounds the wait for the first byte.
        """
        assert isinstance(stream, trio.SocketStream)
        first = b""
        with trio.move_on_after(idle_s), contextlib.suppress(OSError):
            first = await stream.socket.recv(1, socket.MSG_PEEK)
        if not first:
            return None
        if first[0] != TLS_HANDSHAKE:
            if not self._is_plain_served:
                self._counts.refuse(peer, PLAIN, "it is not encrypted (tls.server.mode=enforcing)")
                return None
            self._counts.plain += 1
            return stream
        try:
            with trio.fail_after(self._handshake_s):
                return await self.shake_hands(stream, peer)
        except TlsFailed as exc:
            self._counts.refuse(peer, exc.reason, str(exc))
        except trio.BrokenResourceError:
            self._counts.refuse(peer, CLOSED, "it closed the connection during the TLS handshake")
        except trio.TooSlowError:
            self._counts.refuse(peer, TIMEOUT, f"no TLS handshake within {self._handshake_s:g} s")
        return None

    async def shake_hands(self, plain: trio.abc.Stream, peer: Peer) -> TlsStream:
        """Do the handshake in its turn. Raises: as `TlsStream.shake_hands`."""

        def refuse(failure: TlsFailed) -> None:
            if failure.reason == RECORDS:
                self._counts.refuse(peer, failure.reason, str(failure))

        async with self._turn(network_of(peer.host)):
            stream = TlsStream(plain, TlsSession.server(self._certificates.context), refuse)
            await stream.shake_hands()
        self._counts.completed += 1
        return stream

    @contextlib.asynccontextmanager
    async def _turn(self, source: str) -> AsyncIterator[None]:
        own = self._turns_of[source]
        try:
            async with own, self._turns:
                yield
        finally:
            if own.value == HANDSHAKES_OF_SOURCE_MAX:  # nobody of this source is left
                self._turns_of.pop(source, None)


def reload_duty(certificates: Certificates) -> Duty:
    """The background duty that loads changed files, in a thread."""

    async def look() -> None:
        if certificates.has_changed():
            await trio.to_thread.run_sync(certificates.reload)

    return Duty("loading changed certificates", LOOK_S, look)
