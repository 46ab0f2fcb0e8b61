"""The queries that need the store and the settings alone: messages by key and by place in the log (12, 33), offsets and
times of queues (29 to 32).

Query workers serve them, or the manager where there are none; either way the answers are those of the control block and
the files, which are shared. Other reading requests need tables that the manager owns (topics, groups, offsets), and are
served there.

Source: RocketMQ 4.9 `QueryMessageProcessor`, `AdminBrokerProcessor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RecordCorrupt, RequestRefused
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.abc import Channel, Processor
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.offset import (
    GetEarliestMsgStoretimeResponseHeader,
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
)
from rocketpy.remoting.headers.pull import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.transport.steps import BODY_SIZE_MAX, finished

from ..current_settings import CurrentSettings
from ..store_api import Store
from .table import TableProcessor

if TYPE_CHECKING:
    from ..access import AccessControl


class QueryMessageProcessor(TableProcessor):
    """Messages by key, and by their place in the log."""

    def __init__(self, store: Store, settings: CurrentSettings, access: AccessControl | None = None) -> None:
        super().__init__({RequestCode.QUERY_MESSAGE: self._query, RequestCode.VIEW_MESSAGE_BY_ID: self._view})
        self._store = store
        self._settings = settings
        self._access = access

    async def _query(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueryMessageRequestHeader.of(request)
        count = self._settings.store.default_query_max_num if header.unique_key_query else header.max_num
        begin_ms, end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
        result = await finished(  # a step may wait for the disk; the store is not thread-safe
            self._store.message_query(header.topic, header.key, count, begin_ms, end_ms, BODY_SIZE_MAX)
        )
        reply_header = QueryMessageResponseHeader(
            index_last_update_timestamp_ms=result.index_last_update_timestamp_ms,
            index_last_update_phy_offset=result.index_last_update_phy_offset,
        )
        if not result.records:
            remark = "can not find message, maybe time range not correct"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark, reply_header)
        return RemotingCommand.response(header=reply_header, body=b"".join(result.records))

    async def _view(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        offset = ViewMessageRequestHeader.of(request).offset
        record = self._store.look_message_by_offset(offset, BODY_SIZE_MAX)
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        if self._access is not None:
            self._access.check_message(request, channel.peer.host, _decoded(record, offset), self._store)
        return RemotingCommand.response(body=bytes(record))


def _decoded(image: bytes, phy_offset: int) -> StoredRecord:
    """Raises RequestRefused: it is no record."""
    try:
        record = decode_record(image, phy_offset)
    except RecordCorrupt:
        record = None
    if record is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {phy_offset}")
    return record


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


def query_processors(
    store: Store, settings: CurrentSettings, access: AccessControl | None = None
) -> Sequence[TableProcessor]:
    """The processors of the pool `query` (reactor/pools.py). `access`: None without access control."""
    return QueryMessageProcessor(store, settings, access), StoreOffsetProcessor(store)


def queries_by_code(
    store: Store, settings: CurrentSettings, access: AccessControl | None = None
) -> Mapping[int, Processor]:
    processors = query_processors(store, settings, access)
    return {code: processor for processor in processors for code in processor.codes}
