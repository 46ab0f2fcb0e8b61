"""The timer thread of a slave: the master delivers, the marks follow the log.

Cleaning keeps the files of pending timers by the marks. Whoever opens the store next reads the log again from
scanned_phy_offset on, which stays here: a master forgets what is after boot_phy_offset (csrc/store/timers/timers.c).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.names import TIMER_TOPIC
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, fail
from ..files import StorePaths
from ..formats.unit import CQ_STORE_UNIT_SIZE, CQ_UNIT, rounded_file_size
from ..timers import TimerMarks
from .threads import StoreThreads

INTERVAL_S = 5.0
SYNC_BYTES = 256 << 20
"""Bytes of the log that are read again after a power failure, at most about."""
QUEUE_FILES_MAX = 2
TOPIC = TIMER_TOPIC.encode()


class TimerFollower:
    """`run` is the main function of a thread; it returns when `stop` of `threads` is set and `stop()` was called."""

    handle: Any = ffi.NULL  # it looks at intervals

    def __init__(
        self, config: MessageStoreConfig, control: ControlBlock, marks: TimerMarks, threads: StoreThreads
    ) -> None:
        paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        self._commitlog = os.fsencode(paths.commitlog)
        self._consumequeue = os.fsencode(paths.consumequeue)
        self._queue_file_size = rounded_file_size(config.mapped_file_size_consume_queue)
        self._control = control
        self._marks = marks
        self._faults = threads.faults
        self._stop = threads.stop
        self._is_stopped = ffi.new("uint32_t *")

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
        """Bring the marks from followed_phy_offset to what is dispatched and on the disk.

        The position moves there, and is kept in the file of the marks: a restarted worker does not read the log again,
        and after a power failure little of it is read.
        """
        header, control = self._marks.header, self._control.header
        # What is dispatched has its queue: without one there is no timer below this position. A bit must not outlive
        # the record of its delivery.
        end = min(int(control.dispatched_phy_offset), int(control.durable_phy_offset))
        header.followed_durable = min(header.followed_durable, end)  # the log may be shorter than it was
        header.followed_phy_offset = min(header.followed_phy_offset, end)
        begin = max(int(header.followed_phy_offset), int(header.scanned_phy_offset))
        if end <= begin:
            return
        try:
            queue = lib.rp_control_find(self._control.block, TOPIC, len(TOPIC), 0)
            if queue == ffi.NULL:
                header.held_phy_offset = end + 1
            elif not self._mark(queue, begin, end):
                return
            self._keep(end)
        except StoreError as exc:
            self._faults.report("cannot follow the timers of the master", exc)

    def _mark(self, queue: Any, begin: int, end: int) -> bool:
        """Mark what has ended between these positions of the log; False: stopped. Raises: StoreError."""
        marks, low, high = self._marks.pointer, int(queue.min_offset), int(queue.max_offset)
        lib.rp_timer_marks_move_floor(marks, low, low)
        if high:
            _check(lib.rp_timer_marks_reserve(marks, high - 1))
        status = lib.rp_timer_scan(marks, self._control.header, self._commitlog, begin, end, self._is_stopped)
        if status == Status.STOPPED:
            return False
        _check(status)
        lib.rp_timer_marks_move_floor(marks, low, high)
        self._hold(queue, end)
        return True

    def _hold(self, queue: Any, looked: int) -> None:
        """Keep the log from the oldest pending timer on; without one, from `looked` on. Raises: StoreError."""
        unit = ffi.new("uint8_t[]", CQ_STORE_UNIT_SIZE)
        block, size = self._control.block, self._queue_file_size
        reader = lib.rp_cq_reader_open(block, self._consumequeue, size, QUEUE_FILES_MAX)
        _check(Status.OK if reader != ffi.NULL else Status.NO_MEMORY)
        try:
            count = lib.rp_cq_read(reader, queue, self._marks.header.floor, 1, unit)
            _check(Status.OK if count >= 0 else Status.IO_ERROR)
        finally:
            lib.rp_cq_close(reader)
        self._marks.header.held_phy_offset = (CQ_UNIT.unpack(ffi.buffer(unit))[0] if count else looked) + 1

    def _keep(self, position: int) -> None:
        """Bits that have been written until now are true after a power failure, too. Raises: StoreError."""
        header = self._marks.header
        header.followed_phy_offset = position
        if position - header.followed_durable >= SYNC_BYTES:
            _check(lib.rp_timer_marks_sync(self._marks.pointer))
            header.followed_durable = position

    def stop(self) -> None:
        self._is_stopped[0] = 1

    def close(self) -> None:
        """Nothing is open between two rounds."""


def _check(status: int) -> None:
    if status != Status.OK:
        raise fail("timers", status)
