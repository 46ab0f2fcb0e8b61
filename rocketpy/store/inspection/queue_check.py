"""Compares consume queues with the log: by sums over units that C makes, and unit by unit where the sums differ.

It opens one file of one queue at a time, so it needs few descriptors even for many queues.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.names import TIMER_TOPIC, TOPIC_LENGTH_MAX
from rocketpy.message.numbers import long_or
from rocketpy.message.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    TAGS,
    TIMER_OUT_MS,
    decode_properties,
)
from rocketpy.message.record import StoredRecord
from rocketpy.message.tags import tags_code
from rocketpy.native.core import ffi, lib

from ..formats.consume_queue_ext import is_ext_address, real_offset
from ..formats.unit import CQ_STORE_UNIT_SIZE, ConsumeQueueUnit
from .findings import Check, Code, Inspected
from .reader import READ_UNITS_MAX, READ_UNITS_MIN, QueueDirectory
from .state_files import read_deletions
from .tally import QueueTally

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
NO_RECORDS = (1 << 64) - 1
PROBLEMS_PER_QUEUE = 20
NAME_DIGITS = 20


class CheckedLog(Protocol):
    """The facts about the log that the check of the queues needs."""

    @property
    def begin(self) -> int: ...  # phy offset
    @property
    def end(self) -> int: ...  # phy offset
    @property
    def is_dispatch_known(self) -> bool: ...  # the control block says which records must have units

    def tallies(self) -> Iterator[QueueTally]: ...


class QueueCheck(Check):
    """All queues of a store, after the log."""

    def __init__(self, inspected: Inspected, log: CheckedLog, *, file_size: int = 0) -> None:
        super().__init__(inspected)
        self._log = log
        self._file_size = file_size  # of all queues; 0: known after the first one
        self._is_odd = False  # the queue has a file that does not belong there, or lacks one between two others
        self._has_rest = False  # something lies after the queue's last unit
        self._log_files = self._reader.log_files()
        self._sum = ffi.new("rp_units *")
        self._deletions = read_deletions(self._reader.files, self._reader.paths)
        self.behind = 0  # records without a unit, which the next start or the running broker dispatches
        # Without a control block the dispatched position is unknown: units may be missing at the end.
        self._may_lag = not self._state.is_closed and not log.is_dispatch_known
        self.units = 0
        self.queues = 0

    def run(self) -> None:
        tallies = {(tally.topic, tally.queue_id): tally for tally in self._log.tallies()}
        self._listener.begin("queues", len(tallies), "queues")
        for queue in self._reader.queues():
            self.check(queue, tallies.pop((queue.topic, queue.queue_id), None))
            self._listener.reached(self.queues)
        self.check_missing(tallies.values())
        self.note_behind()

    def check_missing(self, tallies: Iterable[QueueTally]) -> None:
        """Records of queues that have no directory."""
        known = self._topics()
        for tally in tallies:
            topic, queue_id = tally.topic, tally.queue_id
            name = self._reader.paths.consumequeue / topic / str(queue_id)
            if not tally.units or tally.topic_size > TOPIC_LENGTH_MAX:  # of 5.x: it has no queue here
                continue
            if (known is not None and topic not in known) or tally.max_phy_offset <= self._deletions.get(
                (topic, queue_id), 0
            ):
                self._findings.note(f"{topic}/{queue_id}: {tally.records} records of a deleted topic")
            elif self._may_lag:
                self.behind += tally.units
            else:
                self._findings.problem(
                    Code.MISSING, name, -1, f"the log has {tally.records} records but no queue is there"
                )

    def note_behind(self) -> None:
        if self.behind:
            self._findings.note(f"{self.behind} records have no unit yet: the next start makes them")

    def count(self) -> None:
        """Count queues and units only."""
        for queue in self._reader.queues():
            total = self._add_up(queue, None)
            self.units += total.stray + total.beyond + total.units
            self.queues += 1

    def _topics(self) -> set[str] | None:
        """The topics of topics.json, to distinguish a deleted topic from a lost queue; None if it cannot be read."""
        try:
            path = self._reader.paths.root / "config" / "topics.json"
            table = json.loads(path.read_bytes())["topicConfigTable"]
            return set(table) if isinstance(table, dict) else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    # --- one queue ---

    def check(self, queue: QueueDirectory, tally: QueueTally | None) -> None:
        """Compare a queue's files with its records in the log."""
        self.queues += 1
        total = self._add_up(queue, tally)
        if self._is_odd:
            self._name_files(queue)
        if self._has_rest and self._state.in_use_by is None:
            self._name_rest(queue)
        self.units += total.units + total.stray + total.beyond
        if tally is None:
            if total.stray:
                self._check_units(queue, None)
            return
        is_equal = total.units == tally.units and total.places_sum == tally.places_sum
        if not total.extended and queue.topic != SCHEDULE_TOPIC:
            is_equal = is_equal and total.units_sum == tally.units_sum
        has_more = total.beyond and self._state.in_use_by is None
        if not is_equal or total.stray or has_more or total.extended:
            self._check_units(queue, tally)

    def _name_files(self, queue: QueueDirectory) -> None:
        expected = -1
        for info in self._reader.files.entries(queue.path):
            path = queue.path / info.name
            if info.is_directory or not info.name.isdecimal() or info.size != self._file_size:
                text = f"has {info.size} bytes, other queue files {self._file_size}: Java brokers refuse the store"
                self._findings.problem(Code.QUEUE_FILES, path, -1, text)
            elif expected not in (-1, int(info.name)):
                self._findings.problem(Code.QUEUE_FILES, path, -1, f"the file at {expected} is missing before it")
            expected = int(info.name) + info.size if info.name.isdecimal() else -1

    def _add_up(self, queue: QueueDirectory, tally: QueueTally | None) -> Any:
        total = self._sum
        ffi.memmove(total, bytes(ffi.sizeof("rp_units")), ffi.sizeof("rp_units"))
        self._is_odd = self._has_rest = False
        first, end = (tally.first_offset, tally.units_end) if tally is not None else (NO_RECORDS, NO_RECORDS)
        try:
            self._add_files(queue.path, first, end)
        except StoreError as exc:
            self._findings.problem(Code.QUEUE_FILES, queue.path, -1, f"cannot be read: {exc}")
        return total

    def _add_files(self, directory: Path, first: int, end: int) -> None:
        """Add up the units of the queue's files. Raises: StoreError."""
        expected, goes_on = -1, True
        for info in self._reader.files.entries(directory):
            if len(info.name) != NAME_DIGITS or not (info.name.isascii() and info.name.isdecimal()):
                self._is_odd = True
                continue
            start = int(info.name)
            self._file_size = self._file_size or info.size
            if info.is_directory or info.size != self._file_size or expected not in (-1, start):
                self._is_odd = True
            expected = start + info.size
            if goes_on and not info.is_directory:
                goes_on = self._add_file(directory / info.name, start, first, end)

    def _add_file(self, path: Path, start: int, first: int, end: int) -> bool:
        """True: the file is full of units, or gone; the units go on in the next one. Raises: StoreError."""
        at, step = 0, READ_UNITS_MIN
        while True:
            try:
                data = self._reader.files.read(path, at * CQ_STORE_UNIT_SIZE, step * CQ_STORE_UNIT_SIZE)
            except StoreError as exc:
                if isinstance(exc.__cause__, FileNotFoundError):
                    return True  # deleted meanwhile
                raise
            count, offset = len(data) // CQ_STORE_UNIT_SIZE, start // CQ_STORE_UNIT_SIZE + at
            found = lib.rp_verify_units(ffi.from_buffer(data), count, offset, first, end, self._log.begin, self._sum)
            if found < count:
                self._has_rest |= any(data[found * CQ_STORE_UNIT_SIZE : count * CQ_STORE_UNIT_SIZE])
                return False
            if not count:
                return True
            at, step = at + count, min(step * 4, READ_UNITS_MAX)

    def _name_rest(self, queue: QueueDirectory) -> None:
        """Check that only zeros follow the last unit."""
        end = max((offset + 1 for offset, _ in self._reader.units(queue, blanks=True)), default=0)
        path, position = self._place(queue, end)
        self._findings.problem(Code.QUEUE_FILES, path, position, f"the units end at offset {end}, but not in zeros")

    def _place(self, queue: QueueDirectory, offset: int) -> tuple[Any, int]:
        position = offset * CQ_STORE_UNIT_SIZE
        for info in reversed(self._reader.queue_files(queue)):
            if int(info.name) <= position:
                return queue.path / info.name, position - int(info.name)
        return queue.path, position

    def _check_units(self, queue: QueueDirectory, tally: QueueTally | None) -> None:
        """The sums differ: find the wrong units."""
        found = matched = 0
        end = begin = -1
        for offset, unit in self._reader.units(queue):
            end = offset + 1
            begin = offset if begin < 0 else begin
            if unit.phy_offset < self._log.begin or (tally is None and self._state.in_use_by is not None):
                continue  # its record was deleted, or is newer than this check
            if tally is not None and offset >= tally.units_end and self._state.in_use_by is not None:
                continue
            text = self._check_unit(queue, offset, unit)
            matched += not text
            if text and found < PROBLEMS_PER_QUEUE:
                path, position = self._place(queue, offset)
                self._findings.problem(Code.UNIT, path, position, f"unit {offset} of {queue.name} {text}")
            found += bool(text)
        if found > PROBLEMS_PER_QUEUE:
            self._findings.problem(
                Code.UNIT, queue.path, -1, f"{found - PROBLEMS_PER_QUEUE} more units that do not fit"
            )
        missing = tally.units - matched - found if tally is not None else 0
        if tally is not None and begin > tally.first_offset and (queue.topic, queue.queue_id) in self._deletions:
            missing -= begin - tally.first_offset  # its topic was deleted, and created again
        if missing > 0 and self._may_lag:
            self.behind += missing
        elif missing > 0:
            text = f"ends at offset {end}, its records at {tally.next_offset}" if tally is not None else ""
            self._findings.problem(Code.MISSING, queue.path, -1, f"{text}: {missing} units are missing")

    def _check_unit(self, queue: QueueDirectory, offset: int, unit: ConsumeQueueUnit) -> str | None:
        names = f"names {unit.size} bytes at {unit.phy_offset}"
        if unit.phy_offset + unit.size > self._log.end:
            return f"{names}, past the log's end"
        try:
            record = self._reader.record_at(unit.phy_offset, self._log_files)
        except (RecordCorrupt, StoreError) as exc:
            return f"{names}: {exc}"
        if record is None:
            return f"{names}, where there is no record"
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        found = (record.topic, record.queue_id, record.queue_offset, record.size)
        wanted = (queue.topic, queue.queue_id, offset, unit.size)
        if found != wanted and not _is_dispatched_to(properties, queue, offset):
            return f"names the record {record.topic}/{record.queue_id}@{record.queue_offset} of {record.size} bytes"
        return self._check_tags(queue, record, properties, unit)

    def _check_tags(
        self, queue: QueueDirectory, record: StoredRecord, properties: dict[str, str], unit: ConsumeQueueUnit
    ) -> str | None:
        """The third field of a timer's unit is its time. That of a delay queue depends on messageDelayLevel, and is not
        checked."""
        code = unit.tags_code
        if is_ext_address(code):
            ext = self._reader.ext_unit(queue, unit)
            if ext is None:
                return f"has its extension unit at {real_offset(code)}, where there is none"
            if ext.store_timestamp_ms != record.store_timestamp_ms:
                return f"has an extension unit of store time {ext.store_timestamp_ms}, not {record.store_timestamp_ms}"
            code = ext.tags_code
        is_delayed = record.topic == SCHEDULE_TOPIC and DELAY in properties
        expected = tags_code(properties.get(TAGS))
        if record.topic == TIMER_TOPIC:
            expected = long_or(properties.get(TIMER_OUT_MS), expected)
        return None if is_delayed or code == expected else f"has the tags code {code}, expected {expected}"


def _is_dispatched_to(properties: dict[str, str], queue: QueueDirectory, offset: int) -> bool:
    """Return True if the record has a unit in this queue by multi-dispatch: its properties name such queues and
    offsets."""
    names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    return any(name == queue.topic and at == str(offset) for name, at in zip(names, offsets, strict=False))
