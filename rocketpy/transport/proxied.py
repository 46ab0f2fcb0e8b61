"""Whom a proxy speaks for: reads the header with which its connections begin, and not a byte more."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from rocketpy.errors import RemoteProtocolError
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.networks import Network, is_in, parse_address
from rocketpy.remoting.proxy_header import ProxyHeader, ProxyHeaderKind, bytes_to_read, cut_proxy_header

logger = logging.getLogger(__name__)


async def real_peer(stream: trio.abc.Stream, peer: Peer, proxies: Sequence[Network], timeout_s: float) -> Peer | None:
    """Who is behind `peer`: itself, unless it is one of `proxies`; None (logged): that one did not say."""
    if not proxies or not is_in(parse_address(peer.host), proxies):
        return peer
    try:
        with trio.fail_after(timeout_s):
            header = await _read_header(stream)
    except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        reason = str(exc) or type(exc).__name__
        logger.warning("closed the connection from %s, which is in proxyProtocolFrom: %s", peer, reason)
        return None
    return peer if header.kind is ProxyHeaderKind.LOCAL else header.peer


async def _read_header(stream: trio.abc.Stream) -> ProxyHeader:
    data = b""
    while (header := cut_proxy_header(data)) is None:
        more = await stream.receive_some(bytes_to_read(data))
        if not more:
            raise RemoteProtocolError("no PROXY header: the stream ends in it")
        data += more
    return header
