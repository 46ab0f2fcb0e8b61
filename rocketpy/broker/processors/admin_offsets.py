"""Offsets of groups and of delay levels, for admins: 43, 45, 308, 314.

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode
from rocketpy.message.names import group_fault
from rocketpy.message.numbers import LONG_MAX
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.offset import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
)
from rocketpy.remoting.limits import require
from rocketpy.transport.steps import Steps, encoded_body

from ..files.log_marks import presumed_fields
from ..services import BrokerServices
from ..transactions.transaction_progress import FIELD
from .table import TableProcessor

QUEUES_PER_STEP = 200


class AdminOffsetProcessor(TableProcessor):
    """The offsets and delays of all groups, also for slaves that copy them."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_consumer_offsets,
                RequestCode.GET_ALL_DELAY_OFFSET: self._all_delay_offsets,
                RequestCode.QUERY_CORRECTION_OFFSET: self._correction,
                RequestCode.CLONE_GROUP_OFFSET: self._clone,
            }
        )
        self._services = services

    async def _all_consumer_offsets(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        progress = self._services.transactions.progress.text
        body = await encoded_body(self._services.offsets.document())
        return RemotingCommand.response(ext_fields={FIELD: progress} if progress else None, body=body)

    async def _all_delay_offsets(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        mark = self._services.schedule.mark()
        body = await encoded_body({"offsetTable": mark.offset_table})
        return RemotingCommand.response(body=body, ext_fields=presumed_fields(mark))

    async def _correction(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """The smallest offset of each queue over all groups. It works on a copy (the reference deletes the entries that
        it filters).

        If even the smallest is larger than the offset of the compare group, the answer is the largest long.
        """
        header = QueryCorrectionOffsetHeader.of(request)
        offsets = self._services.offsets
        filtered = {group for group in (header.filter_groups or "").split(",") if group}
        smallest: dict[int, int] = {}
        steps = Steps(QUEUES_PER_STEP)
        for group in offsets.groups_of(header.topic) - filtered:
            await steps.did()
            for queue_id, offset in offsets.query_all(group, header.topic).items():
                if self._services.store.min_offset(header.topic, queue_id) <= offset:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
                await steps.did()
        compared = offsets.query_all(header.compare_group, header.topic)
        for queue_id, offset in smallest.items():
            if offset > compared.get(queue_id, offset):
                smallest[queue_id] = LONG_MAX
        return RemotingCommand.response(body=await encoded_body({"correctionOffsets": smallest}))

    async def _clone(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Clone offsets; without a topic those of all topics of the source group (the reference then does nothing)."""
        header = CloneGroupOffsetRequestHeader.of(request)
        require(group_fault(header.dest_group))
        offsets = self._services.offsets
        topics = [header.topic] if header.topic else offsets.topics_of(header.src_group)
        steps = Steps(QUEUES_PER_STEP)
        for topic in topics:
            await steps.did(1 + len(offsets.query_all(header.src_group, topic)))
            if self._services.topics.select(topic) is not None:
                offsets.clone(header.src_group, header.dest_group, topic)
        return RemotingCommand.response()
