"""Opens byte streams over TCP, plain or encrypted, for the backend that runs the caller.

Short: it knows both kinds of streams, and neither knows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from rocketpy import aio

from .byte_stream import ByteStream

if TYPE_CHECKING:
    import ssl

Connector: TypeAlias = Callable[[str], Awaitable[ByteStream]]
"""Opens a stream to an address `host:port`; raises ConnectFailed."""


async def connect(address: str) -> ByteStream:
    """A TCP connection (TCP_NODELAY) to `host:port` or `[host]:port`, for the running backend.

    Raises:
        ConnectFailed: no such address, or nobody listens there.
    """
    return await _open(address, None)


def tls_connector(context: Callable[[], ssl.SSLContext]) -> Connector:
    """Return a connector that opens encrypted streams; `context` is asked for each of them."""

    async def connect_with_tls(address: str) -> ByteStream:
        return await _open(address, context)

    return connect_with_tls


async def _open(address: str, context: Callable[[], ssl.SSLContext] | None) -> ByteStream:
    if aio.running().name == "trio":
        from . import trio_socket_stream

        return await trio_socket_stream.open_stream(address, context)
    from . import asyncio_stream

    return await asyncio_stream.open_stream(address, context)
