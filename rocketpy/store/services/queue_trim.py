"""Removes units at the front of a consume queue: those of records that were deleted from the log or with their topic.
First min_offset moves, then files before it are removed; the last file always stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib

from ..control_block import ControlBlock
from ..files import Files, StorePaths, file_name
from ..formats.consume_queue_ext import is_ext_address, real_offset, remove_ext_files
from ..formats.unit import BLANK_SIZE, first_unit_at, rounded_file_size
from ..reading.consume_queue import ConsumeQueues


class QueueTrim:
    """Not thread-safe. The caller holds the lock of queues (`StoreService`)."""

    def __init__(self, config: MessageStoreConfig, control: ControlBlock, files: Files) -> None:
        self._control = control
        self._files = files
        self._paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._queues = ConsumeQueues(
            self._paths.consumequeue,
            control,
            rounded_file_size(config.mapped_file_size_consume_queue),
            files,
            config.mapped_file_size_consume_queue_ext,
        )

    def close(self) -> None:
        self._queues.close()

    def release_files(self) -> None:
        """Close removed files; called from time to time."""
        self._queues.release_files()

    def trim(self, entry: Any, below: int) -> bool:
        """Remove units of records below a log offset. Returns whether files were removed.

        Raises:
            StoreError: a file cannot be removed. Its units are hidden already; `remove_front` tries again.
        """
        generation, before = entry.generation, entry.min_offset
        first = self._first_kept(entry, below)
        # Dispatch may restart the queue at any time: then its minimum and its files are not those that we read.
        if first == before or not lib.rp_control_move_min(entry, before, first):
            return False
        return self._remove_front(entry, first, generation)

    def remove_front(self, entry: Any) -> bool:
        """Remove files before min_offset that an earlier call could not remove. Returns, raises: as `trim`."""
        return self._remove_front(entry, int(entry.min_offset), entry.generation)

    def _remove_front(self, entry: Any, first: int, generation: int) -> bool:
        place = Path(os.fsdecode(self._control.topic_of(entry)), str(entry.queue_id))
        directory = self._paths.consumequeue / place
        # The last file stays, even if none of its units is needed.
        keep_from = min(first, max(0, entry.max_offset - 1)) // self._queues.units_per_file * self._queues.file_size
        starts = [start for start, _ in self._queues.file_times(entry) if start < keep_from]
        for start in starts:
            if entry.generation != generation:
                return False
            self._files.remove(directory / file_name(start))
        unit = self._queues.unit(entry, first)
        if entry.generation != generation or unit is None or not is_ext_address(unit.tags_code):
            return bool(starts)
        removed = remove_ext_files(self._files, self._paths.consumequeue_ext / place, real_offset(unit.tags_code))
        return bool(starts) or removed > 0

    def _first_kept(self, entry: Any, below: int) -> int:
        """First offset whose record is at or after `below`; max_offset if there is none."""
        low, high = int(entry.min_offset), int(entry.max_offset)
        unit = self._queues.unit(entry, low)
        if unit is None or (unit.phy_offset >= below and unit.size != BLANK_SIZE):
            return low
        return first_unit_at(lambda offset, count: self._queues.raw_units(entry, offset, count), low, high, below)
