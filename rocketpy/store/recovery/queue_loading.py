"""Loads consume queues from their files, when the control block cannot be used; keeps the deletions that it knew.

A queue is valid up to its first unit that is empty or points to a record at or after `phy_limit`. The rest is filled
with zeros, so that old bytes never become units again. A queue with only pre-blank units, and an empty last file, would
mislead a Java broker: such files are removed.

Deletions of topics outlive a control block whose positions are discarded (docs/adr/0121).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import attrs

from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock
from ..files import Files, file_name, numbered_files
from ..formats.consume_queue_ext import remove_ext_files
from ..formats.unit import CQ_STORE_UNIT_SIZE, first_unit_at

READ_UNITS_MIN, READ_UNITS_MAX = 200, 12_800  # per read; the file of a small queue is mostly a hole
FILES_LOOKED_AT = 3  # from the end, as in the reference; more if their first unit is behind the limit


@attrs.frozen
class LoadedQueue:
    """The state of a queue according to its files."""

    min_offset: int
    max_offset: int
    max_phy_offset: int


@attrs.frozen
class _Sound:
    """The valid units at the start of a file."""

    count: int
    max_phy_offset: int


class QueueFiles:
    """The files of one queue."""

    def __init__(self, files: Files, directory: Path, file_size: int) -> None:
        self._files = files
        self._directory = directory
        self._file_size = file_size
        self.units_per_file = file_size // CQ_STORE_UNIT_SIZE
        self.starts = numbered_files(files, directory, file_size)

    def load(self, phy_limit: int, log_min_phy_offset: int) -> LoadedQueue | None:
        """Find the end, fill the rest with zeros, find the beginning. Returns None if no unit is valid; then all files
        are removed."""
        max_offset, max_phy_offset = self._find_end(phy_limit)
        if max_phy_offset == 0:
            self._remove_files(0)
            return None
        self._cut(max_offset)
        self._remove_front()
        return LoadedQueue(self._find_begin(max_offset, log_min_phy_offset), max_offset, max_phy_offset)

    def _sound(self, start: int, phy_limit: int) -> _Sound:
        path = self._directory / file_name(start)
        last = ffi.new("uint64_t *")
        total = max_phy_offset = 0
        step = READ_UNITS_MIN
        while total < self.units_per_file:
            data = self._files.read(path, total * CQ_STORE_UNIT_SIZE, step * CQ_STORE_UNIT_SIZE)
            count = lib.rp_recovery_count_units(ffi.from_buffer(data), len(data), phy_limit, last)
            total += count
            max_phy_offset = max(max_phy_offset, last[0])
            if count < step:
                break
            step = min(step * 4, READ_UNITS_MAX)
        return _Sound(total, max_phy_offset)

    def _find_end(self, phy_limit: int) -> tuple[int, int]:
        """(offset after the last valid unit, end of its record); (0, 0) if there is none."""
        at = max(0, len(self.starts) - FILES_LOOKED_AT)
        while at > 0 and not self._sound(self.starts[at], phy_limit).max_phy_offset:
            at -= 1
        max_offset = max_phy_offset = 0
        for start in self.starts[at:]:
            sound = self._sound(start, phy_limit)
            if sound.max_phy_offset:  # else only pre-blank units, of messages that were damaged
                max_offset = start // CQ_STORE_UNIT_SIZE + sound.count
                max_phy_offset = max(max_phy_offset, sound.max_phy_offset)
            if sound.count < self.units_per_file:
                break
        return max_offset, max_phy_offset

    def _cut(self, max_offset: int) -> None:
        end = max_offset * CQ_STORE_UNIT_SIZE
        self._remove_files(end)
        last = self.starts[-1]
        path = self._directory / file_name(last)
        if not self._files.is_zero(path, end - last):
            self._files.wipe(path, end - last)

    def _remove_front(self) -> None:
        """Remove files before a missing one: cleaning was removing them when the broker ended. Nothing reads over such
        a gap, and a Java broker would use later files in place of the missing one."""
        at = len(self.starts) - 1
        while at > 0 and self.starts[at - 1] == self.starts[at] - self._file_size:
            at -= 1
        self._remove(self.starts[:at])

    def _remove_files(self, from_position: int) -> None:
        self._remove([start for start in self.starts if start >= from_position])

    def _remove(self, gone: list[int]) -> None:
        for start in gone:
            self._files.remove(self._directory / file_name(start))
            self.starts.remove(start)
        if not self.starts:
            self._files.remove(self._directory)
            self._files.sync_directory(self._directory.parent)
        elif gone:
            self._files.sync_directory(self._directory)  # else their units may come back after new ones

    def _read(self, offset: int, count: int) -> bytes:
        """Units of one file."""
        position = offset * CQ_STORE_UNIT_SIZE
        path = self._directory / file_name(position - position % self._file_size)
        return self._files.read(path, position % self._file_size, count * CQ_STORE_UNIT_SIZE)

    def _find_begin(self, max_offset: int, log_min_phy_offset: int) -> int:
        """The first unit whose record is still in the log; units are in the order of the log."""
        return first_unit_at(self._read, self.starts[0] // CQ_STORE_UNIT_SIZE, max_offset, log_min_phy_offset)


def load_queues(
    files: Files, directory: Path, file_size: int, control: ControlBlock, *, phy_limit: int, log_min_phy_offset: int
) -> int:
    """Add every queue below `directory` to the (empty) control block. Returns the end of the last record that has its
    unit, over all queues.

    Raises:
        StoreError: a file has a wrong size, or an unexpected name.
    """
    reached = 0
    for topic in files.entries(directory):
        if not topic.is_directory:
            continue
        for queue in files.entries(directory / topic.name):
            if not (queue.is_directory and queue.name.isdecimal() and queue.name.isascii()):
                continue
            loaded = QueueFiles(files, directory / topic.name / queue.name, file_size).load(
                phy_limit, log_min_phy_offset
            )
            if loaded is None:
                remove_ext_files(files, directory.with_name(f"{directory.name}_ext") / topic.name / queue.name)
                continue
            entry = control.add_queue(os.fsencode(topic.name), int(queue.name))
            entry.min_offset, entry.max_offset = loaded.min_offset, loaded.max_offset
            entry.next_offset, entry.max_phy_offset = loaded.max_offset, loaded.max_phy_offset
            reached = max(reached, loaded.max_phy_offset)
    return reached


@attrs.frozen
class DeletedQueue:
    """A queue with units that went with their topic. It may have newer ones: the topic was created again."""

    topic: bytes
    queue_id: int
    state: int
    deleted_below: int
    max_offset: int  # 0: it has newer units
    max_phy_offset: int


def read_deleted(control: ControlBlock) -> list[DeletedQueue]:
    """The deletions that a block knows."""
    return [
        DeletedQueue(
            control.topic_of(entry),
            entry.queue_id,
            entry.state,
            entry.deleted_below,
            entry.max_offset if lib.rp_control_is_deleted(entry) else 0,
            entry.max_phy_offset,
        )
        for entry in control.entries()
        if entry.deleted_below and control.topic_of(entry)
    ]


def restore_deleted(control: ControlBlock, deleted: Iterable[DeletedQueue], log_end: int) -> None:
    """Enter the deletions into a block that was loaded from the files. A queue without units goes on at its offsets,
    and dispatch passes over its records.

    Args:
        log_end: of the log; nothing that is stored later is deleted.
    """
    for queue in deleted:
        entry = control.add_queue(queue.topic, queue.queue_id)
        entry.deleted_below = min(queue.deleted_below, log_end)
        if queue.max_offset and not entry.max_offset:
            entry.state = queue.state
            entry.min_offset = entry.max_offset = entry.next_offset = queue.max_offset
            entry.max_phy_offset = min(queue.max_phy_offset, log_end)
