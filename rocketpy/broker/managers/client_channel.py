"""One client on one connection, as its last heartbeat described it."""

from __future__ import annotations

import attrs

from rocketpy.remoting.abc import Channel

CHANNEL_EXPIRED_MS = 120_000  # four missed heartbeats


@attrs.frozen
class ClientChannelInfo:
    channel: Channel = attrs.field(eq=False)
    client_id: str
    language: str
    version: int
    seen_ms: int  # monotonic, for the sweep
    last_update_timestamp_ms: int  # wall clock, for people

    @property
    def connection(self) -> int:
        return self.channel.connection
