"""Passes sockets to another worker: SCM_RIGHTS over a unix socket pair.

Acceptor to selector: up to HANDOFF_MAX descriptors in one message, and for each a byte with the number of its listener
(0 main port, 1 VIP port). Replicator to TLS worker: one, with the end of the socket pair that takes its place. The
supervisor holds both ends as well, so descriptors in flight survive the death of either worker.
"""

from __future__ import annotations

import array
import errno
import socket
from collections.abc import Sequence

import attrs

from rocketpy.native.core import lib
from rocketpy.remoting.abc import Peer

from .worker_messages import HOST, encode_host

HANDOFF_MAX: int = lib.RP_HANDOFF_MAX
# Transient errors: too many descriptors in flight, or no kernel memory for the message.
NOT_NOW = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


@attrs.frozen
class Accepted:
    """An accepted connection that no selector owns yet."""

    fd: int
    listener: int


def handoff_pair() -> tuple[socket.socket, socket.socket]:
    """(acceptor's end, selector's end), both non-blocking."""
    acceptor, selector = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    acceptor.setblocking(False)
    selector.setblocking(False)
    return acceptor, selector


def hand_over(target: socket.socket, connections: Sequence[Accepted]) -> int:
    """Pass the first of `connections`, at most HANDOFF_MAX. The caller closes its own descriptors.

    Returns: how many were passed; 0 when the pair is full or the kernel has no resources: try again later.
    """
    batch = connections[:HANDOFF_MAX]
    rights = array.array("i", [one.fd for one in batch])
    try:
        target.sendmsg([bytes(one.listener for one in batch)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except BlockingIOError:
        return 0
    except OSError as exc:
        if exc.errno not in NOT_NOW:
            raise
        return 0
    return len(batch)


def pass_to_tls(worker: socket.socket, connection: socket.socket, peer: Peer) -> socket.socket | None:
    """Give a connection that begins with a TLS handshake to a TLS worker. The caller closes its own descriptor.

    As csrc/workers/selector/selector_connection.c does. Returns: the connection's plain bytes, a non-blocking socket;
    None: the worker is behind, or there are no descriptors.
    """
    try:
        plain, inner = socket.socketpair()
    except OSError:
        return None
    with inner:
        plain.setblocking(False)
        inner.setblocking(False)
        rights = array.array("i", [connection.fileno(), inner.fileno()])
        try:
            record = HOST.write(**encode_host(peer.host, peer.port))
            worker.sendmsg([record], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            plain.close()
            return None
    return plain


def take_over(source: socket.socket) -> list[Accepted]:
    """Take connections that were passed together; the caller owns them. None: nothing is left."""
    try:
        listeners, fds, _, _ = socket.recv_fds(source, HANDOFF_MAX, HANDOFF_MAX, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return []
    return [Accepted(fd, listener) for fd, listener in zip(fds, listeners, strict=True)]
