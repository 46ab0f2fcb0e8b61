"""Offsets and times of queues, read from the store alone: 29 to 32.

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.offset import (
    GetEarliestMsgStoretimeResponseHeader,
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
)

from ..store_api import Store
from .table import TableProcessor


class StoreOffsetProcessor(TableProcessor):
    """The smallest and largest offset of a queue, and the offset at a time."""

    def __init__(self, store: Store) -> None:
        super().__init__(
            {
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
                RequestCode.GET_MAX_OFFSET: self._max_offset,
                RequestCode.GET_MIN_OFFSET: self._min_offset,
                RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            }
        )
        self._store = store

    async def _search(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = SearchOffsetRequestHeader.of(request)
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp_ms)
        return RemotingCommand.response(header=OffsetResponseHeader(offset=offset))

    async def _max_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueueRequestHeader.of(request)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return RemotingCommand.response(header=OffsetResponseHeader(offset=max(0, offset)))

    async def _min_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueueRequestHeader.of(request)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return RemotingCommand.response(header=OffsetResponseHeader(offset=max(0, offset)))

    async def _earliest(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueueRequestHeader.of(request)
        timestamp_ms = self._store.earliest_store_timestamp(header.topic, header.queue_id)
        return RemotingCommand.response(header=GetEarliestMsgStoretimeResponseHeader(timestamp_ms=timestamp_ms))
