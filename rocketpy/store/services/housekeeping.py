"""The thread that keeps room in the store: it creates log files ahead, checks the disks, and deletes expired files.

The next CommitLog file is created before the writer needs it. At most one empty file is ahead (the reference allows
two, and finds a wrong end of the log with three). If this is too late, the writer creates the file itself. Both work
together, because a file appears complete or not at all.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import DiskFull, StoreError
from rocketpy.native import Status
from rocketpy.native.core import lib

from ..control_block import ControlBlock, fail
from ..files import Files, StorePaths
from .cleaning import Cleaner, DiskNeed, LogNeeds
from .intervals import HousekeepingIntervals
from .threads import LogGrowth

logger = logging.getLogger(__name__)

ALLOCATE_INTERVAL_S = 0.5
ALLOCATE_AT_PERCENT = 60  # of the active file


def allocate_ahead(control: ControlBlock, directory: Path, *, is_slave: bool = False) -> int | None:
    """If the active file is mostly full, create the next one. Returns its start, or None.

    Args:
        is_slave: an empty log gets no file yet: it begins where that of the master does.
    Raises:
        DiskFull: no room for another file.
        StoreError: it cannot be created for another reason.
    """
    size = int(control.header.commitlog_file_size)
    published = control.published_phy_offset
    used = published % size
    if published == 0 and is_slave:
        return None
    if published and used * 100 <= size * ALLOCATE_AT_PERCENT:
        return None
    start = published - used + (size if used else 0)
    status = lib.rp_mapped_file_create(os.fsencode(directory), start, size)
    if status:
        kind = DiskFull if status == Status.NO_SPACE else StoreError
        raise kind(str(fail(f"cannot create the next file in {directory}", status)))
    return start


class Housekeeping:
    """`run` is the main function of a thread; it returns when `stop` of the threads is set."""

    def __init__(
        self,
        config: MessageStoreConfig,
        control: ControlBlock,
        files: Files,
        now_ms: Callable[[], int],
        growth: LogGrowth,
        needs: LogNeeds,
    ) -> None:
        self.config = config  # replaced when settings change
        self._control = control
        self._files = files
        self._now_ms = now_ms
        self._growth, self._bell = growth, growth.bell()
        self._needs = needs
        self._commitlog = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log).commitlog

    def run(self) -> None:
        """Keep room until stopped. A step that fails is logged, and tried again."""
        threads, has_room = self._growth.threads, False
        faults = threads.faults
        cleaner = Cleaner(self.config, self._control, self._files, self._now_ms, threads, self._needs)
        intervals = HousekeepingIntervals.of(self.config, time.monotonic())
        is_full = False
        lib.rp_priority_lower()
        try:
            while True:
                rest_s = intervals.rest_s(time.monotonic()) if has_room and not is_full else 0.0
                if self._growth.pause(self._bell, ALLOCATE_INTERVAL_S, rest_s):
                    return
                is_full = self._allocate(is_full)
                now_s = time.monotonic()
                cleaner.config = self.config
                with faults.kept("cannot check the free disk space"):
                    if intervals.is_check_due(now_s):
                        has_room = cleaner.check_disk() < DiskNeed.AT_ONCE
                with faults.kept("cannot delete old files"):
                    if intervals.is_clean_due(now_s, is_asked=cleaner.is_asked):
                        cleaner.clean(lacks_room=is_full)
        finally:
            cleaner.close()

    def _allocate(self, was_full: bool) -> bool:
        """Create the next log file ahead. Returns whether the disk is full, which is logged once."""
        with self._growth.threads.faults.kept("cannot create the next CommitLog file"):
            try:
                allocate_ahead(self._control, self._commitlog, is_slave=self.config.is_slave)
            except DiskFull as exc:
                if not was_full:
                    logger.error("store: %s", exc)
                return True
        return False
