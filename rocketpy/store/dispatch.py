"""Dispatch (csrc/store/dispatch/dispatch.c) from Python: in the store worker, in recovery, and at a clean stop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.config.setting import c_fields
from rocketpy.errors import DiskFull, StoreError
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from .control_block import ControlBlock, fail
from .files import StorePaths
from .formats.unit import parse_delay_levels, rounded_file_size

# Descriptors for consume queue files; the kernel's limit may make it fewer. With more queues in turn than this, files
# are opened anew in each batch; dispatch then takes more units of each queue at once
# (csrc/store/dispatch/unit_batch.c).
FILES_MAX = 16_384
BUDGET = 64 << 20  # bytes of log per call


@attrs.frozen
class DispatchCounts:
    records: int
    units: int
    keys: int
    unplaced: int
    plain: int
    resets: int
    cut_short: int  # records with more keys than the index takes


class Dispatch:
    """One per store at a time. `run*` belong to one thread, `sync` to any."""

    def __init__(self, config: MessageStoreConfig, control: ControlBlock, filter_marks: Any = None) -> None:
        """`filter_marks`: rp_filter_marks *; without them no filter bits are written."""
        paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        levels = parse_delay_levels(config.message_delay_level)
        keep = [ffi.new("char[]", os.fsencode(path)) for path in (paths.commitlog, paths.consumequeue, paths.index)]
        self._delays = ffi.new("int64_t[]", levels or [0])  # dispatch reads them
        parameters = ffi.new("rp_dispatch_config *", c_fields("rp_dispatch_config", config))
        parameters.commitlog_directory, parameters.consume_queue_directory, parameters.index_directory = keep
        parameters.consume_queue_file_size = rounded_file_size(config.mapped_file_size_consume_queue)
        parameters.consume_queue_files_max = FILES_MAX
        parameters.delay_level_count = len(levels)
        parameters.delay_level_ms = self._delays
        parameters.filter_marks = filter_marks or ffi.NULL
        self.control = control
        self.handle: Any = lib.rp_dispatch_open(control.block, parameters)
        if self.handle == ffi.NULL:
            raise fail(f"cannot dispatch into {paths.root}")
        self._syncing = threading.Lock()  # one sync at a time

    def close(self) -> None:
        if self.handle != ffi.NULL:
            lib.rp_dispatch_close(self.handle)
            self.handle = ffi.NULL

    def run_to_end(self, progress: Callable[[int], None] | None = None) -> int:
        """Dispatch everything that is published. Returns the number of damaged bytes that were skipped.

        Args:
            progress: called from time to time with the dispatched position.
        Raises:
            DiskFull, StoreError: units cannot be written.
        """
        skipped = 0
        while True:
            status = lib.rp_dispatch_run(self.handle, BUDGET)
            if progress is not None:
                progress(self.control.dispatched_phy_offset)
            if status == Status.EMPTY:
                return skipped
            if status in (Status.CORRUPT, Status.NOT_FOUND):
                skipped += lib.rp_dispatch_skip(self.handle)
            elif status != Status.OK:
                kind = DiskFull if status == Status.NO_SPACE else StoreError
                raise kind(f"cannot write consume queues or index: {fail('dispatch', status)}")

    def take_filter(self, record: bytes) -> None:
        """Take a FILTER message of the manager, on the thread that runs dispatch."""
        status = lib.rp_dispatch_take_filter(self.handle, ffi.from_buffer("uint8_t[]", record), len(record))
        if status:
            raise fail("cannot keep a filter: its messages get no filter bits", status)

    def filters_are_whole(self) -> None:
        """The manager has told all filters: write filter bits."""
        lib.rp_dispatch_filters_are_whole(self.handle)

    def skip(self) -> int:
        """Continue after damage; returns the number of skipped bytes."""
        return int(lib.rp_dispatch_skip(self.handle))

    def drop_queue(self, entry: Any) -> None:
        """Remove a queue's units; the entry starts at 0 again."""
        status = lib.rp_dispatch_drop_queue(self.handle, entry)
        if status:
            raise fail("cannot remove a consume queue", status)

    def expire_queue(self, entry: Any) -> None:
        """Remove the files of a queue whose records were all deleted from the log; its offsets continue."""
        status = lib.rp_dispatch_expire_queue(self.handle, entry)
        if status:
            raise fail("cannot remove a consume queue", status)

    def release_files(self) -> None:
        """Close removed queue files, so that their disk space becomes free; called about once a second."""
        lib.rp_dispatch_release(self.handle)

    def sync(self, *, with_index: bool = False) -> None:
        """Sync units. `with_index`: also the whole index; only on the thread that runs dispatch."""
        with self._syncing:
            status = lib.rp_dispatch_sync(self.handle)
            if status == Status.OK and with_index:
                status = lib.rp_dispatch_sync_index(self.handle)
        if self.control.header.units_lost:
            raise StoreError(
                "consume queues or index could not be flushed and may be incomplete on the disk: no more log files are "
                "deleted; repair the disk and restart the broker, which rebuilds them"
            )
        if status:
            raise fail("cannot flush consume queues", status)

    def counts(self) -> DispatchCounts:
        counts = ffi.new("rp_dispatch_counts *")
        lib.rp_dispatch_read_counts(self.handle, counts)
        return DispatchCounts(
            counts.records, counts.units, counts.keys, counts.unplaced, counts.plain, counts.resets, counts.cut_short
        )


def sync_units(dispatch: Dispatch) -> None:
    """Sync units, and set the checkpoint's time of consume queues to the store time of the last dispatched record. A
    later time would be wrong: recovery without a control block would not look for units of later records."""
    header = dispatch.control.header
    timestamp_ms = int(header.dispatched_timestamp_ms)
    dispatch.sync()
    if timestamp_ms > 0:
        header.logics_timestamp_ms = timestamp_ms
