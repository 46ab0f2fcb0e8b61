"""Passes accepted sockets from the acceptor to a selector: SCM_RIGHTS over a unix socket pair.

One message carries up to HANDOFF_MAX descriptors, and for each a byte with the number of its listener (0 main port, 1
VIP port). The supervisor holds both ends as well, so descriptors in flight survive the death of either worker.
"""

from __future__ import annotations

import array
import errno
import socket
from collections.abc import Sequence

import attrs

from rocketpy.native.core import lib

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


def take_over(source: socket.socket) -> list[Accepted]:
    """Take all connections that were passed so far; the caller owns them."""
    taken: list[Accepted] = []
    while True:
        try:
            listeners, fds, _, _ = socket.recv_fds(source, HANDOFF_MAX, HANDOFF_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return taken
        if not fds:
            return taken
        taken += [Accepted(fd, listener) for fd, listener in zip(fds, listeners, strict=True)]
