"""CONSUMER_SEND_MSG_BACK (36): a consumer failed on a message and asks for another delivery later.

The message is stored again: as a delayed message for the group's retry topic, or as a dead letter if it was retried too
often.

Source: RocketMQ 4.9 `AbstractSendMessageProcessor#consumerSendMsgBack`.
"""

from __future__ import annotations

from rocketpy.codes import MQVersion, RequestCode, ResponseCode
from rocketpy.errors import RecordCorrupt, RequestRefused
from rocketpy.message import names
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.numbers import INT_MAX
from rocketpy.message.properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, without_property
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.message.sys_flag import TOPIC_SYS_FLAG_UNIT_SUB, PermName
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import MessageToPut
from rocketpy.remoting.headers.send import ConsumerSendMsgBackRequestHeader

from .. import replies
from ..delays.schedule import message_from
from ..property_edits import text_property, with_values
from ..services import BrokerServices
from .table import TableProcessor

FIRST_AUTOMATIC_LEVEL = 3  # the n-th attempt waits at level 3 + n


class SendBackProcessor(TableProcessor):
    """Messages that a consumer gives back to be delivered again later."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back})
        self._services = services
        self._levels = services.schedule.levels

    async def _send_back(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        services = self._services
        if services.settings.is_slave:  # before a group or a topic is created for it
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, replies.SENDS_REFUSED_BY_SLAVE)
        header = ConsumerSendMsgBackRequestHeader.of(request)
        group = services.groups.find_or_create(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group} {replies.FAQ_SUFFIX}"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        config = services.settings.broker
        if not config.broker_permission & PermName.WRITE:
            remark = f"the broker[{config.broker_ip1}] sending message is forbidden"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return RemotingCommand.response()  # the group does not want retries
        retry_topic = self._retry_topic(group, header.unit_mode)
        record = self._look_up(header.offset)
        if services.access is not None:
            services.access.check_message(request, channel.peer.host, record, services.store)
        message = self._copy(record, group, retry_topic, self._tries_max(request, header, group), header.delay_level)
        await services.groups.file.save()
        await services.topics.file.save()
        result = await services.fast_path.put(message)
        origin = header.origin_topic if services.topics.select(header.origin_topic or "") else None
        services.stats.count_send_back(header.group, origin or record.topic)
        if result.code != ResponseCode.SUCCESS:  # stored but not flushed counts as failed: the consumer repeats
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _status_name(result.code))
        return RemotingCommand.response()

    def _retry_topic(self, group: SubscriptionGroupConfig, unit_mode: bool) -> TopicConfig:
        name = names.retry_topic(group.group_name)
        if len(name) > names.TOPIC_LENGTH_MAX:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        topic = self._services.topics.create_if_missing(
            name, queue_nums=group.retry_queue_nums, topic_sys_flag=TOPIC_SYS_FLAG_UNIT_SUB if unit_mode else 0
        )
        if not topic.perm & PermName.WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return topic

    def _look_up(self, phy_offset: int) -> StoredRecord:
        services = self._services
        image = services.store.look_message_by_offset(phy_offset, services.settings.rocketpy.frame_max_length)
        try:
            record = decode_record(image, phy_offset) if image is not None else None
        except RecordCorrupt:
            record = None  # the offset comes from the client and may point anywhere
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {phy_offset}")
        return record

    @staticmethod
    def _tries_max(
        request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> int:
        if request.version >= MQVersion.V3_4_9 and header.max_reconsume_times is not None:
            return header.max_reconsume_times
        return group.retry_max_times

    def _copy(
        self, record: StoredRecord, group: SubscriptionGroupConfig, retry: TopicConfig, tries_max: int, delay_level: int
    ) -> MessageToPut:
        """The message to store: a delayed one, or a dead letter."""
        properties = with_values(record.properties, **self._history(record), WAIT="false")  # as the reference stores it
        # What is at the offset may be part of a body. A zero byte looks like a sector lost in a power failure: recovery
        # would end the log at such a record.
        properties = properties.replace(b"\0", b"?")
        # The sender chose the count of attempts: below zero it would be retried 2^31 times, and at once.
        attempts = max(0, record.reconsume_times)
        if attempts >= tries_max or delay_level < 0:
            topic = self._services.topics.create_if_missing(names.dlq_topic(group.group_name), queue_nums=1).topic_name
            queue_id = 0
            properties = without_property(properties, DELAY.encode())
        else:
            wanted = delay_level or FIRST_AUTOMATIC_LEVEL + attempts
            topic, queue_id = retry.topic_name, self._services.choose.randrange(max(1, retry.write_queue_nums))
            level = self._levels.clamp(wanted)
            properties = with_values(properties, DELAY=str(level or wanted))
            if level > 0:  # there are levels
                properties = with_values(properties, REAL_TOPIC=topic, REAL_QID=str(queue_id))
                topic, queue_id = names.SCHEDULE_TOPIC, level - 1
        return message_from(
            record,
            topic=topic,
            queue_id=queue_id,
            properties=properties,
            reconsume_times=min(attempts + 1, INT_MAX),
        )

    @staticmethod
    def _history(record: StoredRecord) -> dict[str, str]:
        """Properties that name the original topic and message: set by the first retry, kept by later ones."""
        origin_id = text_property(record.properties, ORIGIN_MESSAGE_ID)
        return {
            RETRY_TOPIC: text_property(record.properties, RETRY_TOPIC) or record.topic,
            ORIGIN_MESSAGE_ID: origin_id or encode_offset_message_id(record.store_host, record.phy_offset),
        }


def _status_name(code: int) -> str:
    names_of_codes = {
        ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
        ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
        ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
        ResponseCode.MESSAGE_ILLEGAL: "MESSAGE_ILLEGAL",
        ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
    }
    return names_of_codes.get(ResponseCode(code), "UNKNOWN_ERROR")
