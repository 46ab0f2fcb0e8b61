"""How accepted sockets cross from the acceptor to a selector: SCM_RIGHTS over a unix socket pair.

One message carries up to HANDOFF_MAX descriptors and as many bytes, the number of the listener each came in by (0 main
port, 1 VIP port). Both ends belong to the supervisor too, so sockets under way survive the death of either side.
"""

from __future__ import annotations

import array
import errno
import socket
from collections.abc import Sequence

import attrs

from rocketpy.native.core import lib

HANDOFF_MAX: int = lib.RP_HANDOFF_MAX
# Passing: more descriptors in flight than we may have open, or no memory in the kernel for the message.
NOT_NOW = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


@attrs.frozen
class Accepted:
    """A new connection, not yet anybody's."""

    fd: int
    listener: int


def handoff_pair() -> tuple[socket.socket, socket.socket]:
    """(acceptor's end, selector's end), both non-blocking."""
    acceptor, selector = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    acceptor.setblocking(False)
    selector.setblocking(False)
    return acceptor, selector


def hand_over(target: socket.socket, connections: Sequence[Accepted]) -> int:
    """Send the first of `connections`, at most HANDOFF_MAX; the caller still closes its copies.

    Returns: how many went; 0 when the selector has not kept up and the pair is full, or the kernel lacks the means:
        try again a little later.
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
