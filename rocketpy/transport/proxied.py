"""Reads the PROXY header at the beginning of a proxied connection, without reading any byte after it."""

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
    """Return the client of a connection: `peer`, or, if `peer` is one of `proxies`, the client in its PROXY header.

    None, with a line in the log: the proxy sent no valid PROXY header.
    """
    if not proxies or not is_in(parse_address(peer.host), proxies):
        return peer
    try:
        with trio.fail_after(timeout_s):
            header = await _read_header(stream)
    except (RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError) as exc:
        reason = str(exc) or type(exc).__name__
        logger.warning("closed the connection of proxy %s (proxyProtocolFrom): %s", peer, reason)
        return None
    return peer if header.kind is ProxyHeaderKind.LOCAL else header.peer


async def _read_header(stream: trio.abc.Stream) -> ProxyHeader:
    data = b""
    while (header := cut_proxy_header(data)) is None:
        more = await stream.receive_some(bytes_to_read(data))
        if not more:
            raise RemoteProtocolError("bad PROXY header: the connection closed before its end")
        data += more
    return header
