"""Checks of open half messages: their producers are asked, and messages that nobody decides are discarded.

A half message is open until its END_TRANSACTION has been stored (csrc/workers/send/send_end.c). All open ones are
looked at every transactionCheckInterval. If one is older than transactionTimeOut, or than its
CHECK_IMMUNITY_TIME_IN_SECONDS, a producer of its group is asked about it: CHECK_TRANSACTION_STATE (39). After
transactionCheckMax checks, or when it is as old as the log may become (fileReservedTime), it is moved to
TRANS_CHECK_MAX_TIME_TOPIC, with a warning in the log.

The half message stays where it is, and the number of its checks is kept beside it (transaction_questions.py). (The
reference stores the half message again for each question; so a late answer to the first copy delivers it twice.)

The progress of transactions is saved with its position in the log (transaction_progress.py), and where the reference
keeps it, as offsets of the group CID_RMQ_SYS_TRANS: every half message below the first offset has ended, and every op
message of a later one is at the second offset or after it.

Source: RocketMQ 4.9 `TransactionalMessageServiceImpl#check`.
"""

from __future__ import annotations

import logging
from enum import Enum

import attrs

from rocketpy.errors import RecordCorrupt
from rocketpy.logs import LogLimit, and_more
from rocketpy.message import properties as p
from rocketpy.message.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketpy.message.numbers import int_or, long_or
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting.fast_path import EndTransaction, FastPath, TransactionEnd
from rocketpy.transport.steps import Steps

from ..current_settings import CurrentSettings
from ..managers.topic_config import TopicConfigManager
from ..property_edits import text_property
from ..store_api import Store
from .transaction_progress import TransactionProgress
from .transaction_questions import Questions
from .transaction_renewal import TransactionRenewal

logger = logging.getLogger(__name__)

LOOKED_MAX = 100_000  # open half messages of one round; the next one goes on after them
UNITS_PER_STEP = 20  # some 50 microseconds each: a small half message, or so much of a large one
BYTES_PER_UNIT = 25_000
HOUR_MS = 3_600_000


class Decision(Enum):
    """The decision after a look at an open half message."""

    WAIT = "it is too young, as are those after it"
    SKIP = "it is immune for now"
    ASK = "ask a producer of its group"
    LATER = "ask in the next round: too much is being asked"
    DISCARD = "move it to TRANS_CHECK_MAX_TIME_TOPIC"


@attrs.frozen
class TransactionStatistics:
    """A snapshot. Counts are since the start of the manager."""

    open: int
    oldest_age_ms: int | None  # of an open half message; None: there is none
    checks: int  # questions sent to producers
    unreachable: int  # questions for which no producer of the group was connected


def decide(
    record: StoredRecord, now_ms: int, asked: int, *, time_out_ms: int, check_max: int, hours_max: int
) -> Decision:
    """Decide what becomes of an open half message.

    Args:
        record: as stored. now_ms: the broker's clock. asked: how often its producers were asked.
    """
    age_ms = now_ms - first_stored_ms(record)
    if asked >= check_max or age_ms > hours_max * HOUR_MS:
        return Decision.DISCARD
    text = text_property(record.properties, p.CHECK_IMMUNITY_TIME_IN_SECONDS)
    seconds = int_or(text, -1) if text is not None else -1
    if seconds >= 0:
        return Decision.SKIP if age_ms < seconds * 1000 else Decision.ASK
    return Decision.WAIT if age_ms < time_out_ms else Decision.ASK


def first_stored_ms(record: StoredRecord) -> int:
    """Return the time at which an open half message was first stored (ms); a renewal stores it again."""
    text = text_property(record.properties, p.TRAN_FIRST_STORED_MS)
    return min(long_or(text, record.store_timestamp_ms), record.store_timestamp_ms)


class TransactionService:
    """Asks producers, discards, and keeps the progress. Lives in the manager."""

    def __init__(
        self,
        settings: CurrentSettings,
        store: Store,
        fast_path: FastPath,
        topics: TopicConfigManager,
        progress: TransactionProgress,
        questions: Questions,
    ) -> None:
        self._settings = settings
        self._store = store
        self._fast_path = fast_path
        self._topics = topics
        self.progress = progress
        self.questions = questions
        self._begin = 0  # where the next round begins: after the base if the last one had too much to do
        self._op_progress: int | None = None  # of the round before; None: there was none
        self._discards = LogLimit()
        self._renewal = TransactionRenewal(store, fast_path, self._read, questions.moved)

    def load(self) -> None:
        """Read the progress, and how often producers were asked before the start. Raises: ConfigError."""
        self.progress.load()
        self.questions.load(self._store.max_offset(TRANS_HALF_TOPIC, 0))

    def open_topics(self) -> None:
        """Create the op topic beside a half topic, so that the send worker can end half messages."""
        if self._topics.select(TRANS_HALF_TOPIC) is not None:
            self._topics.create_if_missing(TRANS_OP_HALF_TOPIC, queue_nums=1)

    @property
    def statistics(self) -> TransactionStatistics:
        states = self._fast_path.half_states
        end = self._store.max_offset(TRANS_HALF_TOPIC, 0)
        oldest = states.next_open(states.base, end)
        age_ms = None
        if oldest < end:
            stored_ms = self._store.message_store_timestamp(TRANS_HALF_TOPIC, 0, oldest)
            age_ms = max(0, self._store.clock_ms() - stored_ms) if stored_ms >= 0 else None
        count = states.count_open(states.base, end)
        return TransactionStatistics(count, age_ms, self.questions.asked, self.questions.unreachable)

    # --- checks -------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Look at the open half messages, once: at all of them, unless they are too many."""
        states, steps = self._fast_path.half_states, Steps(UNITS_PER_STEP)
        end = self._store.max_offset(TRANS_HALF_TOPIC, 0)
        self._pass_expired()
        self.questions.begin_round()
        left: int | None = None  # the first one that is for the next round
        looked, offset = 0, states.next_open(max(states.base, self._begin), end)
        while offset < end:
            if looked == LOOKED_MAX:
                left = offset if left is None else left
                break
            decision = await self._look_at(offset, steps)
            if decision is Decision.WAIT:
                break
            if decision is Decision.LATER and left is None:
                left = offset
            looked += 1
            offset = states.next_open(offset + 1, end)
        self._begin = 0 if left is None else left
        await self.questions.forget_unless(lambda offset: offset < end and states.is_open(offset))

    def _pass_expired(self) -> None:
        """Pass the half messages whose log files were deleted."""
        states, low = self._fast_path.half_states, self._store.min_offset(TRANS_HALF_TOPIC, 0)
        lost = states.count_open(states.base, low)
        if lost:
            logger.error(
                "open transactions are lost: the half messages of %d were deleted with their log files, before they "
                "were decided; a longer fileReservedTime keeps them",
                lost,
            )
        states.move_base(low)

    async def _look_at(self, offset: int, steps: Steps) -> Decision:
        record = self._read(offset)
        await steps.did(1 if record is None else 1 + record.size // BYTES_PER_UNIT)
        if record is None:
            await self._end_unreadable(offset)
            return Decision.DISCARD
        broker, times = self._settings.broker, self.questions.times(offset, record)
        decision = decide(
            record,
            self._store.clock_ms(),
            times,
            time_out_ms=broker.transaction_time_out,
            check_max=broker.transaction_check_max,
            hours_max=self._settings.store.file_reserved_time,
        )
        if decision is Decision.DISCARD:
            await self._discard(record, times)
        elif decision is Decision.ASK and not await self.questions.ask(offset, record):
            return Decision.LATER
        return decision

    def _read(self, offset: int) -> StoredRecord | None:
        units = self._store.consume_queue_units(TRANS_HALF_TOPIC, 0, offset, 1)
        image = self._store.look_message_by_offset(units[0].phy_offset) if units else None
        try:
            record = decode_record(image, units[0].phy_offset) if image is not None else None
        except RecordCorrupt:
            return None
        return record if record is not None and record.topic == TRANS_HALF_TOPIC else None

    async def _discard(self, record: StoredRecord, times: int) -> None:
        self._topics.create_if_missing(TRANS_CHECK_MAX_TIME_TOPIC, queue_nums=1)
        await self._topics.file.save()
        result = await self._fast_path.end_transaction(
            EndTransaction(TransactionEnd.DISCARD, record.queue_offset, record.phy_offset)
        )
        if not result.is_stored:  # ended meanwhile, or the store takes no messages: the next round sees
            return
        told = self._discards.take()
        if told:
            logger.warning(
                "discarded the transaction at log offset %d after %d checks: no producer of group %s has decided it; "
                "its message for topic %s is in %s%s",
                record.phy_offset,
                times,
                (text_property(record.properties, p.PGROUP) or "")[:200],
                text_property(record.properties, p.REAL_TOPIC),
                TRANS_CHECK_MAX_TIME_TOPIC,
                and_more(told),
            )

    async def _end_unreadable(self, offset: int) -> None:
        result = await self._fast_path.end_transaction(EndTransaction(TransactionEnd.UNREADABLE, offset, 0))
        if result.is_stored:
            logger.error(
                "discarded the transaction at offset %d of topic %s: its half message cannot be read; `rocketpy store "
                "verify` names the damage",
                offset,
                TRANS_HALF_TOPIC,
            )

    async def renew(self) -> None:
        """Store half messages again that are open for long and keep the base from moving (transaction_renewal.py)."""
        await self._renewal.run()

    # --- progress -----------------------------------------------------------------------------------------------------

    def keep_progress(self) -> None:
        """Move the base to the oldest open half message, and propose it as the progress.

        The progress of the op queue is that of the round before: a table is saved while it changes, and a Java broker
        must find every op message after the saved one.
        """
        states = self._fast_path.half_states
        ops, end = self._store.max_offset(TRANS_OP_HALF_TOPIC, 0), self._store.max_offset(TRANS_HALF_TOPIC, 0)
        if not end:
            return
        states.move_base(states.next_open(states.base, end))
        self.progress.propose(states.base, self._op_progress)
        self._op_progress = ops if states.base >= end else self._first_op_after(states.base, ops)

    def _first_op_after(self, half_offset: int, ops: int) -> int:
        """The first op message after a half message: those of this one and of later ones follow."""
        units = self._store.consume_queue_units(TRANS_HALF_TOPIC, 0, half_offset, 1)
        low, high = self._store.min_offset(TRANS_OP_HALF_TOPIC, 0), ops
        while units and low < high:
            middle = (low + high) // 2
            found = self._store.consume_queue_units(TRANS_OP_HALF_TOPIC, 0, middle, 1)
            if found and found[0].phy_offset < units[0].phy_offset:
                low = middle + 1
            else:
                high = middle
        return low
