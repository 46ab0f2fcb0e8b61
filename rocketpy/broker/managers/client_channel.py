"""One client on one connection, as described by its last heartbeat; and the connections whose entries have changed.

Short: consumers, producers and their journal share it, and none of them is above the others.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rocketpy.faults import do_each
from rocketpy.remoting.abc import Channel

CHANNEL_EXPIRED_MS = 120_000  # four missed heartbeats


@attrs.define(eq=False)
class LastHeartbeat:
    """The times of a client's last heartbeat, and what it has registered. The groups that the heartbeat named
    share this value, which changes with each repeated one.

    Attributes:
        registered: of repeated_heartbeats.py, which is above this module; None: the next heartbeat is no repeated one.
    """

    seen_ms: int  # monotonic, for the sweep
    timestamp_ms: int  # wall clock, for people
    registered: object = attrs.field(init=False, default=None)


@attrs.frozen
class ClientChannelInfo:
    """A client as described by its heartbeat, and the channel to it."""

    channel: Channel = attrs.field(eq=False)
    client_id: str
    language: str
    version: int
    last_heartbeat: LastHeartbeat = attrs.field(eq=False)
    access_key: str = ""  # of the account that has signed the heartbeat; empty without access control

    @property
    def connection(self) -> int:
        return self.channel.connection


@attrs.define
class ClientChanges:
    """Connections whose client or groups have changed. Each is reported once, independent of the number of its
    groups."""

    on_client: Callable[[int], None] = attrs.field(init=False, default=lambda connection: None)
    _connections: dict[int, None] = attrs.field(init=False, factory=dict)  # in the order of their first change

    def add(self, connection: int) -> None:
        self._connections[connection] = None

    def tell(self) -> None:
        """Call `on_client` for each connection. It is called before the response to the request that changed them."""
        changed, self._connections = self._connections, {}
        do_each(self.on_client, changed)
