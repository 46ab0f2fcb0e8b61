"""Finding messages, reading queues without a group, and who consumed what.

Source: RocketMQ 4.9 `MQAdminImpl`, `DefaultMQAdminExtImpl#messageTrackDetail`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from enum import Enum

import attrs

from rocketpy.client.consuming.pull_loop import Pull, Puller
from rocketpy.client.consuming.subscription import build_subscription
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.results import PullResult, PullStatus
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, RocketError
from rocketpy.message import properties as names
from rocketpy.message.host import format_host
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import TOOLS_CONSUMER_GROUP
from rocketpy.message.numbers import LONG_MAX
from rocketpy.remoting.bodies.client import ConsumeType
from rocketpy.remoting.headers.pull import PullSysFlag, QueryMessageRequestHeader

from .admin import Admin
from .java_order import hash_order

UNIQUE_ID_TIME_HEX = slice(-12, -4)  # 4 bytes: ms since the first of the month
CLOCK_TOLERANCE_MS = 1000
PULL_COUNT_MAX = 32
NO_OFFSETS = (  # of a group that broadcasts, or has consumed nothing yet; Java's words
    "Not found the consumer group consume stats, because return offset table is empty, "
    "maybe the consumer not consume any message"
)


async def view_by_offset_id(admin: Admin, message_id: str) -> ReceivedMessage:
    """The message with this message id of a broker.

    Raises:
        MessageInvalid: no such id. BrokerError: nothing is stored there.
    """
    place = decode_offset_message_id(message_id)
    return await view_at(admin, format_host(place.store_host), place.phy_offset)


async def view_at(admin: Admin, address: str, phy_offset: int) -> ReceivedMessage:
    message = await admin.instance.api.view_message(address, phy_offset, admin.timeout_s)
    info = await admin.cluster_info()
    for name, data in info.broker_addr_table.items():
        if address in data.broker_addrs.values():
            return attrs.evolve(message, queue=attrs.evolve(message.queue, broker_name=name))
    return message


async def query_by_key(
    admin: Admin,
    topic: str,
    key: str,
    *,
    count_max: int = 64,
    begin_ms: int = 0,
    end_ms: int = LONG_MAX,
) -> list[ReceivedMessage]:
    """Messages with this business key, newest last; the index finds by hash, so the key is compared again.

    Bodies are as they are stored: those of a few compressed messages may have gigabytes.
    """
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=count_max,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=end_ms,
        unique_key_query=False,
    )
    found = await _query(admin, topic, header)
    return [message for message in found if key in message.keys]


async def query_by_unique_key(admin: Admin, topic: str, message_id: str) -> list[ReceivedMessage]:
    """Messages with this producer's id: one, or several when a send was repeated. Bodies as of `query_by_key`."""
    begin_ms = max(unique_id_time_ms(message_id, datetime.now()) - CLOCK_TOLERANCE_MS, 0)
    header = QueryMessageRequestHeader(
        topic=topic,
        key=message_id,
        max_num=PULL_COUNT_MAX,
        begin_timestamp_ms=begin_ms,
        end_timestamp_ms=LONG_MAX,
        unique_key_query=True,
    )
    found = await _query(admin, topic, header)
    return [message for message in found if message.msg_id == message_id]


async def _query(admin: Admin, topic: str, header: QueryMessageRequestHeader) -> list[ReceivedMessage]:
    """Ask every broker of the topic. Raises the last error when none answered."""
    found: list[ReceivedMessage] = []
    failure: RocketError | None = None
    answered = False
    for broker_name, address in (await admin.masters_of_topic(topic)).items():
        try:
            found += await admin.instance.api.query_messages(address, header, broker_name, admin.timeout_s * 3)
            answered = True
        except RocketError as error:
            failure = error
    if failure is not None and not answered:
        raise failure
    return sorted(found, key=lambda message: message.store_timestamp_ms)


def unique_id_time_ms(message_id: str, now: datetime) -> int:
    """Return the time at which a unique id was made: the id has the ms since the month began, of this month or, if that
    time is still to come, of the last.

    Returns: 0 when the id does not hold a time.
    """
    try:
        elapsed_ms = int(message_id[UNIQUE_ID_TIME_HEX], 16)
    except ValueError:
        return 0
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    made_ms = int(first.timestamp() * 1000) + elapsed_ms
    if made_ms <= now.timestamp() * 1000:
        return made_ms
    month_before = first.replace(year=first.year - (first.month == 1), month=(first.month - 2) % 12 + 1)
    return int(month_before.timestamp() * 1000) + elapsed_ms


async def read_queue(
    admin: Admin, queue: MessageQueue, begin: int, end: int, expression: str | None = None
) -> AsyncGenerator[ReceivedMessage, None]:
    """Messages of a queue from offset `begin` up to but not including `end`, without any group's offsets.

    Close it (`aclosing`) when leaving early.
    """
    async with aclosing(pulls(admin, queue, begin, end, expression)) as results:
        async for result in results:
            for message in result.messages:
                if message.queue_offset >= end:
                    return
                yield message


async def pulls(
    admin: Admin, queue: MessageQueue, begin: int, end: int, expression: str | None = None, *, inflate: bool = True
) -> AsyncGenerator[PullResult, None]:
    """The answers of pulls from offset `begin` on, until one begins at `end` or there is nothing more.

    The messages have the ends of the queue as properties, as with Java's client. Close it (`aclosing`) when leaving.

    Args:
        inflate: False leaves bodies compressed.
    """
    puller = Puller(TOOLS_CONSUMER_GROUP, admin.instance, inflate=inflate)
    subscription = build_subscription(queue.topic, expression, 0)
    offset = begin
    while offset < end:
        pull = Pull(
            queue,
            subscription,
            offset,
            count_max=min(PULL_COUNT_MAX, end - offset),
            sys_flag=int(PullSysFlag.SUBSCRIPTION),
            suspend_s=0,
            timeout_s=admin.timeout_s * 3,
        )
        result = await puller.pull(pull)
        bounds = {names.MIN_OFFSET: str(result.min_offset), names.MAX_OFFSET: str(result.max_offset)}
        yield attrs.evolve(
            result,
            messages=tuple(
                attrs.evolve(message, properties={**message.properties, **bounds}) for message in result.messages
            ),
        )
        if result.status in (PullStatus.NO_NEW_MSG, PullStatus.OFFSET_ILLEGAL) or result.next_begin_offset <= offset:
            return
        offset = result.next_begin_offset


@attrs.frozen
class OffsetRange:
    """The offsets to read of a queue: from `low` up to but not including `end`. `high` is the end that Java's mqadmin
    prints.

    For a time after the last message a broker finds the offset of that message, and Java's tool leaves the message out.
    Here it is read, and then compared with the time.
    """

    low: int
    high: int
    end: int


async def offset_range(admin: Admin, queue: MessageQueue, begin_ms: int | None, end_ms: int | None) -> OffsetRange:
    """The offsets of a queue, within times where given."""
    low = await admin.brokers.min_offset(queue)
    high = end = await admin.brokers.max_offset(queue)
    if begin_ms is not None and begin_ms > 0:
        low = await admin.brokers.offset_since(queue, begin_ms, TOOLS_CONSUMER_GROUP, (low, high))
    if end_ms is not None and end_ms > 0:
        found = await admin.brokers.search_offset(queue, end_ms)
        high, end = min(high, found), min(high, found + 1)
    return OffsetRange(low, high, end)


class TrackType(Enum):
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    UNKNOWN = "UNKNOWN"


@attrs.frozen
class MessageTrack:
    """The state of consumption of a message by one group."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None

    def __str__(self) -> str:
        description = "null" if self.exception_desc is None else self.exception_desc
        return (
            f"MessageTrack [consumerGroup={self.consumer_group}, trackType={self.track_type.value}, "
            f"exceptionDesc={description}]"
        )


async def message_tracks(admin: Admin, message: ReceivedMessage) -> Sequence[MessageTrack]:
    """One track per group of the message's topic, in the order of Java's table."""
    return [await _track(admin, message, group) for group in hash_order(await admin.who_consumes(message.topic))]


async def _track(admin: Admin, message: ReceivedMessage, group: str) -> MessageTrack:
    try:
        connection = await admin.consumer_connection(group)
        if connection.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        offset = (await admin.consume_stats(group)).offset_table.get(message.queue)
        if offset is None:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, NO_OFFSETS)
    except BrokerError as error:
        description = f"CODE:{int(error.code)} DESC:{error.remark}"
        offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
        return MessageTrack(group, TrackType.NOT_ONLINE if offline else TrackType.UNKNOWN, description)
    except RocketError as error:
        return MessageTrack(group, TrackType.UNKNOWN, str(error))
    if offset.consumer_offset <= message.queue_offset:
        return MessageTrack(group, TrackType.NOT_CONSUME_YET)
    subscription = connection.subscription_table.get(message.topic)
    if subscription is not None and subscription.tags_set and message.tags not in subscription.tags_set:
        return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)
    return MessageTrack(group, TrackType.CONSUMED)
