"""Queries of stored messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33).

Source: RocketMQ 4.9 `QueryMessageProcessor`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.query import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.transport.steps import BODY_SIZE_MAX, finished

from ..current_settings import CurrentSettings
from ..store_api import Store
from .table import TableProcessor


class QueryMessageProcessor(TableProcessor):
    """Messages by key, and by their place in the log."""

    def __init__(self, store: Store, settings: CurrentSettings) -> None:
        super().__init__({RequestCode.QUERY_MESSAGE: self._query, RequestCode.VIEW_MESSAGE_BY_ID: self._view})
        self._store = store
        self._settings = settings

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
        return RemotingCommand.response(body=bytes(record))
