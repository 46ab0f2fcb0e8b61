"""RESUME_CHECK_HALF_MESSAGE (323): ask the producers of a transaction again, from the first time on.

An open half message keeps its place. One that was discarded is named by its copy in TRANS_CHECK_MAX_TIME_TOPIC, and is
stored as a half message again.

Source: RocketMQ 4.9 `AdminBrokerProcessor#resumeCheckHalfMessage`.
"""

from __future__ import annotations

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import MessageInvalid, RecordCorrupt, RequestRefused
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketpy.message.properties import TRANSACTION_CHECK_TIMES
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import ResumeCheckHalfMessageRequestHeader

from ..delays.schedule import message_from
from ..property_edits import with_values
from ..services import BrokerServices
from .table import TableProcessor


class TransactionProcessor(TableProcessor):
    """Starts the checks of a transaction anew, also of one that was discarded."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume})
        self._services = services

    async def _resume(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        record = self._look_up(ResumeCheckHalfMessageRequestHeader.of(request).msg_id or "")
        services = self._services
        if record.topic == TRANS_HALF_TOPIC:
            if not services.fast_path.half_states.is_open(record.queue_offset):
                remark = (
                    "the transaction has ended; if it was discarded, give the id of its copy in "
                    f"{TRANS_CHECK_MAX_TIME_TOPIC}"
                )
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
            services.transactions.questions.begin_again(record.queue_offset)
            return RemotingCommand.response()
        services.topics.create_if_missing(TRANS_HALF_TOPIC, queue_nums=1)
        services.transactions.open_topics()
        await services.topics.file.save()
        properties = with_values(record.properties, **{TRANSACTION_CHECK_TIMES: "0"})
        message = message_from(record, topic=TRANS_HALF_TOPIC, queue_id=0, properties=properties)
        result = await services.fast_path.put(attrs.evolve(message, wait_store=True))
        if not result.is_stored:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the half message is not stored: code {result.code}")
        return RemotingCommand.response()

    def _look_up(self, message_id: str) -> StoredRecord:
        services = self._services
        try:
            phy_offset = decode_offset_message_id(message_id).phy_offset
            image = services.store.look_message_by_offset(phy_offset, services.settings.rocketpy.frame_max_length)
            record = decode_record(image, phy_offset) if image is not None else None
        except MessageInvalid as exc:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        except RecordCorrupt:
            record = None  # the offset comes from the client and may point anywhere
        if record is None or record.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            remark = f"no half message, and no copy in {TRANS_CHECK_MAX_TIME_TOPIC}, has the id {message_id[:60]}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return record
