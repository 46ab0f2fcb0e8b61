"""What a broker says of its replication: which frames it speaks on the HA port (30001), and its state (907)."""

from __future__ import annotations

from collections.abc import Callable

from rocketpy.codes import REPLICATION_VERSION, RequestCode
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.replication import HaStatus
from rocketpy.remoting.command import RemotingCommand

from .table import TableProcessor


class ReplicationProcessor(TableProcessor):
    """`status`: the state now; it is memory that is shared with other workers."""

    def __init__(self, status: Callable[[], HaStatus]) -> None:
        super().__init__(
            {
                RequestCode.GET_REPLICATION_VERSION: self._version,
                RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            }
        )
        self._status = status

    async def _version(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=fastjson.dumps({"version": REPLICATION_VERSION}))

    async def _ha_status(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=self._status().encode())
