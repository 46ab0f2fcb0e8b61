"""Opens streams of trio over TCP. tls.py encrypts them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import trio

from rocketpy.errors import ConnectFailed, NumberInvalid
from rocketpy.message.host import parse_host
from rocketpy.remoting.abc import Peer

from . import sockets

BACKLOG = 1024


async def connect(address: str) -> trio.SocketStream:
    """A TCP connection (TCP_NODELAY) to `host:port` or `[host]:port`.

    Raises:
        ConnectFailed: no such address, or nobody listens there.
    """
    try:
        host, port = parse_host(address)
        if (family := sockets.family_of(host)) is not None:
            return await _connect_to(family, host, port)
        # As bytes: the codec of international names would refuse some names in words of its own.
        return await trio.open_tcp_stream(host.encode() if host.isascii() else host, port)
    except (OSError, ValueError, NumberInvalid) as exc:
        raise ConnectFailed(f"connect to <{address}> failed: {exc}") from exc


async def _connect_to(family: socket.AddressFamily, host: str, port: int) -> trio.SocketStream:
    """Connect to a numeric address. trio's way for names leaves a failure in a cycle with its task and scopes, which
    only a full collection frees."""
    connection = trio.socket.socket(family)
    try:
        await connection.connect((host, port))
        return trio.SocketStream(connection)
    except BaseException:
        connection.close()
        raise


async def open_listeners(host: str, port: int, *, backlog: int = BACKLOG) -> Sequence[trio.SocketListener]:
    """Listening sockets on `host`; an empty one, or `::`, is every interface by IPv6 and IPv4. Port 0 is any free one.

    Raises:
        OSError: the port is taken.
    """
    return await trio.open_tcp_listeners(port, host=None if host in ("", "::") else host, backlog=backlog)


def listening_port(listener: trio.SocketListener) -> int:
    """The port of a listener."""
    return int(listener.socket.getsockname()[1])


def unacknowledged_bytes(stream: trio.abc.Stream) -> int:
    """As sockets.unacknowledged_bytes."""
    below = _socket_stream(stream)
    return 0 if below is None else sockets.unacknowledged_bytes(below.socket)


def reset_at_death(stream: trio.abc.Stream) -> None:
    """Make the kernel reset the connection if this process dies: after a FIN, Java clients would wait until their
    requests time out."""
    _linger(stream, resets=True)


def close_in_order(stream: trio.abc.Stream) -> None:
    """Undo `reset_at_death` before an orderly close, so that written data is still sent."""
    _linger(stream, resets=False)


def _linger(stream: trio.abc.Stream, *, resets: bool) -> None:
    below = _socket_stream(stream)
    sockets.linger(None if below is None else below.socket, resets=resets)


def peer_of(stream: trio.abc.Stream) -> Peer:
    """The address of the peer; 0.0.0.0:0 for a stream that is not a socket."""
    below = _socket_stream(stream)
    return sockets.peer_named(None if below is None else below.socket.getpeername())


def _socket_stream(stream: trio.abc.Stream) -> trio.SocketStream | None:
    """The TCP stream below, also of an encrypted one; None: there is none, as in tests."""
    below = getattr(stream, "transport_stream", stream)
    return below if isinstance(below, trio.SocketStream) else None
