"""TlsSession: the TLS of one connection without I/O, of a server or of a client.

Bytes of the peer go in and plaintext comes out, and the other way round. The handshake happens in between. Whoever owns
the socket sends what `take_outgoing` returns after each call, also after one that failed: it is the alert.
"""

from __future__ import annotations

import ssl
from typing import TypeAlias

from rocketpy.errors import TlsFailed

from .handshakes import ALERT, CERTIFICATE, CLOSED, HANDSHAKE_BYTES_MAX, PROTOCOL, SIZE, TIMEOUT

Data: TypeAlias = bytes | bytearray | memoryview

RECORD_SIZE = 16_384  # bytes of plaintext, at most


class TlsSession:
    """One connection. For one thread; calls never wait."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, host: str | None) -> None:
        """`host`: of a client, the name or address that the certificate of the server has to name."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._handshake_bytes = 0
        self.is_established = False
        """The handshake has succeeded, and the peer has shown the certificate that it must."""
        self.is_ended = False
        """The peer has said that nothing follows."""

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
        self._incoming.write(data)
        if not self.is_established:
            self._handshake_bytes += len(memoryview(data))
            self._shake_hands()
            if not self.is_established:
                return b""
        return self._read()

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

    @property
    def has_outgoing(self) -> bool:
        return self._outgoing.pending > 0

    def take_outgoing(self) -> bytes:
        """Return the bytes for the peer."""
        return self._outgoing.read()

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

    def _read(self) -> bytes:
        pieces = []
        try:
            while piece := self._tls.read(RECORD_SIZE):
                pieces.append(piece)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            raise failure_of(exc) from exc
        return b"".join(pieces)


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
