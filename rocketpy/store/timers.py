"""Which timers are delivered: the mapped file `timer/delivered` (csrc/store/timer_marks.h, docs/adr/0110)."""

from __future__ import annotations

import os
from typing import Any, Self

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib

from .control_block import ControlBlock
from .files import Files, StorePaths


class TimerMarks:
    """Opened before the first fork; the send worker and the store worker write, all may read."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self._header = lib.rp_timer_marks_header(pointer)

    @classmethod
    def open(cls, paths: StorePaths, files: Files, control: ControlBlock) -> Self:
        """Raises: StoreError."""
        files.make_directory(paths.timer)
        pointer = lib.rp_timer_marks_open(os.fsencode(paths.timer / "delivered"), control.header)
        if pointer == ffi.NULL:
            raise StoreError(f"cannot map {paths.timer / 'delivered'}: {os.strerror(ffi.errno)}")
        return cls(pointer)

    def follow_master(self) -> None:
        """Before the first fork of a slave: what is delivered from now on is in the log only."""
        lib.rp_timer_follow_begin(self.pointer)

    def fileno(self) -> int:
        """For the store worker, which keeps it."""
        return int(lib.rp_timer_marks_descriptor(self.pointer))

    @property
    def held_phy_offset(self) -> int:
        """The position in the log from which on it may hold pending timers; 0 until the timer thread knows it."""
        return max(0, int(self._header.held_phy_offset) - 1)

    def renew(self, to: int) -> None:
        """Ask the timer thread to have pending timers in the log before `to` stored again at its end."""
        self._header.renew_to = to
        self._header.renew_requests += 1
