"""RemotingServer: accepts connections and answers their requests."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

import trio

from rocketpy.errors import RemoteProtocolError
from rocketpy.logs import LogLimit
from rocketpy.networks import Network, is_in, network_of, parse_address
from rocketpy.remoting.abc import ConnectionListener, Peer
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.proxy_header import NOBODY, ProxyHeader, ProxyHeaderKind, bytes_to_read, cut_proxy_header

from .channel import ChannelOwner, StreamChannel
from .limits import Budget, ChannelLimits
from .streams import peer_of, reset_at_death
from .trio_stream import TrioByteStream

logger = logging.getLogger(__name__)

BYTES_MAX = 256 * 1024 * 1024  # of all connections of a server together

T_contra = TypeVar("T_contra", contravariant=True)


class TaskStatus(Protocol[T_contra]):
    """The object that `nursery.start` hands to a task; public in trio's types from 0.26 on only."""

    def started(self, value: T_contra, /) -> None: ...


class Acceptor(Protocol):
    """Looks at each connection before it carries commands (tls.TlsAcceptor)."""

    async def accept(self, stream: trio.abc.Stream, peer: Peer, *, idle_s: float) -> trio.abc.Stream | None:
        """Return the stream to use, or None: the connection is to be closed."""


class RemotingServer:
    """Serves any number of connections, which cannot affect each other."""

    def __init__(
        self,
        table: RequestTable,
        *,
        connection_listeners: Sequence[ConnectionListener] = (),
        limits: ChannelLimits | None = None,
        proxies: Sequence[Network] = (),
        bytes_max: int = BYTES_MAX,
        acceptor: Acceptor | None = None,
    ) -> None:
        """Connections from `proxies` begin with a PROXY header, which names the real peer. All connections together
        hold at most `bytes_max` in memory (Budget). Without `acceptor` every connection is a plain one."""
        self._owner = ChannelOwner(table, limits or ChannelLimits(), Budget(bytes_max))
        self._connection_listeners = tuple(connection_listeners)
        self._connection_ids = itertools.count(1)
        self._proxies = tuple(proxies)
        self._acceptor = acceptor
        self._channels: dict[int, StreamChannel] = {}
        self.connections_max = math.inf
        """More are closed at once: while they waited for a descriptor, their clients would take the server for hung."""
        self.address_connections_max = math.inf
        """Bound on the connections of one peer address (IPv6: one /64). A connection beyond it is closed at once."""
        self._count = 0  # of connections, with those that have no channel yet
        self._of_address: Counter[str] = Counter()  # connections by `network_of` their client; none has 0
        self._refusals = LogLimit()

    @property
    def channels(self) -> Sequence[StreamChannel]:
        """The connections of this moment."""
        return tuple(self._channels.values())

    async def run(
        self,
        listeners: Sequence[trio.SocketListener],
        *,
        is_vip: bool = False,
        name: str = "",
        task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled. May run several times at once, as for the VIP port, or for listeners with names."""

        async def serve(stream: trio.abc.Stream) -> None:
            await self.serve_stream(stream, is_vip=is_vip, listener=name)

        async with trio.open_nursery() as nursery:
            task_status.started(None)
            await trio.serve_listeners(serve, list(listeners), handler_nursery=nursery)

    async def serve_stream(self, stream: trio.abc.Stream, *, is_vip: bool = False, listener: str = "") -> None:
        """Serve one connection until it ends; never raises an Exception."""
        if self._count >= self.connections_max:
            if told := self._refusals.take("open files"):
                logger.warning(
                    "refused %d connections: the limit of open files is reached; raise it (ulimit -Hn)", told
                )
            await trio.aclose_forcefully(stream)
            return
        self._count += 1
        try:
            await self._serve_within_limit(stream, is_vip=is_vip, listener=listener)
        except Exception as exc:
            self._owner.table.faults.report("a connection", exc)
            await trio.aclose_forcefully(stream)
        finally:
            self._count -= 1

    async def _serve_within_limit(self, stream: trio.abc.Stream, *, is_vip: bool, listener: str) -> None:
        """Serve the connection unless its address has `address_connections_max` of them."""
        client = await self._client_of(stream)
        if client is None:
            await trio.aclose_forcefully(stream)
            return
        address = network_of(client.host)
        is_known = client.host != NOBODY.host  # clients that their proxy cannot name are not one client
        if is_known and self._of_address[address] >= self.address_connections_max:
            if told := self._refusals.take("addresses"):
                logger.warning(
                    "refused %d connections: their address is at addressConnectionsMax; the last: %s", told, address
                )
            await trio.aclose_forcefully(stream)
            return
        self._of_address[address] += 1
        try:
            await self._serve_client(stream, client, is_vip=is_vip, listener=listener)
        finally:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    async def _client_of(self, stream: trio.abc.Stream) -> Peer | None:
        """Return the client of a connection; None: it is closed already, or its proxy sent no valid PROXY header."""
        try:
            peer = peer_of(stream)
        except OSError:
            return None
        reset_at_death(stream)
        return await real_peer(stream, peer, self._proxies, self._owner.limits.idle_s)

    async def _serve_client(self, stream: trio.abc.Stream, client: Peer, *, is_vip: bool, listener: str) -> None:
        """Run the TLS acceptor, then the channel, until the connection ends."""
        carrier: trio.abc.Stream | None = stream
        if self._acceptor is not None:
            carrier = await self._acceptor.accept(stream, client, idle_s=self._owner.limits.idle_s)
        if carrier is None:
            await trio.aclose_forcefully(stream)
            return
        channel = StreamChannel(
            TrioByteStream(carrier, client),
            self._owner,
            connection=next(self._connection_ids),
            is_vip=is_vip,
            listener=listener,
        )
        self._channels[channel.connection] = channel
        try:
            await channel.run()
        finally:
            del self._channels[channel.connection]
            self._tell_listeners(channel)

    def _tell_listeners(self, channel: StreamChannel) -> None:
        for listener in self._connection_listeners:
            try:
                listener.connection_closed(channel.connection)
            except Exception as exc:
                self._owner.table.faults.report("the end of a connection", exc)


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
    """Read the PROXY header, and no byte after it."""
    data = b""
    while (header := cut_proxy_header(data)) is None:
        more = await stream.receive_some(bytes_to_read(data))
        if not more:
            raise RemoteProtocolError("bad PROXY header: the connection closed before its end")
        data += more
    return header
