"""The interfaces between reactor and broker: Processor, and Channel, the connection of a request.

Reactor and broker never import each other; both use these interfaces. A processor receives a decoded command and a
channel. It does not know whether they came over a ring, a trio stream or from a test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, runtime_checkable

import attrs

from .command import RemotingCommand

ASKER_MAX = 64  # detached requests of one connection, unless the request says otherwise


@attrs.frozen
class Peer:
    """The address of the other end of a connection."""

    host: str  # numeric IPv4 or IPv6 address
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@runtime_checkable
class Channel(Protocol):
    """One client connection. Identity is `connection`, never the address: a quick reconnect is another channel."""

    @property
    def connection(self) -> int:
        """Unique among all connections of this process tree since its start."""

    @property
    def peer(self) -> Peer: ...

    @property
    def is_vip(self) -> bool:
        """True when the connection came in by the VIP port (listenPort - 2), which serves everything but pulls."""

    @property
    def listener(self) -> str:
        """The name of the listener that the connection came in by; empty: by one of the server's own ports."""

    @property
    def is_writable(self) -> bool:
        """False: earlier output waits in this process, so a push would wait behind it, or be dropped."""

    def push(self, command: RemotingCommand) -> None:
        """Send a one-way command or a reply; never blocks. A dead or choked connection drops it silently."""

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request to the client and wait for its response.

        Raises:
            RequestTimeout: no response in time.
            ConnectionLost: the connection closed first.
        """

    def close(self) -> None: ...


@attrs.frozen(eq=False)
class Detached:
    """A detached request: a processor returns it when the rest must wait for another process, so that no task of a pool
    waits.

    The server runs `finish` later, within its bounds; a request beyond them is answered SYSTEM_BUSY. `finish` must not
    add the requesting connection to any table: that connection may be closed, and its end reported, before it returns.
    """

    finish: Callable[[], Awaitable[RemotingCommand | None]]
    waits_for: Hashable
    """The target of the wait: a connection, or a name like "store"."""
    timeout_s: float
    """After this time it is answered SYSTEM_ERROR."""
    at_once_max: int = 16
    """Limit of requests that wait for the same target."""
    asker_max: int = ASKER_MAX
    """Limit of requests of the same connection."""


@attrs.frozen(eq=False)
class Preparation:
    """A request that needs work elsewhere, as of a thread, before it may change a table.

    The server runs `prepare` outside of the pool, so that others are served meanwhile. Later requests of the same
    connection to this pool wait, so that their order is kept. `prepare` returns the rest of the request, which is
    served when its turn comes again. It is ended when the connection closes. Only for pools with one task.
    """

    prepare: Callable[[], Awaitable[Rest]]
    timeout_s: float
    """After this time the request is answered SYSTEM_ERROR."""


Response = RemotingCommand | Detached | Preparation | None
Rest = Callable[[], Awaitable[Response]]


async def final_response(response: Response) -> RemotingCommand | None:
    """Wait until the response is known, where no other request waits behind it."""
    while isinstance(response, Preparation):
        response = await (await response.prepare())()
    return await response.finish() if isinstance(response, Detached) else response


class Processor(Protocol):
    """Answers requests of the codes that it is registered for."""

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        """The response (opaque, flag and serialisation are set by the caller), or None: nothing is to be sent now.

        Detached: the response will come from its `finish`. Preparation: it will come from what that returns.

        A RocketError that is raised becomes a response with its response_code and text; any other exception becomes
        SYSTEM_ERROR with the exception's name, as the reference does.
        """


class ConnectionListener(Protocol):
    """Called when a connection is closed, so that tables of clients and brokers are updated at once and not by a
    timer."""

    def connection_closed(self, connection: int) -> None: ...
