"""TlsSession: the TLS of one connection without I/O, of a server or of a client.

Bytes of the peer go in and plaintext comes out, and the other way round. The handshake happens in between. Whoever owns
the socket sends what `take_outgoing` returns after each call, also after one that failed: it is the alert.

After the handshake a peer may send records that carry no data: updates of keys (TLS 1.3), hellos of a refused
renegotiation (1.2). OpenSSL takes 30 us for one of 27 bytes, and one read handles as many as there are. So OpenSSL
reads from memory what one call gives it, and SILENT_BYTES_MAX of such records without data between them end a session.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TypeAlias

from rocketpy.errors import TlsFailed

from .handshake_counts import ALERT, CERTIFICATE, CLOSED, PROTOCOL, RECORDS, SIZE, TIMEOUT

Data: TypeAlias = bytes | bytearray | memoryview

HANDSHAKE_S = 10.0  # from the first byte on: default of tlsHandshakeTimeoutMillis
HANDSHAKE_BYTES_MAX = 65_536  # from the peer: a hello, and a chain of certificates
RECORD_SIZE = 16_384  # bytes of plaintext, at most
SILENT_BYTES_MAX = 65_536  # of records without data, and of answers to records that the peer does not read


class TlsSession:
    """One connection. For one thread; calls never wait."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None) -> None:
        """`host`: of a client, the name or address that the certificate of the server has to name."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._handshake_bytes = 0
        self._silent_bytes = 0  # since the last plaintext
        self._answer_bytes = 0  # that OpenSSL has added to `_outgoing` since it was taken
        self.is_established = False
        """The handshake has succeeded, and the peer has shown the certificate that it must."""
        self.is_ended = False
        """The peer has said that nothing follows."""
        self.failure: TlsFailed | None = None
        """Why nothing more can be received after the handshake."""

    @classmethod
    def server(cls, context: ssl.SSLContext) -> TlsSession:
        return cls(context, server_side=True, host=None)

    @classmethod
    def client(cls, context: ssl.SSLContext, host: str) -> TlsSession:
        """Begins with what `take_outgoing` returns: its hello."""
        session = cls(context, server_side=False, host=host)
        session._shake_hands()
        return session

    def receive(self, data: Data) -> bytes:
        """Take bytes of the peer, and return the plaintext that is whole with them.

        Raises:
            TlsFailed: the handshake or a record is bad; the connection is of no further use.
        """
        view = memoryview(data)
        if not self.is_established:
            self._incoming.write(view)
            self._handshake_bytes += len(view)
            self._shake_hands()
            if not self.is_established:
                return b""
            view = view[:0]
        target = memoryview(bytearray(self._incoming.pending + len(view) + RECORD_SIZE))
        size = self.receive_into(view, target)
        if self.failure is not None:
            raise self.failure
        return bytes(target[:size])

    def receive_into(self, data: memoryview, target: memoryview) -> int:
        """Take bytes of the peer after the handshake, and write the plaintext that is whole with them to `target`,
        which has room for RECORD_SIZE bytes more than `data`.

        Returns: the size of the plaintext; that of the records before a bad one, of which `failure` tells.
        """
        size, unsent = self._read(target), self._outgoing.pending
        for at in range(0, len(data), RECORD_SIZE):  # in parts: a memory BIO keeps the largest size that it had
            self._incoming.write(data[at : at + RECORD_SIZE])
            size += self._read(target[size:])
        self._silent_bytes = 0 if size else self._silent_bytes + len(data)
        self._answer_bytes += self._outgoing.pending - unsent
        if self.failure is None and max(self._silent_bytes, self._answer_bytes) > SILENT_BYTES_MAX:
            self.failure = TlsFailed(RECORDS, f"more than {SILENT_BYTES_MAX} bytes of TLS records without data")
        return size

    def receive_end(self) -> None:
        """The stream of the peer has ended. Raises: TlsFailed: in the middle of the handshake."""
        self._incoming.write_eof()
        if not self.is_established:
            self._shake_hands()
        self.is_ended = True

    def send(self, data: Data) -> None:
        """Encrypt data for the peer, after the handshake. Raises: TlsFailed."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError as exc:
            raise failure_of(exc) from exc

    def encrypt(self, data: memoryview) -> list[bytes]:
        """Return the bytes for the peer with these data, in pieces of one record. Raises: TlsFailed."""
        pieces = []
        for at in range(0, len(data), RECORD_SIZE):
            self.send(data[at : at + RECORD_SIZE])
            pieces.append(self.take_outgoing())
        return pieces

    @property
    def outgoing_bytes(self) -> int:
        return self._outgoing.pending

    @property
    def has_outgoing(self) -> bool:
        return self._outgoing.pending > 0

    def take_outgoing(self) -> bytes:
        """Return the bytes for the peer."""
        self._answer_bytes = 0
        return self._outgoing.read()

    def take_farewell(self) -> bytes:
        """Return the last bytes for the peer, with the end of TLS itself."""
        with contextlib.suppress(ssl.SSLError):  # the peer has not answered it, or a record was bad
            self._tls.unwrap()
        return self.take_outgoing()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
            self.is_established = True
        except ssl.SSLWantReadError:
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                reason = f"its handshake has more than {HANDSHAKE_BYTES_MAX} bytes"
                raise TlsFailed(SIZE, reason) from None
        except ssl.SSLError as exc:
            raise failure_of(exc) from exc

    def _read(self, target: memoryview) -> int:
        """Read what `_incoming` has. OpenSSL keeps a record of which a part is missing, and nothing else."""
        size = 0
        try:
            while self._incoming.pending and self.failure is None and not self.is_ended:
                if got := self._tls.read(RECORD_SIZE, target[size:]):
                    size += got  # type: ignore[operator]  # with a buffer it is a size, which typeshed does not know
                else:
                    self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            self.failure = failure_of(exc)
        return size


def failure_of(error: OSError) -> TlsFailed:
    """Return what an error of OpenSSL, or of the socket below it, says of the peer."""
    if isinstance(error, TimeoutError):
        return TlsFailed(TIMEOUT, "no TLS handshake in time")
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(CERTIFICATE, f"its certificate is refused: {error.verify_message}")
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return TlsFailed(CLOSED, "it closed the connection during the TLS handshake")
    reason = error.reason or str(error)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return TlsFailed(CERTIFICATE, "it shows no certificate")
    if reason == "EXCESSIVE_MESSAGE_SIZE":
        return TlsFailed(SIZE, "its handshake has a message that is too large")
    if "ALERT" in reason:
        return TlsFailed(ALERT, f"it refuses the connection: {reason}")
    return TlsFailed(PROTOCOL, f"no TLS with it: {reason}")
