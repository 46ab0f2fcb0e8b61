"""Answers about replication: the frames that a broker speaks on the HA port (30001), its state (907), and its SQL92
filters for slaves (30002)."""

from __future__ import annotations

from collections.abc import Callable

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST, RequestCode
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.replication import HaStatus
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.broker import GetAllConsumerFilterHeader
from rocketpy.transport.steps import encoded_body

from ..managers.consumer_filter import ConsumerFilterManager
from .table import TableProcessor


class ReplicationProcessor(TableProcessor):
    """`status`: the state now; it is memory that is shared with other workers."""

    def __init__(self, filters: ConsumerFilterManager, status: Callable[[], HaStatus]) -> None:
        super().__init__(
            {
                RequestCode.GET_REPLICATION_VERSION: self._version,
                RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
                RequestCode.GET_ALL_CONSUMER_FILTER: self._all_filters,
            }
        )
        self._filters = filters
        self._status = status

    async def _version(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        # a slave of the last release reads `version` alone, and asks for its own
        lowest, highest = REPLICATION_VERSION_LOWEST, REPLICATION_VERSION
        body = {"version": lowest, "lowest": lowest, "highest": highest}
        return RemotingCommand.response(body=fastjson.dumps(body))

    async def _ha_status(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=self._status().encode())

    async def _all_filters(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """The table, or `{}` if the slave has this version."""
        header = GetAllConsumerFilterHeader(version=self._filters.version)
        known = GetAllConsumerFilterHeader.of(request).version
        table: object = {} if known == header.version else self._filters.document()
        return RemotingCommand.response(header=header, body=await encoded_body(table))
