"""RESUME_CHECK_HALF_MESSAGE (323): ask the producers of a transaction again, from the first time on.

An open half message keeps its place. One that was discarded is named by its copy in TRANS_CHECK_MAX_TIME_TOPIC, and is
stored as a half message again.

With access control also END_TRANSACTION (37): the sender needs the right to send to the topic that the half message is
for, which must be read first. The send worker does and answers the rest.

Source: RocketMQ 4.9 `AdminBrokerProcessor#resumeCheckHalfMessage`.
"""

from __future__ import annotations

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import MessageInvalid, RecordCorrupt, RequestRefused
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketpy.message.properties import REAL_TOPIC, TRANSACTION_CHECK_TIMES
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.answers import OVERLOAD
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader

from ..delays.schedule import message_from
from ..property_edits import text_property, with_values
from ..services import BrokerServices
from .table import Handler, TableProcessor


class TransactionProcessor(TableProcessor):
    """Starts the checks of a transaction anew, also of one that was discarded; checks who ends one."""

    def __init__(self, services: BrokerServices) -> None:
        handlers: dict[int, Handler] = {RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume}
        if services.access is not None:
            handlers[RequestCode.END_TRANSACTION] = self._end
        super().__init__(handlers)
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

    async def _end(self, request: RemotingCommand, channel: Channel) -> None:
        header, access = EndTransactionRequestHeader.of(request), self._services.access
        if access is not None and access.is_strict:
            access.check_topic(request, channel.peer.host, self._topic_of_half(header.commit_log_offset))
        if not self._services.fast_path.pass_end(request, header, channel):
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, OVERLOAD)

    def _topic_of_half(self, phy_offset: int) -> str:
        """The topic that the half message is for. One that was stored again and has lost its first place is not found:
        the broker asks its producer again, with the new place."""
        record = self._record(phy_offset)
        topic = text_property(record.properties, REAL_TOPIC) if record is not None else None
        if record is None or record.topic != TRANS_HALF_TOPIC or topic is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        return topic

    def _record(self, phy_offset: int) -> StoredRecord | None:
        """The offset comes from the client and may point anywhere."""
        services = self._services
        image = services.store.look_message_by_offset(phy_offset, services.settings.rocketpy.frame_max_length)
        try:
            return decode_record(image, phy_offset) if image is not None else None
        except RecordCorrupt:
            return None

    def _look_up(self, message_id: str) -> StoredRecord:
        try:
            record = self._record(decode_offset_message_id(message_id).phy_offset)
        except MessageInvalid as exc:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        if record is None or not self._is_in_queue(record):
            remark = f"no half message, and no copy in {TRANS_CHECK_MAX_TIME_TOPIC}, has the id {message_id[:60]}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return record

    def _is_in_queue(self, record: StoredRecord) -> bool:
        """Return True if a queue of half messages, or of their copies, names the place: senders may write what looks
        like such a record into a body."""
        if record.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            return False
        store = self._services.store
        units = store.consume_queue_units(record.topic, record.queue_id, record.queue_offset, 1)
        return bool(units) and units[0].phy_offset == record.phy_offset
