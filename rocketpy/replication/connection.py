"""A slave's connections to its master, plain or by TLS.

Requests use a socket of `ssl`. The log is read by C, from a descriptor with plain bytes: with TLS that is one end of a
socket pair, and a thread of the replicator has the other end and does the cipher, as a TLS worker does for clients.

A master is trusted: the requests of a slave have no bound for records without data (tls/session.py). The log has it,
because the pump is that of clients.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketpy.config import parse_addresses
from rocketpy.errors import TlsFailed

from .errors import MasterUnusable, NoTls

if TYPE_CHECKING:
    import ssl

    from rocketpy.reactor.tls_worker import Pump
    from rocketpy.tls import TlsSession

TURN_S = 1.0
RECEIVE_SIZE = 65_536
FAREWELL_S = 1.0  # for the last bytes to a master that does not read
_NOT_SERVED = "set tls.server.mode=permissive or enforcing on the master, or useTLS and haUseTLS to false here"
_REMEDIES = {  # by the reason of a TlsFailed
    "certificate": "give the master a certificate that names this address and is signed by an authority of "
    "tls.client.trustCertPath",
    "timeout": "the master is busy, or does not serve TLS there (tls.server.mode)",
    "alert": "give this slave a certificate that the master trusts: tls.client.certPath",
}


def connect(address: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> socket.socket:
    """A connection to `host:port`, encrypted if there is a context. `timeout_s` is for both, and again for TLS.

    Raises:
        MasterUnusable: there is none. NoTls: it cannot be encrypted.
    """
    connection, host = _connect(address, timeout_s)
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except OSError as exc:  # the connection is closed
        raise no_tls(address, exc) from exc


def _connect(address: str, timeout_s: float) -> tuple[socket.socket, str]:
    try:
        host, port = parse_addresses(address)[0]
        connection = socket.create_connection((host, port), timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, ValueError) as exc:
        raise MasterUnusable(f"cannot connect to {address}: {exc}") from exc
    return connection, host


@contextlib.contextmanager
def connect_ha(address: str, timeout_s: float, tls: ssl.SSLContext | None) -> Iterator[socket.socket]:
    """A connection to the HA port, whose descriptor carries plain bytes.

    Raises:
        MasterUnusable: there is none; or the user of the connection says so, and TLS knows more: a master of TLS 1.3
            refuses a certificate after the handshake, or a connection is cut later, which has nothing to do with TLS.
    """
    if tls is None:
        with connect(address, timeout_s) as connection:
            yield connection
        return
    from rocketpy.reactor.tls_worker import WAITING_MAX, Pump, Tunnel  # OpenSSL is loaded only where it is used
    from rocketpy.tls import TlsSession

    encrypted, host = _connect(address, timeout_s)
    with encrypted, contextlib.ExitStack() as stack:
        session = TlsSession.client(tls, host)
        try:
            early = _shake_hands(encrypted, session)
        except (OSError, TlsFailed) as exc:
            raise no_tls(address, exc) from exc
        plain, inner = socket.socketpair()
        doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        stack.callback(os.close, doorbell)
        encrypted.setblocking(False)
        inner.setblocking(False)
        plain.settimeout(timeout_s)
        pump, tunnel = Pump(doorbell, WAITING_MAX), Tunnel(encrypted, inner, session)
        pump.add(tunnel, early)
        thread = threading.Thread(target=_move, args=(pump,), name="tls", daemon=True)
        thread.start()
        stack.callback(_end, thread, doorbell)
        try:
            with plain:
                yield plain
        except MasterUnusable as exc:
            failure = tunnel.failure
            if failure is None:
                raise
            if isinstance(failure, TlsFailed):
                raise no_tls(address, failure) from exc
            raise MasterUnusable(f"{exc}; {address} cut the connection after the TLS handshake: {failure}") from exc


def _shake_hands(connection: socket.socket, session: TlsSession) -> bytes:
    """Return the plaintext that came with the end of the handshake. Raises: OSError. TlsFailed."""
    early = b""
    connection.sendall(session.take_outgoing())
    try:
        while not session.is_established:
            if data := connection.recv(RECEIVE_SIZE):
                early = session.receive(data)
            else:
                session.receive_end()
            connection.sendall(session.take_outgoing())
    except TlsFailed:
        with contextlib.suppress(OSError):
            connection.sendall(session.take_outgoing())  # the alert
        raise
    return early


def _move(pump: Pump) -> None:
    """Move bytes until the connection has ended, or the doorbell rings; the body of the thread."""
    try:
        while len(pump) and not pump.turn(TURN_S):
            pass
    finally:
        pump.close()


def _end(thread: threading.Thread, doorbell: int) -> None:
    """The thread sends what is left, and ends by itself: its end of the socket pair has ended."""
    thread.join(FAREWELL_S)
    os.eventfd_write(doorbell, 1)
    thread.join()


def no_tls(address: str, error: OSError | TlsFailed) -> NoTls:
    """The failure of a handshake with a master, or of the first read after one of TLS 1.3."""
    from rocketpy.tls import failure_of

    failure = error if isinstance(error, TlsFailed) else failure_of(error)
    return NoTls(address, failure, _REMEDIES.get(failure.reason, _NOT_SERVED))
