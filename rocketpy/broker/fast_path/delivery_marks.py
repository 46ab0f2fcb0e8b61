"""Delivery marks: how far delayed messages have been delivered, in shared memory that survives a restart of the manager
and the send worker (csrc/store/timers/delivery_marks.h)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.fast_path import Delivery


class DeliveryMarks:
    """Created before the first fork. The send worker writes, through `pointer`; all other processes read.

    Args:
        published: returns the published position of the log; a mark of a later record does not count.
    """

    def __init__(self, level_max: int, published: Callable[[], int]) -> None:
        self.pointer: Any = lib.rp_delivery_marks_create(level_max)
        if self.pointer == ffi.NULL:
            raise StoreError(f"no shared memory for the progress of {level_max} delay levels: {os.strerror(ffi.errno)}")
        self._published = published

    def last(self, level: int) -> Delivery | None:
        """The last delivery of this level that was stored; None if there is none."""
        last = ffi.new("rp_delivery *")
        if not lib.rp_delivery_marks_last(self.pointer, level, self._published(), last):
            return None
        return Delivery(level, int(last.phy_offset), int(last.queue_offset))
