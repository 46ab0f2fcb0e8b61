"""Topics for admins: 17, 215, 21, 202, 300, 305, and 351 of 5.x; the units of their queues: QUERY_CONSUME_QUEUE (321).

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

import json
from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.bodies.topic import DELETED_BELOW, TopicConfig, TopicFilterType, TopicOffsets
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import CreateTopicRequestHeader, TopicRequestHeader, TopicStatsRequestHeader
from rocketpy.remoting.headers.pull import QueryConsumeQueueRequestHeader
from rocketpy.remoting.json_writer import in_order
from rocketpy.transport.steps import Steps, encoded_body, finished

from .. import replies
from ..managers.table_followers import TABLE_VERSION, version_text
from ..services import BrokerServices
from .cleaning import answer_after
from .table import TableProcessor

QUEUES_PER_STEP = 50  # the store time of a message is read from the log
OFFSETS_PER_STEP = 400  # without it
UPDATES_AT_ONCE = 256  # updates that wait for name servers
UNITS_PER_REPLY_MAX = 10_000
QUEUE_NUMS_MAX = 65_536  # limit of the fast path's tables per topic


class AdminTopicProcessor(TableProcessor):
    """Creates, lists and deletes topics."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_TOPIC: self._update,
                RequestCode.DELETE_TOPIC_IN_BROKER: self._delete,
                RequestCode.GET_ALL_TOPIC_CONFIG: self._all,
                RequestCode.GET_TOPIC_CONFIG: self._one,
                RequestCode.GET_TOPIC_STATS_INFO: self._stats,
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumed_by,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
                RequestCode.QUERY_CONSUME_QUEUE: self._units,
            }
        )
        self._services = services

    async def _update(self, request: RemotingCommand, channel: Channel) -> Detached:
        """Create or replace a topic. Answered when it is saved and registered with the name servers.

        The order flag of the request is ignored: it comes with the response to the next registration.
        """
        header = CreateTopicRequestHeader.of(request)
        self._check_changeable(header.topic)
        if header.topic_filter_type not in TopicFilterType.__members__:
            remark = f"the topic filter type {header.topic_filter_type} is none of {', '.join(TopicFilterType)}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        for queue_nums in (header.read_queue_nums, header.write_queue_nums):
            if not 0 <= queue_nums <= QUEUE_NUMS_MAX:
                remark = f"a topic has 0 to {QUEUE_NUMS_MAX} queues, not {queue_nums}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._services.topics.update(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=TopicFilterType[header.topic_filter_type],
                topic_sys_flag=header.topic_sys_flag or 0,
            )
        )
        await self._services.topics.file.save()
        timeout_s = self._services.settings.broker.register_broker_timeout_mills / 1000
        return Detached(self._registered, "name servers", 2 * timeout_s, at_once_max=UPDATES_AT_ONCE)

    async def _registered(self) -> RemotingCommand:
        """Register with all name servers. One that does not answer in time is tried again in the next round."""
        await self._services.registrar.register()
        return RemotingCommand.response()

    async def _delete(self, request: RemotingCommand, channel: Channel) -> Detached:
        """Delete the topic and its queues. The admin tool tells the name servers, not the broker.

        Messages that are acknowledged after the first step belong to a new topic of that name, and stay. If the store
        cannot remove the files now (because its disk is full, for example), it removes them later.
        """
        services, topic = self._services, TopicRequestHeader.of(request).topic
        self._check_changeable(topic)
        is_known = services.topics.delete(topic)
        deletion = services.fast_path.delete_queues(topic)  # no await may come between these two
        if is_known:
            await services.topics.file.save()
        if services.settings.broker.auto_delete_unused_stats:
            await finished(services.stats.forget_topic(topic))
        return answer_after([deletion], services.topics.position.pass_deletion)

    async def _all(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """All topics, or `{}` if the slave has this version. For slaves of rocketpy the recent deletions, too: a topic
        may have been created again since."""
        services = self._services
        fields = {TABLE_VERSION: version_text(services.topics.data_version)}
        has_version = services.followers.has_version(request, channel)
        body = await encoded_body({} if has_version else services.topics.document())
        deleted = dict(services.fast_path.recent_deletions)
        return RemotingCommand.response(
            body=body, ext_fields=fields | ({DELETED_BELOW: json.dumps(deleted)} if deleted else {})
        )

    async def _one(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        config = self._find(TopicRequestHeader.of(request).topic)
        return RemotingCommand.response(body=config.encode())

    async def _stats(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = TopicStatsRequestHeader.of(request)
        services, config = self._services, self._find(header.topic)
        if header.offsets_only:
            return RemotingCommand.response(body=await encoded_body(await self._offsets(config)))
        table = {}
        steps = Steps(QUEUES_PER_STEP)
        for queue_id in range(config.write_queue_nums):
            await steps.did()
            low = max(0, services.store.min_offset(config.topic_name, queue_id))
            high = max(0, services.store.max_offset(config.topic_name, queue_id))
            updated_ms = 0
            if high > 0:
                updated_ms = services.store.message_store_timestamp(config.topic_name, queue_id, high - 1)
            queue = MessageQueue(config.topic_name, services.settings.broker.broker_name, queue_id)
            table[queue] = {"lastUpdateTimestamp": max(0, updated_ms), "maxOffset": high, "minOffset": low}
        return RemotingCommand.response(body=await encoded_body({"offsetTable": table}))

    async def _offsets(self, config: TopicConfig) -> TopicOffsets:
        store, steps = self._services.store, Steps(OFFSETS_PER_STEP)
        offsets = TopicOffsets(max_offsets=[], min_offsets=[])
        for queue_id in range(config.write_queue_nums):
            await steps.did()
            offsets.min_offsets.append(max(0, store.min_offset(config.topic_name, queue_id)))
            offsets.max_offsets.append(max(0, store.max_offset(config.topic_name, queue_id)))
        return offsets

    async def _consumed_by(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        topic = TopicRequestHeader.of(request).topic
        online = await finished(self._services.consumers.groups_subscribing(topic))
        groups = online | self._services.offsets.groups_of(topic)
        return RemotingCommand.response(body=await encoded_body({"groupList": in_order(groups)}))

    async def _system_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        topics = sorted(self._services.topics.system_topics)
        return RemotingCommand.response(body=await encoded_body({"topicList": topics}))

    def _find(self, topic: str) -> TopicConfig:
        config = self._services.topics.select(topic)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    async def _units(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Units of one queue, and how a group that is online subscribes to its topic."""
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

    def _check_changeable(self, topic: str) -> None:
        if self._services.settings.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, replies.CHANGES_REFUSED_BY_SLAVE)
        fault = replies.invalid_topic(topic)
        if fault is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)
        if self._services.topics.is_system(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
