"""Finds the delayed messages that the last master of a group has delivered, of which this broker has older progress.

A slave copies the progress of delayed messages once a second. When it becomes the master, what the last one delivered
since is in the log, after the delayed message, at the end of its queue, with all of its properties. Such messages are
passed over, level by level, up to the first one that is not found: within a level, deliveries are in order.

The search is bounded, in time and in what it reads. What it does not find is delivered, perhaps for the second time.
"""

from __future__ import annotations

import logging
import math

import trio

from rocketpy.errors import RecordCorrupt
from rocketpy.message.properties import UNIQ_KEY
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.transport.steps import Steps
from rocketpy.units import PhyOffset

from .property_edits import text_property
from .store_api import Store

SEARCH_S = 60.0  # from the start on: what becomes due later was not delivered by another broker
DISPATCH_S, LOOK_S = 5.0, 0.05  # to wait for the queues to have all that the last master wrote
UNITS_PER_QUEUE = 4_096  # at its end
UNITS_MAX = 65_536  # of all queues
RECORDS_PER_STEP = 50

_Key = tuple[str, int, int]  # UNIQ_KEY, reconsume times, born timestamp (ms)
logger = logging.getLogger(__name__)


class EarlierDeliveries:
    """One per manager with automatic failover."""

    def __init__(self, store: Store, level_max: int) -> None:
        self._store = store
        self._levels = dict.fromkeys(range(1, level_max + 1), 0)  # those that are still searched: messages found
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

    async def has(self, level: int, record: StoredRecord, topic: str, queue_id: int) -> bool:
        """Whether this delayed message was delivered to the queue, and all of its level before it."""
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
            text = "delay level %d: the last master had delivered %d messages more than was known: not delivered again"
            logger.info(text, level, found)
        if not self._levels:
            self._copies.clear()
        return False

    async def _copies_in(self, topic: str, queue_id: int) -> dict[_Key, list[int]]:
        """The messages at the end of a queue, for each key from the first to the last."""
        known = self._copies.get((topic, queue_id))
        if known is not None:
            return known
        found: dict[_Key, list[int]] = {}
        end, steps = self._store.max_offset(topic, queue_id), Steps(RECORDS_PER_STEP)
        offset = max(0, self._store.min_offset(topic, queue_id), end - min(UNITS_PER_QUEUE, self._units_left))
        while offset < end:
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
    """What a delayed message and its delivered copy have in common, and no other message; None: nothing."""
    unique = text_property(record.properties, UNIQ_KEY)
    return (unique, record.reconsume_times, record.born_timestamp_ms) if unique else None
