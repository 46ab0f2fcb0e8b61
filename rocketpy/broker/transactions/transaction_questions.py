"""Questions to producers, how a transaction ended: CHECK_TRANSACTION_STATE (39), with the whole half message.

Half messages may be many and large, and what is pushed to a client takes the way of the answers to all clients of its
selector. So a question is sent when nothing waits there, and a connection is sent ASKED_BYTES_MAX in a round at most.
What is left over is asked in the next round, and does not count as a check.

Source: RocketMQ 4.9 `AbstractTransactionalMessageCheckListener#sendCheckMessage`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import attrs
import trio

from rocketpy.codes import RequestCode
from rocketpy.logs import LogLimit, and_more
from rocketpy.message import properties as p
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.numbers import int_or
from rocketpy.message.record import StoredRecord, encode_record
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader

from ..managers.producer import ProducerManager
from ..property_edits import text_property

logger = logging.getLogger(__name__)

ASKED_BYTES_MAX = 16 * 1024 * 1024  # to one connection in a round; one question always fits
WAIT_S = 0.01  # before a channel is looked at again
WAITS_MAX = 500  # in a round


@attrs.define(eq=False)
class Questions:
    """Asks producers. Counts are since the start of the manager."""

    producers: ProducerManager
    interval_ms: Callable[[], int]  # between rounds, for the log
    asked: int = 0
    unreachable: int = 0  # no producer of the group was connected
    _sent: Counter[int] = attrs.field(init=False, factory=Counter)  # bytes of this round, by connection
    _waits: int = attrs.field(init=False, default=0)
    _log: LogLimit = attrs.field(init=False, factory=LogLimit)

    def begin_round(self) -> None:
        self._sent.clear()
        self._waits = 0

    async def ask(self, record: StoredRecord) -> bool:
        """Ask a producer of the half message's group. Returns False if it has to be done in the next round; otherwise
        it counts as a check, also if nobody could be asked."""
        group = text_property(record.properties, p.PGROUP) or ""
        channel = self.producers.available_channel(group)
        if channel is None:
            self._tell_of_nobody(record, group)
            return True
        if not await self._has_room(channel, record.size):
            return False
        self._sent[channel.connection] += record.size
        self.asked += 1
        channel.push(check_request(record))
        return True

    async def _has_room(self, channel: Channel, size: int) -> bool:
        sent = self._sent[channel.connection]
        if sent and sent + size > ASKED_BYTES_MAX:
            return False
        while not channel.is_writable:
            if self._waits == WAITS_MAX:
                return False
            self._waits += 1
            await trio.sleep(WAIT_S)
        return True

    def _tell_of_nobody(self, record: StoredRecord, group: str) -> None:
        self.unreachable += 1
        if told := self._log.take():
            logger.warning(
                "cannot ask about the transaction at log offset %d: no producer of group %s is connected; trying again "
                "in %d s%s",
                record.phy_offset,
                group[:200],
                self.interval_ms() // 1000,
                and_more(told),
            )


def check_request(record: StoredRecord) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE for a half message; the body is the message with its real topic and queue."""
    unique_id = text_property(record.properties, p.UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.phy_offset,
        msg_id=unique_id,
        transaction_id=unique_id,
        offset_msg_id=encode_offset_message_id(record.store_host, record.phy_offset),
    )
    body = encode_record(
        topic=text_property(record.properties, p.REAL_TOPIC) or "",
        queue_id=int_or(text_property(record.properties, p.REAL_QID) or "0", 0),
        body=bytes(record.body),
        properties=record.properties,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        queue_offset=record.queue_offset,
        phy_offset=record.phy_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
    return RemotingCommand.oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body=body)
