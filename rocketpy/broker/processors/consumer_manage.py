"""Frequent requests of consumers: GET_CONSUMER_LIST_BY_GROUP (38), UPDATE and QUERY_CONSUMER_OFFSET (15, 14).

Source: RocketMQ 4.9 `ConsumerManageProcessor`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.message.names import TRANS_GROUP, group_fault, known_topic_fault
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import GetConsumerListByGroupRequestHeader
from rocketpy.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.remoting.limits import require

from ..services import BrokerServices
from .table import TableProcessor

QUEUE_ID_MAX = 65_535
"""No topic has more queues. It bounds the work of a step that goes through a group's offsets in one topic."""


class ConsumerManageProcessor(TableProcessor):
    """Members of a consumer group, and their committed offsets."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
                RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
                RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            }
        )
        self._services = services

    async def _members(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        group = GetConsumerListByGroupRequestHeader.of(request).consumer_group
        entry = self._services.consumers.group(group)
        if entry is None:  # never an empty list: then clients would assign the queues to nobody
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        body = fastjson.dumps({"consumerIdList": entry.client_ids})
        return RemotingCommand.response(body=body, ext_fields={})

    async def _update_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = UpdateConsumerOffsetRequestHeader.of(request)
        require(group_fault(header.consumer_group))
        require(known_topic_fault(header.topic))
        require(None if 0 <= header.queue_id <= QUEUE_ID_MAX else f"there is no queue {header.queue_id}")
        services, queue = self._services, (header.consumer_group, header.topic, header.queue_id)
        commit_offset(services, *queue, header.commit_offset)
        services.offsets.note_update(*queue, services.clock.monotonic_ms())
        return RemotingCommand.response(ext_fields={})

    async def _query_offset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = QueryConsumerOffsetRequestHeader.of(request)
        services = self._services
        offset = services.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            offset = self._beginning(header)
        if offset < 0:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark, ext_fields={})
        return RemotingCommand.response(header=OffsetResponseHeader(offset=offset))

    def _beginning(self, header: QueryConsumerOffsetRequestHeader) -> int:
        """Return the offset at which a group without an offset begins: a young queue's first message; else -1, its
        members decide."""
        topic, queue_id = header.topic, header.queue_id
        return self._services.store.min_offset(topic, queue_id) if self._is_young(topic, queue_id) else -1

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Return True if the first message of the queue still exists and is in memory: then a new group starts with it,
        independent of consumeFromWhere."""
        store = self._services.store
        if not store.is_whole(topic, queue_id):
            return False
        units = store.consume_queue_units(topic, queue_id, store.min_offset(topic, queue_id), 1)
        return not units or not store.is_in_disk(units[0].phy_offset)


def commit_offset(services: BrokerServices, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Store a group's offset.

    An offset beyond the end of its queue is dropped: the consumer has it from a log that had more, before a power
    failure or of another master. Kept, it would make the group pass over the messages that come next.
    With access control a queue that is not here gets no first offset: else one account could fill the table.

    Raises:
        RequestRefused: the limit of offsets is reached; there is no such queue.
    """
    if group == TRANS_GROUP:  # the broker's own progress: a wrong one would drop open transactions
        return
    if services.access is not None and not services.topics.has_queue(topic, queue_id):
        is_known = services.offsets.query(group, topic, queue_id) >= 0
        require(None if is_known else f"topic {topic} has no queue {queue_id} here")
    end = services.store.log_end_of(topic, queue_id)
    if end is not None and offset > end:
        services.offsets.drop(group, topic, queue_id, offset, end)
        return
    services.offsets.commit(group, topic, queue_id, offset)
