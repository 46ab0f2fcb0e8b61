"""Questions to a socket below a stream: its peer, unacknowledged bytes, and its end.

Short: streams of trio and of asyncio share it, and neither is imported here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from rocketpy.remoting.abc import Peer

if sys.platform != "win32":
    import fcntl
    import termios

NOWHERE = Peer("0.0.0.0", 0)
"""The peer of a stream that is not a socket."""


class SocketLike(Protocol):
    """The socket below a stream of either backend."""

    def fileno(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: bytes, /) -> None: ...


def family_of(host: str) -> socket.AddressFamily | None:
    """Return the family of a numeric address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def peer_named(name: Sequence[Any] | None) -> Peer:
    """The peer by the name that a socket gives it."""
    if not name:
        return NOWHERE
    host, port, *_ = name
    return Peer(host.removeprefix("::ffff:") if "." in host else host, port)


def unacknowledged_bytes(carrier: SocketLike | None) -> int:
    """The bytes written that the peer's machine has not acknowledged. 0 as well where the system does not tell."""
    if carrier is None or not sys.platform.startswith("linux"):
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(carrier.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # it was closed
        return 0


def linger(carrier: SocketLike | None, *, resets: bool) -> None:
    """Have the kernel reset the connection when the socket is closed with data that waits, or send that data."""
    if carrier is not None:
        with contextlib.suppress(OSError):  # it is closed already
            carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))
