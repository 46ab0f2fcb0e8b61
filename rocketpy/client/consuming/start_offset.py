"""The offset at which consumption of a queue begins. Source: RocketMQ 4.9 `RebalancePushImpl#computePullFromWhere`."""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import is_retry_topic

from ..cluster.brokers import Brokers
from ..options import START_FIRST, StartFrom
from .offset_store import OffsetStore


async def start_offset(queue: MessageQueue, start: StartFrom, store: OffsetStore, brokers: Brokers) -> int:
    """The stored offset; without one, the offset of `start`.

    Unlike Java 4.9, only the broker's "no offset" counts as none. Any other error is raised, and the queue is tried
    again in the next round instead of being read from its end.
    """
    stored = await store.stored(queue)
    if stored is not None:
        return stored
    is_retry = is_retry_topic(queue.topic)
    if start.timestamp_ms is not None:
        return await (brokers.max_offset(queue) if is_retry else brokers.search_offset(queue, start.timestamp_ms))
    if is_retry or start == START_FIRST:
        return 0
    return await brokers.max_offset(queue)
