"""Reasons why the store accepts no messages, as bits of the control block (the reference's RunningFlags)."""

from __future__ import annotations

import enum

from rocketpy.native.core import lib

from .control_block import ControlBlock


class RunningFlag(enum.IntFlag):
    NOT_READABLE = 1
    NOT_WRITEABLE = 2  # the log cannot be flushed; set by csrc/store/flush.c
    CONSUME_QUEUE_FAULT = 4  # units cannot be written
    INDEX_FAULT = 8
    DISK_FULL = 16


class RunningFlags:
    """Sets and clears the flags, from several threads of the store worker."""

    def __init__(self, control: ControlBlock) -> None:
        self._header = control.header

    def put(self, flag: RunningFlag, on: bool) -> bool:
        """Set or clear a flag. Returns whether it changed."""
        return bool(lib.rp_control_put_flag(self._header, flag, on))
