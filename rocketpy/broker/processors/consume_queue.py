"""The units of a queue, for operators: QUERY_CONSUME_QUEUE (321).

Source: RocketMQ 4.9 `AdminBrokerProcessor#queryConsumeQueue`.
"""

from __future__ import annotations

from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.query import QueryConsumeQueueRequestHeader

from ..services import BrokerServices
from .table import TableProcessor

UNITS_PER_REPLY_MAX = 10_000


class ConsumeQueueProcessor(TableProcessor):
    """Reads the units of one queue, and how a group that is online subscribes to its topic."""

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
