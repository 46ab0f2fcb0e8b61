"""Which timers have ended: the mapped file `timer/delivered` (csrc/store/timers/timer_marks.h, docs/adr/0110)."""

from __future__ import annotations

import os
from typing import Any, Self

from rocketpy.errors import StoreError
from rocketpy.message.names import TIMER_TOPIC
from rocketpy.native.core import ffi, lib

from .control_block import ControlBlock
from .files import Files, StorePaths

MARKS_FILE = "delivered"
BOOT_ID_AT = ffi.offsetof("rp_timer_header", "boot_id")
NO_BOOT_ID = b"\xff" * 16


def forget_marks_of_this_boot(paths: StorePaths, files: Files) -> None:
    """Erase the boot id from the timer marks before the log is cut, so that the next open trusts them no more than
    after a power failure. The numbers of cut timers are given again, and a timer whose end was cut off is pending
    again. Raises: StoreError."""
    path = paths.timer / MARKS_FILE
    if files.info(path) is not None:
        files.write(path, BOOT_ID_AT, NO_BOOT_ID, sync=True)


class TimerMarks:
    """Opened before the first fork; the send worker and the store worker write, all may read."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.header: Any = lib.rp_timer_marks_header(pointer)

    @classmethod
    def open(cls, paths: StorePaths, files: Files, control: ControlBlock) -> Self:
        """Open the marks of timers, or create them. Raises: StoreError: they cannot be opened."""
        files.make_directory(paths.timer)
        path = paths.timer / MARKS_FILE
        pointer = lib.rp_timer_marks_open(os.fsencode(path), control.header)
        if pointer == ffi.NULL:
            raise StoreError(f"cannot map {path}: {os.strerror(ffi.errno)}")
        queue = control.queue(TIMER_TOPIC, 0)
        if queue is not None:  # no timer in the log has a number from there on
            lib.rp_timer_marks_cut(pointer, queue.next_offset)
        return cls(pointer)

    def follow_master(self) -> None:
        """Before the first fork of a slave: what has ended from now on is in the log only; the journal says nothing."""
        header = self.header
        if not header.must_scan:  # a master of this boot has cut what a power failure made wrong; its marks are right
            header.boot_phy_offset = 0  # up to scanned_phy_offset
        header.must_scan = 1
        header.journal_begin = header.journal_end
        header.pending = header.next_due_ms = 0

    def fileno(self) -> int:
        """For the store worker, which keeps it."""
        return int(lib.rp_timer_marks_descriptor(self.pointer))

    @property
    def held_phy_offset(self) -> int:
        """The position in the log from which on it may hold pending timers; 0 until the timer thread knows it."""
        return max(0, int(self.header.held_phy_offset) - 1)

    def renew(self, to: int) -> None:
        """Ask the timer thread to have pending timers in the log before `to` stored again at its end."""
        self.header.renew_to = to
        self.header.renew_requests += 1
