"""Queries of stored messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33); QUERY_CONSUME_QUEUE (321) for admins.

Source: RocketMQ 4.9 `QueryMessageProcessor`, `AdminBrokerProcessor#queryConsumeQueue`.
"""

from __future__ import annotations

from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.query import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.transport.steps import BODY_SIZE_MAX, finished

from ..current_settings import CurrentSettings
from ..services import BrokerServices
from ..store_api import Store
from .table import TableProcessor

UNITS_PER_REPLY_MAX = 10_000


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


class ConsumeQueueProcessor(TableProcessor):
    """The units of a queue, for operators."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.QUERY_CONSUME_QUEUE: self._query})
        self._services = services

    async def _query(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueryConsumeQueueRequestHeader.of(request)
        topic, store = header.topic or "", self._services.store
        config = self._services.topics.select(topic)
        if config is None or not 0 <= header.queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!")
        low, high = store.min_offset(topic, header.queue_id), store.max_offset(topic, header.queue_id)
        body: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
        if header.consumer_group:
            body.update(self._subscription(header.consumer_group, topic))
        count = min(header.count, UNITS_PER_REPLY_MAX)
        units = store.consume_queue_units(topic, header.queue_id, header.index, count)
        if not units:
            remark = f"Invalid queue index: {header.index}, min: {low}, max: {high}"
            return RemotingCommand.response(remark=remark)
        body["queueData"] = [
            {"eval": False, "physicOffset": unit.phy_offset, "physicSize": unit.size, "tagsCode": unit.tags_code}
            for unit in units
        ]
        return RemotingCommand.response(body=fastjson.dumps(body))

    def _subscription(self, group: str, topic: str) -> dict[str, Any]:
        entry = self._services.consumers.group(group)
        subscription = entry.subscriptions.get(topic) if entry else None
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"filterData": "null", "subscriptionData": subscription}
