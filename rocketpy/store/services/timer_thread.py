"""The timer thread of the store worker (csrc/store/timers/timers.h): one C call, which returns now and then."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rocketpy.config import MessageStoreConfig
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, fail
from ..files import StorePaths
from ..formats.unit import rounded_file_size
from ..timers import TimerMarks
from .threads import StoreThreads

TURN_NS = 60_000_000_000
RETRY_S = 0.2
SYNC_INTERVAL_S = 5.0


class TimerThread:
    """`run` and `keep_synced` are the main functions of two threads; both return when `stop` of `threads` is set and
    `stop()` was called. `handle`: dispatch wakes it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        control: ControlBlock,
        marks: TimerMarks,
        worker: Any,
        ring: Any,
        threads: StoreThreads,
    ) -> None:
        paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        names = [os.fsencode(path) for path in (paths.timer / "runs", paths.commitlog, paths.consumequeue)]
        strings = [ffi.new("char[]", name) for name in names]
        self._kept = control, marks
        self._faults = threads.faults
        self._stop = threads.stop
        self.handle: Any = lib.rp_timers_open(
            ffi.new(
                "rp_timers_config *",
                {
                    "block": control.block,
                    "marks": marks.pointer,
                    "worker": worker,
                    "directory": strings[0],
                    "commitlog_directory": strings[1],
                    "consume_queue_directory": strings[2],
                    "consume_queue_file_size": rounded_file_size(config.mapped_file_size_consume_queue),
                    "to_send": ring,
                },
            )
        )
        if self.handle == ffi.NULL:
            raise fail("cannot serve timers")

    @property
    def duties(self) -> Sequence[Callable[[], None]]:
        return self.run, self.keep_synced

    def run(self) -> None:
        """Deliver until stopped. A fault of the disk is logged, and everything is tried again."""
        while not self._stop.is_set():
            status = lib.rp_timers_run(self.handle, TURN_NS)
            if status == Status.STOPPED:
                return
            if status != Status.OK:
                self._faults.report("cannot read or file timers", fail("timers", status))
                self._stop.wait(RETRY_S)

    def keep_synced(self) -> None:
        """Bring runs and marks to the disk now and then, and at the end."""
        lib.rp_priority_lower()
        while True:
            is_last = self._stop.wait(SYNC_INTERVAL_S)
            status = lib.rp_timers_sync(self.handle)
            if status < 0:
                self._faults.report("cannot sync the files of timers", fail("timers", status))
            if is_last:
                return

    def stop(self) -> None:
        lib.rp_timers_stop(self.handle)

    def close(self) -> None:
        """After both threads have ended."""
        lib.rp_timers_close(self.handle)
