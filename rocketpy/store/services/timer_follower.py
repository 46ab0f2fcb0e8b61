"""The timer thread of a slave (csrc/store/timers/timer_follow.h): the master delivers, the marks follow the log."""

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

INTERVAL_S = 5.0


class TimerFollower:
    """`run` is the main function of a thread; it returns when `stop` of `threads` is set and `stop()` was called."""

    def __init__(
        self, config: MessageStoreConfig, control: ControlBlock, marks: TimerMarks, threads: StoreThreads
    ) -> None:
        paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        strings = [ffi.new("char[]", os.fsencode(path)) for path in (paths.commitlog, paths.consumequeue)]
        self._kept = control, marks, strings
        self._faults = threads.faults
        self._stop = threads.stop
        self._is_stopped = ffi.new("uint32_t *")
        self._config: Any = ffi.new(
            "rp_timer_follow_config *",
            {
                "block": control.block,
                "marks": marks.pointer,
                "commitlog_directory": strings[0],
                "consume_queue_directory": strings[1],
                "consume_queue_file_size": rounded_file_size(config.mapped_file_size_consume_queue),
            },
        )

    @property
    def duties(self) -> Sequence[Callable[[], None]]:
        return (self.run,)

    def run(self) -> None:
        """Follow until stopped. A fault of the disk is logged, and everything is tried again."""
        lib.rp_priority_lower()
        while True:
            self.follow()
            if self._stop.wait(INTERVAL_S):
                return

    def follow(self) -> None:
        """Bring the marks to the end of the log."""
        status = lib.rp_timer_follow(self._config, self._is_stopped)
        if status not in (Status.OK, Status.STOPPED):
            self._faults.report("cannot follow the timers of the master", fail("timers", status))

    def stop(self) -> None:
        self._is_stopped[0] = 1

    def close(self) -> None:
        """Nothing is open between two rounds."""
