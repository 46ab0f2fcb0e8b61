"""A slave's connections to its master, plain or by TLS.

Requests use a socket of `ssl`. The log is read by C, from a descriptor with plain bytes: with TLS that is one end of a
socket pair, and a thread of the replicator has the other end and does the cipher, as a TLS worker does for clients.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketpy.config import parse_addresses

from .errors import MasterUnusable, NoTls

if TYPE_CHECKING:
    import ssl

    from rocketpy.reactor.tls_worker import Pump

TURN_S = 1.0
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
    try:
        host, port = parse_addresses(address)[0]
        connection = socket.create_connection((host, port), timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, ValueError) as exc:
        raise MasterUnusable(f"cannot connect to {address}: {exc}") from exc
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except OSError as exc:  # the connection is closed
        raise no_tls(address, exc) from exc


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
    import ssl  # OpenSSL is loaded only where it is used

    from rocketpy.reactor.tls_worker import WAITING_MAX, Pump

    with connect(address, timeout_s, tls) as encrypted, contextlib.ExitStack() as stack:
        plain, inner = socket.socketpair()
        doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        stack.callback(os.close, doorbell)
        encrypted.setblocking(False)
        inner.setblocking(False)
        plain.settimeout(timeout_s)
        assert isinstance(encrypted, ssl.SSLSocket)
        pump = Pump(doorbell, WAITING_MAX)
        tunnel = pump.add(encrypted, inner)
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
            if not isinstance(failure, ssl.SSLError) or isinstance(failure, ssl.SSLEOFError):
                raise MasterUnusable(f"{exc}; {address} cut the connection after the TLS handshake: {failure}") from exc
            raise no_tls(address, failure) from exc


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


def no_tls(address: str, error: OSError) -> NoTls:
    """The failure of a handshake with a master, or of the first read after one of TLS 1.3."""
    from rocketpy.tls import failure_of

    failure = failure_of(error)
    return NoTls(address, failure, _REMEDIES.get(failure.reason, _NOT_SERVED))
