"""Questions to producers, how a transaction ended: CHECK_TRANSACTION_STATE (39), with the whole half message.

Half messages may be many and large, and what is pushed to a client takes the way of the answers to all clients of its
selector. So a question is sent when nothing waits there, and a connection is sent ASKED_BYTES_MAX in a round at most.
What is left over is asked in the next round, and does not count as a check.

With access control a producer is asked only if its account may send to the topic of the half message: any account can
name any producer group in a heartbeat.

The number of questions about each open half message is kept here and in config/transactionChecks.json.

Source: RocketMQ 4.9 `AbstractTransactionalMessageCheckListener#sendCheckMessage`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
from rocketpy.remoting.json_writer import pretty_pieces
from rocketpy.transport.steps import Steps

from ..files import json_file
from ..managers.client_channel import ClientChannelInfo
from ..managers.config_file import ConfigFile
from ..managers.producer import ProducerManager
from ..property_edits import text_property

logger = logging.getLogger(__name__)

ASKED_BYTES_MAX = 16 * 1024 * 1024  # to one connection in a round; one question always fits
WAIT_S = 0.01  # before a channel is looked at again
WAITS_MAX = 500  # in a round
CHECKED_MAX = 200_000  # open half messages whose checks are counted; others are asked about when these have ended


@attrs.define(eq=False)
class Questions:
    """Asks producers, and counts the questions about each open half message."""

    path: Path  # of transactionChecks.json
    producers: ProducerManager
    interval_ms: Callable[[], int]  # between rounds, for the log
    may_send: Callable[[str, str, str], bool] | None = None  # (access key, host, topic); None: all may
    asked: int = attrs.field(init=False, default=0)  # since the start of the manager
    unreachable: int = attrs.field(init=False, default=0)  # no producer of the group was connected
    checks: dict[int, int] = attrs.field(init=False, factory=dict)  # offset of an open half message -> questions
    file: ConfigFile = attrs.field(init=False)
    _sent: Counter[int] = attrs.field(init=False, factory=Counter)  # bytes of this round, by connection
    _waits: int = attrs.field(init=False, default=0)
    _log: LogLimit = attrs.field(init=False, factory=LogLimit)

    def __attrs_post_init__(self) -> None:
        self.file = ConfigFile(self.path, lambda: pretty_pieces({"checks": dict(self.checks)}))

    def load(self, end: int) -> None:
        """Read how often producers were asked before the start. Raises: ConfigError.

        A count at or beyond `end`, the end of the queue, is of a half message that a power failure has taken; another
        one will be there.
        """
        saved = json_file.load(self.path) or {}
        counts = saved.get("checks")
        for text, asked in counts.items() if isinstance(counts, dict) else ():
            offset = int_or(str(text), -1)
            if 0 <= offset < end and len(self.checks) < CHECKED_MAX and isinstance(asked, int):
                self.checks[offset] = asked

    def begin_round(self) -> None:
        self._sent.clear()
        self._waits = 0

    def times(self, offset: int, record: StoredRecord) -> int:
        """Return the number of checks of an open half message so far."""
        known = self.checks.get(offset)
        return int_or(text_property(record.properties, p.TRANSACTION_CHECK_TIMES), 0) if known is None else known

    def begin_again(self, offset: int) -> None:
        """Count the questions about a half message from 0."""
        self.checks[offset] = 0
        self.file.changed()

    def moved(self, offset: int, target: int) -> None:
        """A half message was stored again: its questions count on."""
        if offset in self.checks:
            self.checks[target] = self.checks.pop(offset)
            self.file.changed()

    async def forget_unless(self, is_open: Callable[[int], bool]) -> None:
        """Forget the counts of half messages that have ended."""
        steps = Steps()
        for offset in list(self.checks):
            if not is_open(offset):
                self.checks.pop(offset, None)
                self.file.changed()
            await steps.did()

    async def ask(self, offset: int, record: StoredRecord) -> bool:
        """Ask about the half message at an offset of its queue, and count it. Returns False if the next round has to
        begin with it."""
        if offset not in self.checks and len(self.checks) >= CHECKED_MAX:
            return True  # passed over: the next round looks at those that are counted, so that they end
        if not await self._ask(record):
            return False
        self.checks[offset] = self.times(offset, record) + 1  # it may have been resumed meanwhile
        self.file.changed()
        return True

    async def _ask(self, record: StoredRecord) -> bool:
        """Ask a producer of the half message's group. Returns False if it has to be done in the next round; otherwise
        it counts as a check, also if nobody could be asked."""
        group = text_property(record.properties, p.PGROUP) or ""
        channel = self.producers.available_channel(group, self._asked_about(record))
        if channel is None:
            self._tell_of_nobody(record, group)
            return True
        if not await self._has_room(channel, record.size):
            return False
        self._sent[channel.connection] += record.size
        self.asked += 1
        channel.push(check_request(record))
        return True

    def _asked_about(self, record: StoredRecord) -> Callable[[ClientChannelInfo], bool] | None:
        may_send = self.may_send
        if may_send is None:
            return None
        topic = text_property(record.properties, p.REAL_TOPIC) or ""
        return lambda info: may_send(info.access_key, info.channel.peer.host, topic)

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
                "cannot ask about the transaction at log offset %d: no producer of group %s is connected%s; "
                "trying again in %d s%s",
                record.phy_offset,
                group[:200],
                "" if self.may_send is None else " whose account may send to its topic",
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
        queue_id=int_or(text_property(record.properties, p.REAL_QID), 0),
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
