"""Finds the delayed messages that were delivered after the position that the saved progress presumes.

The progress of delay levels is saved every 10 s, and a slave takes it when its log has the deliveries. When a broker
starts after its death, or a slave becomes the master, later deliveries may be in the log, after that position, with all
properties of the delayed messages. These messages are passed over, level by level, up to the first one that is not
found: within a level, deliveries are in order.

The search is bounded, in time and in the number of records that it reads. A message that it does not find is delivered,
perhaps for the second time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import trio

from rocketpy.errors import RecordCorrupt
from rocketpy.message.numbers import PhyOffset
from rocketpy.message.properties import UNIQ_KEY
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.transport.steps import Steps

from ..property_edits import text_property
from ..store_api import Store

SEARCH_S = 60.0  # from the start on: what becomes due later was not delivered by another broker
DISPATCH_S, LOOK_S = 5.0, 0.05  # to wait for the queues to have all that the last master wrote
UNITS_PER_QUEUE = 4_096  # at its end, if the position is not known
UNITS_MAX = 65_536  # of all queues
UNDER_WAY_BYTES = 16 << 20  # a delivery that was under way may be so far before the position
UNDER_WAY_UNITS = 4_096  # of a queue; 16 MiB of small messages would use up UNITS_MAX
RECORDS_PER_STEP = 50

_Key = tuple[str, int, int]  # UNIQ_KEY, reconsume times, born timestamp (ms)
logger = logging.getLogger(__name__)


class EarlierDeliveries:
    """The deliveries in a part of the log beyond the saved progress. One per manager whose log has such a part."""

    def __init__(self, store: Store, levels: Iterable[int], since: int) -> None:
        """`since`: the position that the progress presumes; -1: not known."""
        self._store = store
        self._since = since
        self._levels = dict.fromkeys(levels, 0)  # those that are still searched: messages found
        self._copies: dict[tuple[str, int], dict[_Key, list[int]]] = {}  # of a queue -> where in the log
        self._units_left = UNITS_MAX
        self._until_s = -math.inf

    async def begin(self) -> None:
        """Wait until the log as it is now is in the queues, but not for long."""
        self._until_s = trio.current_time() + SEARCH_S
        end = self._store.statistics().published_phy_offset
        with trio.move_on_after(DISPATCH_S):
            while self._dispatched() < end:  # noqa: ASYNC110 - another process dispatches
                await trio.sleep(LOOK_S)

    def _dispatched(self) -> int:
        known = self._store.statistics()
        return known.published_phy_offset - known.dispatch_behind_bytes

    def is_searching(self, level: int) -> bool:
        """Return True if messages of this level may have been delivered before."""
        return level in self._levels

    async def has(self, level: int, record: StoredRecord, topic: str, queue_id: int) -> bool:
        """Return True if this delayed message was delivered to the queue, and all of its level before it."""
        if level not in self._levels:
            return False
        copies = await self._copies_in(topic, queue_id) if trio.current_time() < self._until_s else {}
        key = _key_of(record)
        places = copies.get(key, []) if key is not None else []
        if places and places[-1] > record.phy_offset:
            places.pop()  # a copy answers for one message: an object that was sent twice has the same key
            self._levels[level] += 1
            return True
        found = self._levels.pop(level)
        if found:
            text = "delay level %d: %d messages more had been delivered than the saved progress says: passed over"
            logger.info(text, level, found)
        if not self._levels:
            self._copies.clear()
        return False

    async def _copies_in(self, topic: str, queue_id: int) -> dict[_Key, list[int]]:
        """The messages of a queue since the position, for each key from the first to the last."""
        known = self._copies.get((topic, queue_id))
        if known is not None:
            return known
        found: dict[_Key, list[int]] = {}
        end, steps = self._store.max_offset(topic, queue_id), Steps(RECORDS_PER_STEP)
        offset = self._first_in(topic, queue_id, end)
        while self._units_left:
            units = self._store.consume_queue_units(topic, queue_id, offset, min(RECORDS_PER_STEP, end - offset))
            if not units:
                break
            offset += len(units)
            self._units_left = max(0, self._units_left - len(units))
            for unit in units:
                key = self._key_at(unit.phy_offset)
                if key is not None:
                    found.setdefault(key, []).append(unit.phy_offset)
                await steps.did()
        self._copies[topic, queue_id] = found
        return found

    def _first_in(self, topic: str, queue_id: int, end: int) -> int:
        """The offset from which the queue is read: that of its first message since the position."""
        low = max(0, self._store.min_offset(topic, queue_id))
        if self._since < 0:
            return max(low, end - UNITS_PER_QUEUE)
        since = self._first_from(topic, queue_id, self._since, low, end)
        return max(
            since - UNDER_WAY_UNITS, self._first_from(topic, queue_id, self._since - UNDER_WAY_BYTES, low, since)
        )

    def _first_from(self, topic: str, queue_id: int, phy_offset: int, low: int, high: int) -> int:
        """The first offset in [low, high) whose message is at this position of the log or behind it; else `high`."""
        while low < high:
            middle = (low + high) // 2
            units = self._store.consume_queue_units(topic, queue_id, middle, 1)
            if units and units[0].phy_offset >= phy_offset:
                high = middle
            else:
                low = middle + 1
        return low

    def _key_at(self, phy_offset: int) -> _Key | None:
        image = self._store.look_message_by_offset(phy_offset)
        if image is None:
            return None
        try:
            record = decode_record(memoryview(image), PhyOffset(phy_offset), check_crc=False)
        except RecordCorrupt:
            return None
        return None if record is None else _key_of(record)


def _key_of(record: StoredRecord) -> _Key | None:
    """The key that a delayed message and its delivered copy share with no other message; None: there is none."""
    unique = text_property(record.properties, UNIQ_KEY)
    return (unique, record.reconsume_times, record.born_timestamp_ms) if unique else None
