"""Pulls from a queue in Python: for readers inside of the broker (delay, transactions, admin).

The pull worker serves consumers in C, by the same rules. Source: RocketMQ 4.9 `DefaultMessageStore#getMessage`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Any

import attrs

from ..formats.consume_queue_ext import is_ext_address
from ..formats.unit import CQ_STORE_UNIT_SIZE, ConsumeQueueUnit
from .commitlog import CommitLog
from .consume_queue import ConsumeQueues

SCAN_BYTES_MIN = 16_000  # bytes of units examined per call at least


class GetMessageStatus(enum.Enum):
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@attrs.frozen
class GetMessageResult:
    """`records` are whole records as stored. `next_begin_offset` is the offset to continue at: after the last examined
    unit, which with a filter may be far behind the last record found."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes] = attrs.field(factory=list)
    suggest_slave: bool = False  # the consumer is so far behind that it reads from the disk


@attrs.frozen
class TransferLimits:
    """Limits of one pull, for messages in memory (recent ones) and on the disk."""

    memory_bytes: int  # records within this distance of the log's end count as in memory
    bytes_in_memory: int = 262_144
    count_in_memory: int = 32
    bytes_in_disk: int = 65_536
    count_in_disk: int = 8

    def is_full(self, count: int, size: int, next_size: int, max_num: int, is_in_disk: bool) -> bool:
        """Return True if a record of `next_size` must wait for the next pull; never for the first record."""
        if count == 0 or size == 0:
            return False
        if count >= max_num:
            return True
        if is_in_disk:
            return size + next_size > self.bytes_in_disk or count >= self.count_in_disk
        return size + next_size > self.bytes_in_memory or count >= self.count_in_memory


def low_32_bits(tags_code: int) -> int:
    """A tag hash in the form of subscriptions: signed 32 bits."""
    value = tags_code & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def matches(unit: ConsumeQueueUnit, tag_hashes: Collection[int] | None) -> bool:
    """Return True if a unit passes the filter; None passes everything. Different tags may share a hash, and a tags code
    may be lost with its extension unit: consumers compare the tags again."""
    return tag_hashes is None or is_ext_address(unit.tags_code) or low_32_bits(unit.tags_code) in tag_hashes


def place_offset(offset: int, min_offset: int, max_offset: int) -> tuple[GetMessageStatus, int] | None:
    """Status and next offset for an offset outside of the queue; None if it is inside."""
    if max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL, min_offset
    if offset == max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset
    return None


def get_message(
    queue: Any | None,
    offset: int,
    max_num: int,
    tag_hashes: Collection[int] | None,
    *,
    queues: ConsumeQueues,
    log: CommitLog,
    limits: TransferLimits,
) -> GetMessageResult:
    """Up to `max_num` records from `offset` on, of one consume queue file."""
    if queue is None:
        return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    min_offset, max_offset = int(queue.min_offset), int(queue.max_offset)
    placed = place_offset(offset, min_offset, max_offset)
    if placed:
        return GetMessageResult(*placed, min_offset, max_offset)
    units = queues.units(queue, offset, max(SCAN_BYTES_MIN // CQ_STORE_UNIT_SIZE, max_num))
    if not units:
        placed = place_offset(offset, int(queue.min_offset), int(queue.max_offset))
        if placed:  # the queue was cleaned or removed meanwhile: skip nothing
            return GetMessageResult(*placed, int(queue.min_offset), int(queue.max_offset))
        next_offset = (offset // queues.units_per_file + 1) * queues.units_per_file
        return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
    if tag_hashes is not None:
        units = queues.with_tags(queue, units)
    scan = _Scan(log, limits, max_num, tag_hashes)
    scanned = scan.run(units)
    return GetMessageResult(
        scan.status, offset + scanned, min_offset, max_offset, scan.records, scan.distance > limits.memory_bytes
    )


class _Scan:
    """One walk over the units of a queue."""

    def __init__(
        self, log: CommitLog, limits: TransferLimits, max_num: int, tag_hashes: Collection[int] | None
    ) -> None:
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE
        self.records: list[bytes] = []
        self.distance = 0  # of the last examined unit from the log's end
        self._log = log
        self._limits = limits
        self._max_num = max_num
        self._tag_hashes = tag_hashes

    def run(self, units: list[ConsumeQueueUnit]) -> int:
        """Returns the number of processed units. A unit without a record loses its own message only. The reference then
        skips all units of that log file, also those whose records exist."""
        log_end, size = self._log.control.published_phy_offset, 0
        for scanned, unit in enumerate(units):
            self.distance = log_end - unit.phy_offset
            is_in_disk = self.distance > self._limits.memory_bytes
            if self._limits.is_full(len(self.records), size, unit.size, self._max_num, is_in_disk):
                return scanned
            if not matches(unit, self._tag_hashes):
                if not self.records:
                    self.status = GetMessageStatus.NO_MATCHED_MESSAGE
                continue
            record = self._log.read(unit.phy_offset, unit.size)
            if record is None:
                if not self.records:
                    self.status = GetMessageStatus.MESSAGE_WAS_REMOVING
                continue
            self.records.append(record)
            self.status = GetMessageStatus.FOUND
            size += len(record)
        return len(units)
