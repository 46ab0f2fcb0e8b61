"""Resets the offsets of groups: to a time, to the end, to another group's offsets.

The offsets of an online group are reset by its brokers, which notify the members; those of an offline group are
written.
Source: RocketMQ 4.9 `DefaultMQAdminExtImpl#resetOffsetByTimestamp`, `#resetOffsetByTimestampOld`.
"""

from __future__ import annotations

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import TOOLS_CONSUMER_GROUP
from rocketpy.remoting.bodies.offset import OffsetWrapper

from .admin import Admin
from .core import TO_THE_END


@attrs.frozen
class Rollback:
    """One queue of an offline group that was (or was not) moved."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    rollback_offset: int


async def reset_online(
    admin: Admin, group: str, topic: str, timestamp_ms: int, *, force: bool
) -> dict[MessageQueue, int] | None:
    """Have every broker of the topic move the group. Returns: the new offsets; None when it is not online."""
    moved: dict[MessageQueue, int] = {}
    for address in (await admin.masters_of_topic(topic)).values():
        try:
            moved |= await admin.reset_offset(address, group, topic, timestamp_ms, force=force)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
    return moved


async def reset_offline(admin: Admin, group: str, topic: str, timestamp_ms: int, *, force: bool) -> list[Rollback]:
    """Write the offsets of a group without members. Without `force` queues only move back."""
    stats = await admin.consume_stats(group, topic)
    return [
        await _reset_queue(admin, group, queue, offset, timestamp_ms, force=force)
        for queue, offset in sorted(stats.offset_table.items())
        if queue.topic == topic
    ]


async def _reset_queue(
    admin: Admin, group: str, queue: MessageQueue, offset: OffsetWrapper, timestamp_ms: int, *, force: bool
) -> Rollback:
    if timestamp_ms == TO_THE_END:
        target = await admin.brokers.max_offset(queue)
    else:
        target = await admin.brokers.offset_since(queue, timestamp_ms, TOOLS_CONSUMER_GROUP)
    chosen = target if force or target < offset.consumer_offset else offset.consumer_offset
    if chosen != offset.consumer_offset:
        await admin.brokers.update_consumer_offset(group, queue, chosen, oneway=False)
    return Rollback(queue, offset.broker_offset, offset.consumer_offset, target, chosen)


async def clone_offsets(admin: Admin, source: str, target: str) -> dict[MessageQueue, int]:
    """Give `target` the offsets that `source` has, of all its topics, as Java's command does."""
    stats = await admin.consume_stats(source)
    copied = {queue: one.consumer_offset for queue, one in stats.offset_table.items() if one.consumer_offset >= 0}
    for topic in sorted({queue.topic for queue in copied}):
        await admin.route(topic)
    for queue, offset in sorted(copied.items()):
        await admin.brokers.update_consumer_offset(target, queue, offset, oneway=False)
    return copied
