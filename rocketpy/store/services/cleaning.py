"""Deletes expired files: log files by age, hour and disk usage; then the units and index files of their records.

A file's age is that of its last write. The active log file, every queue's last file and the newest index file always
stay, so that offsets continue. Positions move before files are removed: a read below min_phy_offset is refused, and a
process that has a file mapped keeps it until it unmaps it.
"""

from __future__ import annotations

import datetime
import enum
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError

from ..control_block import ControlBlock, RunningFlag, RunningFlags
from ..files import Files, StorePaths, disk_ratio, file_name
from ..formats.index_file import index_files, read_header
from ..timers import TimerMarks
from .queue_trim import QueueTrim
from .threads import StoreThreads

logger = logging.getLogger(__name__)

FILES_PER_RUN = 10
MANUAL_RUNS = 20  # cleaning rounds per request (code 329)
HOUR_MS = 3_600_000


class DiskNeed(enum.IntEnum):
    """The action that the free space of a disk calls for; each value includes the actions before it."""

    NOTHING = 0
    EXPIRED = 1  # delete expired files, independent of deleteWhen
    AT_ONCE = 2  # delete files of any age, if cleanFileForciblyEnable allows
    REFUSE = 3  # and refuse messages


@attrs.frozen(eq=False)
class LogNeeds:
    """The parts of the log that must stay although they have expired: slaves still copy them, and pending timers are
    delivered from them."""

    of_slaves: Callable[[], int | None] = lambda: None
    """The first position that a connected slave still needs; None: no slave needs any."""
    timers: TimerMarks | None = None

    def of_timers(self, expired_end: int) -> int:
        """From where on the log is held by pending timers. Those before `expired_end`, the end of the expired files,
        are stored again, so that the next rounds can delete these files."""
        if self.timers is None:
            return expired_end
        held = self.timers.held_phy_offset
        if held < expired_end:
            self.timers.renew(expired_end)
        return held


NOTHING_NEEDED = LogNeeds()


class Cleaner:
    """One per store worker, for one thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        control: ControlBlock,
        files: Files,
        now_ms: Callable[[], int],
        threads: StoreThreads,
        needs: LogNeeds = NOTHING_NEEDED,
    ) -> None:
        """A pause of `threads` between two deletions spares the disk."""
        self.config = config  # replaced when settings change
        self._control = control
        self._flags = RunningFlags(control)
        self._files = files
        self._now_ms = now_ms
        self._threads = threads
        self._needs = needs
        self._paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._trim = QueueTrim(config, control, files)
        self._unfinished: dict[int, Any] = {}  # by index: queues with files that could not be removed
        self._requests_seen = int(control.header.delete_requests)
        self._manual_runs = 0
        self._cleaned_below = 0  # no queue has units of records below this log offset

    def close(self) -> None:
        self._trim.close()

    # --- when ---

    def check_disk(self) -> DiskNeed:
        """Check both partitions, set or clear the disk-full flag, and return what must be deleted.

        Sends are refused above the warning level, and accepted again when both partitions are at or below the forcible
        level. Between the two, files are deleted, but the flag stays unchanged.
        """
        need = max(map(self._partition_need, {self._paths.commitlog, self._paths.consumequeue}))
        if need is DiskNeed.REFUSE:
            if self._flags.put(RunningFlag.DISK_FULL, True):
                logger.warning("the disk of %s is full: refusing messages; free space on it", self._paths.root)
        elif need is not DiskNeed.AT_ONCE and self._flags.put(RunningFlag.DISK_FULL, False):
            logger.info("the disk of %s has free space again: accepting messages", self._paths.root)
        return need

    def _partition_need(self, path: Path) -> DiskNeed:
        ratio = disk_ratio(self._files, path)
        usage = self._files.usage(path)
        if usage is not None and usage.usable < self.config.disk_free_min_bytes:
            return DiskNeed.REFUSE
        if ratio > self.config.disk_space_warning_level_ratio / 100:
            return DiskNeed.REFUSE
        if ratio > self.config.disk_space_clean_forcibly_ratio / 100:
            return DiskNeed.AT_ONCE
        is_full = ratio < 0 or ratio > min(max(self.config.disk_max_used_space_ratio, 10), 95) / 100
        return DiskNeed.EXPIRED if is_full else DiskNeed.NOTHING

    def _is_hour(self) -> bool:
        hour = datetime.datetime.fromtimestamp(self._now_ms() / 1000).hour
        hours = (piece.strip() for piece in self.config.delete_when.split(";"))
        return any(piece.isdecimal() and int(piece) == hour for piece in hours)

    @property
    def is_asked(self) -> bool:
        """Return True if a deletion was requested (code 329) and no round has been run since."""
        return int(self._control.header.delete_requests) != self._requests_seen

    def _is_by_hand(self) -> bool:
        requests = int(self._control.header.delete_requests)
        if requests != self._requests_seen:
            self._requests_seen, self._manual_runs = requests, MANUAL_RUNS
        self._manual_runs -= self._manual_runs > 0
        return self._manual_runs > 0

    # --- what ---

    def clean(self, *, lacks_room: bool = False) -> int:
        """One round. Returns the number of deleted log files. `lacks_room`: there was no space for the next log
        file."""
        need = self.check_disk()
        at_once = lacks_room or need >= DiskNeed.AT_ONCE
        by_hand, is_hour = self._is_by_hand(), self._is_hour()
        deleted = 0
        with self._threads.faults.kept("cannot delete log files"):
            if at_once or need is DiskNeed.EXPIRED or by_hand or is_hour:
                # A slave must not stop the master, also while the disk is on its way down from the warning level.
                must_go = lacks_room or RunningFlag.DISK_FULL in self._flags
                deleted = self._clean_log(at_once and self.config.clean_file_forcibly_enable, spare_slaves=not must_go)
        log_min = self._control.min_phy_offset
        self._trim.release_files()
        unfinished, self._unfinished = self._unfinished, {}
        for entry in unfinished.values():
            self._try(entry, self._trim.remove_front)
        if log_min > self._cleaned_below:
            self._clean_queues(log_min)
            self._clean_index(log_min)
            self._cleaned_below = log_min
        return deleted

    def _clean_log(self, at_once: bool, *, spare_slaves: bool) -> int:
        size = self.config.mapped_file_size_commit_log
        header = self._control.header
        # Never delete records that are not on the disk with their units: after a power failure units are rebuilt from
        # the log, and without the records queue offsets would restart at 0. Never delete the active file.
        done = min(
            header.published_phy_offset,
            header.durable_phy_offset,
            header.dispatched_phy_offset,
            header.units_durable_phy_offset,
        )
        if spare_slaves and (needed := self._needs.of_slaves()) is not None:
            done = min(done, needed)
        expired = self._expired_files(done, at_once)
        held = self._needs.of_timers(expired[-1] + size if expired else 0)
        for count, start in enumerate(expired):
            if start + size > held:
                return count
            if count:
                self._threads.pause(self.config.delete_commit_log_files_interval / 1000)
            header.min_phy_offset = max(header.min_phy_offset, start + size)
            self._files.remove(self._paths.commitlog / file_name(start))
            # One by one: after a power failure some may come back, but without a gap.
            self._files.sync_directory(self._paths.commitlog)
        return len(expired)

    def _expired_files(self, done: int, at_once: bool) -> list[int]:
        """Starts of the first files that end before `done` and may be deleted, at most FILES_PER_RUN. The last one
        stays, also if the log ends with it: its name says where the log goes on."""
        size, expired = self.config.mapped_file_size_commit_log, list[int]()
        done = min(done, int(self._control.header.published_phy_offset) - 1)
        for start in self._log_files(size):
            info = self._files.info(self._paths.commitlog / file_name(start))
            if start + size > done or len(expired) == FILES_PER_RUN or info is None:
                break
            if not at_once and self._now_ms() < info.mtime_ms + self.config.file_reserved_time * HOUR_MS:
                break
            expired.append(start)
        return expired

    def _log_files(self, size: int) -> list[int]:
        """Starts of the log's files. Unexpected files stay: the next start will refuse them."""
        infos = self._files.entries(self._paths.commitlog)
        return [int(info.name) for info in infos if info.name.isdecimal() and info.name.isascii() and info.size == size]

    def _clean_queues(self, log_min: int) -> None:
        for entry in self._control.entries():
            self._try(entry, lambda entry: self._trim.trim(entry, log_min))

    def _try(self, entry: Any, remove: Callable[[Any], bool]) -> None:
        try:
            with self._threads.queue_lock:
                removed = remove(entry)
        except (StoreError, OSError) as exc:
            self._unfinished[self._control.index_of(entry)] = entry
            self._threads.faults.report("cannot remove files of a consume queue", exc)
            return
        if removed:
            self._threads.pause(self.config.delete_consume_queue_files_interval / 1000)

    def _clean_index(self, log_min: int) -> None:
        for path in index_files(self._files, self._paths.index)[:-1]:
            header = read_header(self._files, path)
            if header is not None and header.end_phy_offset >= log_min:
                return
            self._files.remove(path)
