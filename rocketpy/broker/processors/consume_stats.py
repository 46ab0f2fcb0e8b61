"""Progress of consumer groups: GET_CONSUME_STATS (208), GET_BROKER_CONSUME_STATS (317), QUERY_CONSUME_TIME_SPAN (303).

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

import time
from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from rocketpy.remoting.json_writer import in_order, java_double
from rocketpy.transport.steps import BODY_SIZE_MAX, Steps, TextWriter, encoded_body

from ..services import BrokerServices
from .table import TableProcessor

QUEUES_PER_STEP = 50  # the store time of a message is read from the log


class ConsumeStatsProcessor(TableProcessor):
    """Requests about the offsets and the backlog of consumer groups."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.GET_CONSUME_STATS: self._group_stats,
                RequestCode.GET_BROKER_CONSUME_STATS: self._broker_stats,
                RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            }
        )
        self._services = services

    async def _group_stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = GetConsumeStatsRequestHeader.of(request)
        services, group = self._services, header.consumer_group
        topics = [header.topic] if header.topic else services.offsets.topics_of(group)
        text, steps = TextWriter(BODY_SIZE_MAX), Steps(QUEUES_PER_STEP)
        configs, tps = [], 0.0
        for topic in in_order(topics):
            await steps.did()
            config = services.topics.select(topic)
            if config is not None and self._is_consumed(group, topic):
                configs.append(config)
                tps += services.stats.group_get_tps(group, topic)
        await text.write([f'{{"consumeTps":{java_double(tps)},"offsetTable":{{'])
        comma = ""
        for config in configs:
            comma, _ = await self._write_rows(text, comma, group, config, config.read_queue_nums)
        await text.write(["}}"])
        return RemotingCommand.response(body=b"".join(text.pieces))

    async def _broker_stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Write the response group by group, so that a response that exceeds a frame is detected early."""
        header, services = GetConsumeStatsInBrokerHeader.of(request), self._services
        text, steps = TextWriter(BODY_SIZE_MAX), Steps(QUEUES_PER_STEP)
        total_diff = 0
        await text.write([f'{{"brokerAddr":{fastjson.dump_text(services.settings.broker_addr)},"consumeStatsList":['])
        comma = ""
        for group in services.groups.groups:
            before = f"{comma}{{{fastjson.dump_text(group)}:["
            for topic in in_order(services.offsets.topics_of(group)):
                await steps.did()
                config = services.topics.select(topic)
                if config is None or (header.is_order and not config.order) or not self._is_consumed(group, topic):
                    continue
                tps = java_double(services.stats.group_get_tps(group, topic))
                await text.write([f'{before}{{"consumeTps":{tps},"offsetTable":{{'])
                _, diff = await self._write_rows(text, "", group, config, _queues_in_use(config))
                await text.write(["}}"])
                total_diff += diff
                before = ","
            if before == ",":
                await text.write(["]}"])
                comma = ","
            await steps.did()
        await text.write([f'],"totalDiff":{total_diff}}}'])
        return RemotingCommand.response(body=b"".join(text.pieces))

    def _is_consumed(self, group: str, topic: str) -> bool:
        """Return True if the group consumes the topic: an online group if it subscribes to it, an offline one if it has
        offsets in it."""
        entry = self._services.consumers.group(group)
        return entry is None or topic in entry.subscriptions

    async def _write_rows(
        self, text: TextWriter, comma: str, group: str, config: TopicConfig, queue_nums: int
    ) -> tuple[str, int]:
        """Write one row for each queue of a topic, the first one after `comma`.

        Returns: the separator before the next row, and the number of messages that are not consumed.
        """
        behind = 0
        for first in range(0, queue_nums, QUEUES_PER_STEP):
            rows = {}
            for queue_id in range(first, min(first + QUEUES_PER_STEP, queue_nums)):
                queue = MessageQueue(config.topic_name, self._services.settings.broker.broker_name, queue_id)
                row = rows[queue] = self._row(group, config.topic_name, queue_id)
                behind += row["brokerOffset"] - row["consumerOffset"]
            await text.write([f"{comma}{fastjson.dump_text(rows)[1:-1]}"])
            comma = ","
        return comma, behind

    def _row(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        services = self._services
        consumer_offset = max(0, services.offsets.query(group, topic, queue_id))
        last_ms = 0
        if consumer_offset > 0:
            last_ms = max(0, services.store.message_store_timestamp(topic, queue_id, consumer_offset - 1))
        return {
            "brokerOffset": max(0, services.store.max_offset(topic, queue_id)),
            "consumerOffset": consumer_offset,
            "lastTimestamp": last_ms,
        }

    async def _time_span(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header, services = QueryConsumeTimeSpanRequestHeader.of(request), self._services
        config = services.topics.select(header.topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = (self._span(header.group, header.topic, queue_id) for queue_id in range(_queues_in_use(config)))
        return RemotingCommand.response(body=await encoded_body({"consumeTimeSpanSet": spans}))

    def _span(self, group: str, topic: str, queue_id: int) -> dict[str, Any]:
        services, store = self._services, self._services.store
        low, high = max(0, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)
        consumer_offset = services.offsets.query(group, topic, queue_id)
        first_ms = store.message_store_timestamp(topic, queue_id, low)
        last_ms = store.message_store_timestamp(topic, queue_id, high - 1) if high > 0 else -1
        consumed_ms = first_ms
        if consumer_offset > 0:
            consumed_ms = store.message_store_timestamp(topic, queue_id, consumer_offset - 1)
        delay_ms = 0
        if consumer_offset < high:
            next_ms = store.message_store_timestamp(topic, queue_id, max(0, consumer_offset))
            delay_ms = max(0, store.clock_ms() - next_ms) if next_ms > 0 else 0
        queue = MessageQueue(topic, services.settings.broker.broker_name, queue_id)
        return {
            "consumeTimeStamp": consumed_ms,
            "consumeTimeStampStr": _human(consumed_ms),
            "delayTime": delay_ms,
            "maxTimeStamp": last_ms,
            "maxTimeStampStr": _human(last_ms),
            "messageQueue": queue,
            "minTimeStamp": first_ms,
            "minTimeStampStr": _human(first_ms),
        }


def _queues_in_use(config: TopicConfig) -> int:
    """Return the larger of readQueueNums and writeQueueNums. The reference takes writeQueueNums, and leaves out the
    read-only queues that `updateTopic -r 4 -w 1` makes."""
    return max(config.read_queue_nums, config.write_queue_nums)


def _human(timestamp_ms: int) -> str:
    """`yyyy-MM-dd#HH:mm:ss:SSS`, local time."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{millis:03d}"
