"""Why the store takes no messages, as bits of the control block (the reference's RunningFlags)."""

from __future__ import annotations

import enum
import threading

from .control_block import ControlBlock


class RunningFlag(enum.IntFlag):
    NOT_READABLE = 1
    NOT_WRITEABLE = 2  # the log cannot be flushed
    CONSUME_QUEUE_FAULT = 4  # units cannot be written
    INDEX_FAULT = 8
    DISK_FULL = 16


class RunningFlags:
    """The store worker's side; several of its threads set and clear bits."""

    def __init__(self, control: ControlBlock) -> None:
        self._header = control.header
        self._lock = threading.Lock()

    def put(self, flag: RunningFlag, on: bool) -> bool:
        """Set or clear; returns whether that was a change."""
        with self._lock:
            before = self._header.running_flags
            after = before | flag if on else before & ~flag
            self._header.running_flags = after
            return bool(after != before)
