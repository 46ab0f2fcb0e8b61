"""Where byte streams come from: the one place to change when they are to be encrypted."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import trio

from rocketpy.errors import ConnectFailed, NumberInvalid
from rocketpy.message.host import parse_host
from rocketpy.remoting.abc import Peer

Connector: TypeAlias = Callable[[str], Awaitable[trio.abc.Stream]]
"""Opens a stream to an address `host:port`; raises ConnectFailed."""

BACKLOG = 1024


async def connect(address: str) -> trio.SocketStream:
    """A TCP connection (TCP_NODELAY) to `host:port` or `[host]:port`.

    Raises:
        ConnectFailed: no such address, or nobody listens there.
    """
    try:
        host, port = parse_host(address)
        # A name in ASCII needs no codec for international names: that takes a megabyte of tables.
        return await trio.open_tcp_stream(host.encode() if host.isascii() else host, port)
    except (OSError, ValueError, NumberInvalid) as exc:
        raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc


async def open_listeners(host: str, port: int, *, backlog: int = BACKLOG) -> Sequence[trio.SocketListener]:
    """Listening sockets on `host`; an empty host is every interface, port 0 any free one.

    Raises:
        OSError: the port is taken.
    """
    return await trio.open_tcp_listeners(port, host=host or None, backlog=backlog)


def listening_port(listener: trio.SocketListener) -> int:
    """The port that a listener has got."""
    return int(listener.socket.getsockname()[1])


def reset_at_death(stream: trio.abc.Stream) -> None:
    """Should this process be killed, the peer is told by a reset: on a FIN, Java clients wait out their requests."""
    _linger(stream, resets=True)


def close_in_order(stream: trio.abc.Stream) -> None:
    """What is written goes out before the coming close: takes `reset_at_death` back."""
    _linger(stream, resets=False)


def _linger(stream: trio.abc.Stream, *, resets: bool) -> None:
    if isinstance(stream, trio.SocketStream):
        with contextlib.suppress(OSError):  # it has gone already
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))


def peer_of(stream: trio.abc.Stream) -> Peer:
    """Who is at the other end; a stream that is no socket has no address."""
    if not isinstance(stream, trio.SocketStream):
        return Peer("0.0.0.0", 0)
    host, port, *_ = stream.socket.getpeername()
    return Peer(host.removeprefix("::ffff:") if "." in host else host, port)
