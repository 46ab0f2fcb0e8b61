"""Reasons why the store accepts no messages, as bits of the control block (the reference's RunningFlags)."""

from __future__ import annotations

import enum

from rocketpy.native.core import lib

from .control_block import ControlBlock


class RunningFlag(enum.IntFlag):
    NOT_READABLE = lib.RP_FLAG_NOT_READABLE
    NOT_WRITEABLE = lib.RP_FLAG_NOT_WRITEABLE  # the log cannot be flushed; set by csrc/store/log/flush.c
    CONSUME_QUEUE_FAULT = lib.RP_FLAG_CONSUME_QUEUE_FAULT  # units cannot be written
    INDEX_FAULT = lib.RP_FLAG_INDEX_FAULT
    DISK_FULL = lib.RP_FLAG_DISK_FULL


class RunningFlags:
    """Sets and clears the flags, from several threads of the store worker."""

    def __init__(self, control: ControlBlock) -> None:
        self._header = control.header

    def __contains__(self, flag: RunningFlag) -> bool:
        return bool(self._header.running_flags & flag)

    def put(self, flag: RunningFlag, on: bool) -> bool:
        """Set or clear a flag. Returns whether it changed."""
        return bool(lib.rp_control_put_flag(self._header, flag, on))
