"""The files of the log at recovery: which of them are the log, where a scan starts, and where the log is cut.

A file may be missing between others, because its name never reached the disk. The files on each side of such a gap are
a run; one run becomes the log. Single-threaded, under the store's lock.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import attrs

from rocketpy.errors import StoreError
from rocketpy.message.record import RECORD_HEAD_MAX, store_timestamp_of
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, fail
from ..files import Files, file_name, numbered_files

logger = logging.getLogger(__name__)

FILES_SCANNED = 3  # from the end, after a clean stop: two of them may be pre-allocated
NOTHING_MISSING = (1 << 64) - 1
SCAN_STEP = 128 << 20  # bytes between two progress reports
PROGRESS_INTERVAL_S = 1.0


class Progress:
    """Logs the progress of a step that may take minutes, once a second."""

    def __init__(self, what: str, start: int, end: int) -> None:
        self._what = what
        self._start = start
        self._end = end
        self._began_s = self._said_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def __call__(self, at: int) -> None:
        now = time.monotonic()
        if now - self._said_s < PROGRESS_INTERVAL_S:
            return
        self._said_s = now
        done, total = (at - self._start) >> 20, max(self._end - self._start, at - self._start) >> 20
        logger.info("progress of %s: %d of %d MiB, %.0f MiB/s", self._what, done, total, done / (now - self._began_s))


@attrs.frozen
class Scan:
    """Result of a scan of the log. Offsets are bytes of the log."""

    end: int  # of the last complete record
    records: int
    missing: int  # where the first record without its unit begins; else NOTHING_MISSING
    gap: int  # where the first record begins whose queue lacks units before its own; else NOTHING_MISSING
    last_store_timestamp_ms: int


@attrs.frozen
class Durable:
    """The records that are certainly complete on the disk after a power failure."""

    phy_offset: int  # records below it
    before_ms: int  # records stored before it


class LogFiles:
    """The files in the directory of the log; `scan_s` counts the seconds of all scans.

    Raises:
        StoreError: a file name is not a multiple of the file size.
    """

    def __init__(self, directory: Path, files: Files, file_size: int) -> None:
        self._directory = directory
        self._files = files
        self._file_size = file_size
        self._runs = _runs(numbered_files(files, directory, file_size), file_size)
        self._starts = self._runs[-1] if self._runs else []  # the files of the log, without gap
        self.scan_s = 0.0

    def take_run(self, phy_offset: int) -> bool:
        """Use the run of files that contains the offset as the log; the offset may also be where its next file would
        begin (without files: 0 only)."""
        for run in reversed(self._runs):
            if run[0] <= phy_offset <= run[-1] + self._file_size:
                self._starts = run
                return True
        return not self._runs and phy_offset == 0

    def take_flushed_run(self, flushed_ms: int) -> None:
        """Use the newest run of files whose first record was stored by `flushed_ms`, thus certainly flushed, as the
        log; if there is none, the oldest run."""
        for run in reversed(self._runs):
            self._starts = run
            if 0 < self._first_record(run[0]) <= flushed_ms:
                return

    def begin(self, default: int) -> int:
        return self._starts[0] if self._starts else default

    def first_store_timestamp_ms(self, phy_offset: int) -> int:
        """Store time of the first record of the file that contains the offset; 0 if there is none."""
        return self._first_record(phy_offset - phy_offset % self._file_size)

    def start_after_clean_exit(self) -> int:
        """The third-last file, or an earlier one if all later files are empty."""
        if not self._starts:
            return 0
        at = max(0, len(self._starts) - FILES_SCANNED)
        while at > 0 and not self._first_record(self._starts[at]):
            at -= 1
        return self._starts[at]

    def newest_stored_by(self, limit_ms: int) -> int:
        """The newest file whose first record was stored by `limit_ms`; else the first file."""
        for start in reversed(self._starts):
            if 0 < self._first_record(start) <= limit_ms:
                return start
        return self.begin(0)

    def scan(
        self, start: int, *, flags: int = 0, durable: Durable | None = None, queues: ControlBlock | None = None
    ) -> Scan:
        """Scan the records from `start` to their end; with `durable`, to the first that may be torn. Only with
        `queues`, their block, units that are missing are found."""
        step = ffi.new("rp_log_scan *")
        known = ffi.new("rp_log_durable *", attrs.astuple(durable)) if durable else ffi.NULL
        block = queues.block if queues is not None else ffi.NULL
        directory = os.fsencode(self._directory)
        progress = Progress("scanning the log", start, self._starts[-1] + self._file_size if self._starts else start)
        found = Scan(start, 0, NOTHING_MISSING, NOTHING_MISSING, 0)
        limit = start
        while found.end >= limit:
            limit = found.end + SCAN_STEP
            status = lib.rp_recovery_scan_log(directory, self._file_size, found.end, limit, flags, known, block, step)
            if status:
                raise fail(f"cannot read the log in {self._directory}", status)
            found = Scan(
                step.end,
                found.records + step.records,
                min(found.missing, step.missing),
                min(found.gap, step.gap),
                step.last_store_timestamp_ms or found.last_store_timestamp_ms,
            )
            progress(found.end)
        self.scan_s += progress.elapsed_s
        return found

    def is_boundary(self, phy_offset: int) -> bool:
        """Return True if a record, or a file, ends there. The file is scanned from its beginning."""
        step = ffi.new("rp_log_scan *")
        start = phy_offset - phy_offset % self._file_size
        directory = os.fsencode(self._directory)
        status = lib.rp_recovery_scan_log(directory, self._file_size, start, phy_offset, 0, ffi.NULL, ffi.NULL, step)
        if status:
            raise fail(f"cannot read the log in {self._directory}", status)
        return bool(step.end == phy_offset)

    def cut(self, end: int) -> None:
        """Cut the log at `end`: remove files that begin there or later, and fill the rest of the last one with zeros.

        The last file stays, empty, if it begins at `end` and is the only one: its name alone says where the log ends.
        """
        files = [start for run in self._runs for start in run]
        kept = [start for start in files if start < end] or [start for start in files if start == end]
        for start in files:
            if start not in kept:
                self._files.remove(self._directory / file_name(start))
        self._files.sync_directory(self._directory)  # else they may come back after new records
        self._starts = [start for start in self._starts if start in kept]
        if self._starts:
            path = self._directory / file_name(self._starts[-1])
            if not self._files.is_zero(path, end - self._starts[-1]):
                self._files.wipe(path, end - self._starts[-1])

    def _first_record(self, start: int) -> int:
        """Store time (ms) of the first record of a file of the log; 0 if there is none."""
        if start not in self._starts:
            return 0
        head = self._files.read(self._directory / file_name(start), 0, RECORD_HEAD_MAX)
        return store_timestamp_of(head) or 0


def _runs(starts: list[int], file_size: int) -> list[list[int]]:
    """The files, split where one is missing.

    Raises:
        StoreError: a file name is not a multiple of the file size.
    """
    runs: list[list[int]] = []
    for start in starts:
        if start % file_size:
            raise StoreError(f"CommitLog file {file_name(start)} does not begin at a multiple of {file_size} bytes")
        if not runs or start != runs[-1][-1] + file_size:
            runs.append([])
        runs[-1].append(start)
    return runs
