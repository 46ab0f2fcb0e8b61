"""Finds how far a delay level was delivered, by its last delivered copy in the log.

A slave that still copies its master's log takes no progress of delay levels: the master's progress presumes messages
that the slave does not have yet (log_marks.py). If the slave is promoted then, its log is the only witness. Messages of
a level are delivered in order, so the copy of one proves that every message before it was delivered too. The search
looks back from the end of the level's queue, in steps that double, to a message whose copy is found, and then narrows
the gap. A message without a copy is taken for undelivered: that repeats messages and skips none.

One copy must not answer for two messages: an object that is sent twice within a millisecond has the same identity. So a
copy counts only if none of the messages before has that identity, and the one before has its copy too.

The time of a delivery is not enough: a master that was down delivers late, and its log goes on before it does.
"""

from __future__ import annotations

import attrs
import trio

from rocketpy.errors import RecordCorrupt
from rocketpy.message.names import SCHEDULE_TOPIC
from rocketpy.message.numbers import PhyOffset, int_or
from rocketpy.message.properties import DELAY, REAL_QID, REAL_TOPIC, UNIQ_KEY
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.transport.steps import Steps

from ..property_edits import text_property
from ..store_api import Store

NEIGHBOURS = 4  # messages that are tried at each step: one may have become a dead letter, or have no key
UNITS_PER_LOOK = 512  # of the real queue, from the delivery time on, for one copy
RECORDS_PER_STEP = 50
LOOK_BACK = 32  # messages before one, among which another may have its identity
COPY_MARGIN = 4096  # bytes: the topic's name and the properties of a copy differ from those of the delayed record


@attrs.frozen
class LastDelivery:
    """The search in one level. `until_s`: time of trio's clock at which it ends, with what it has proved so far."""

    _store: Store
    _level: int
    _delay_ms: int
    _until_s: float
    _steps: Steps = attrs.field(factory=lambda: Steps(RECORDS_PER_STEP))

    async def after(self, low: int, high: int) -> int:
        """Return the offset after the last message in [low, high) whose copy was found; `low` if there is none."""
        beyond, step = high, 1
        while beyond > low:
            at = max(low, high - step)
            found = await self._delivered(at, low)
            if found >= 0:
                return await self._between(found + 1, beyond)
            beyond, step = at, step * 2
        return low

    async def _between(self, low: int, high: int) -> int:
        """Everything below `low` was delivered, and no copy of the message at `high` was found."""
        while low < high:
            middle = (low + high) // 2
            found = await self._delivered(middle, low)
            if found >= 0:
                low = found + 1
            else:
                high = middle
        return low

    async def _delivered(self, offset: int, low: int) -> int:
        """The first of NEIGHBOURS messages, from `offset` down to `low`, whose copy is in the log; -1: none."""
        for near in range(offset, max(low, offset - NEIGHBOURS + 1) - 1, -1):
            if trio.current_time() >= self._until_s:
                return -1
            if await self._proves(near, low):
                return near
        return -1

    async def _proves(self, offset: int, low: int) -> bool:
        """Return True if this message, and so all before it, was delivered."""
        if not await self._has_copy(offset) or (offset > low and not await self._has_copy(offset - 1)):
            return False
        record = self._delayed_at(offset)
        for before in range(offset - 1, max(0, offset - LOOK_BACK) - 1, -1):
            await self._steps.did()
            if record is None or _is_copy(self._delayed_at(before), record):
                return False
        return True

    def _delayed_at(self, offset: int) -> StoredRecord | None:
        units = self._store.consume_queue_units(SCHEDULE_TOPIC, self._level - 1, offset, 1)
        return self._record_at(units[0].phy_offset) if units else None

    async def _has_copy(self, offset: int) -> bool:
        units = self._store.consume_queue_units(SCHEDULE_TOPIC, self._level - 1, offset, 1)
        record = self._record_at(units[0].phy_offset) if units else None
        if record is None:
            return False
        topic = text_property(record.properties, REAL_TOPIC)
        queue_id = int_or(text_property(record.properties, REAL_QID) or "0", -1)
        if topic is None or queue_id < 0 or not text_property(record.properties, UNIQ_KEY):
            return False
        due_ms = min(units[0].tags_code, record.store_timestamp_ms + self._delay_ms)
        begin, end = self._first_stored(topic, queue_id, due_ms), self._store.max_offset(topic, queue_id)
        for unit in self._store.consume_queue_units(topic, queue_id, begin, min(UNITS_PER_LOOK, end - begin)):
            await self._steps.did()
            if trio.current_time() >= self._until_s:
                return False
            may_be_copy = unit.phy_offset > record.phy_offset and unit.size <= units[0].size + COPY_MARGIN
            if may_be_copy and _is_copy(self._record_at(unit.phy_offset), record):
                return True
        return False

    def _first_stored(self, topic: str, queue_id: int, at_ms: int) -> int:
        """The first offset of a queue whose message was stored at this time or later."""
        low, high = max(0, self._store.min_offset(topic, queue_id)), self._store.max_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            if self._store.message_store_timestamp(topic, queue_id, middle) < at_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _record_at(self, phy_offset: int) -> StoredRecord | None:
        image = self._store.look_message_by_offset(phy_offset)
        if image is None:
            return None
        try:
            return decode_record(memoryview(image), PhyOffset(phy_offset), check_crc=False)
        except RecordCorrupt:
            return None


def _is_copy(record: StoredRecord | None, delayed: StoredRecord) -> bool:
    """Return True if the record is the delivered copy. A message that no level delivered has no real topic."""
    if record is None or (record.reconsume_times, record.born_timestamp_ms) != (
        delayed.reconsume_times,
        delayed.born_timestamp_ms,
    ):
        return False
    names = (UNIQ_KEY, REAL_TOPIC, REAL_QID, DELAY)
    return all(text_property(record.properties, name) == text_property(delayed.properties, name) for name in names)
