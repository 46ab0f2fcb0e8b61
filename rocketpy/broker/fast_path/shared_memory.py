"""Shared memory that survives a restart of the workers that use it; created before the first fork."""

from __future__ import annotations

from collections.abc import Callable

from rocketpy.native.core import ffi, lib, shared
from rocketpy.remoting.fast_path import Delivery


class DeliveryMarks:
    """The last delivery of each delay level (csrc/store/timers/delivery_marks.h). The send worker writes,
    through `pointer`; all other processes read.

    Args:
        published: returns the published position of the log; a mark of a later record does not count.
    """

    def __init__(self, level_max: int, published: Callable[[], int]) -> None:
        slots = level_max * ffi.sizeof("rp_delivery_slot")
        self.pointer = shared("rp_delivery_marks", f"the progress of {level_max} delay levels", slots)
        self.pointer.level_max = level_max
        self._published = published

    def last(self, level: int) -> Delivery | None:
        """The last delivery of this level that was stored; None if there is none."""
        last = ffi.new("rp_delivery *")
        if not lib.rp_delivery_marks_last(self.pointer, level, self._published(), last):
            return None
        return Delivery(level, int(last.phy_offset), int(last.queue_offset))


class SharedHalfStates:
    """Which half messages are open (csrc/store/transactions/half_states.h). Filled before the first fork, too. The send
    worker writes, through `pointer`; the manager moves the base; all processes may read."""

    def __init__(self) -> None:
        self.pointer = shared("rp_half_states", "the states of half messages")

    @property
    def base(self) -> int:
        """Every half message below it has ended."""
        return int(lib.rp_half_states_base(self.pointer))

    def move_base(self, base: int) -> None:
        """Every half message below `base` has ended; a smaller one than before changes nothing."""
        lib.rp_half_states_move_base(self.pointer, base)

    def is_open(self, offset: int) -> bool:
        return bool(lib.rp_half_states_of(self.pointer, offset) == lib.RP_HALF_OPEN)

    def next_open(self, start: int, end: int) -> int:
        """The first open offset in [start, end), or `end`."""
        return int(lib.rp_half_states_next_open(self.pointer, start, end))

    def count_open(self, start: int, end: int) -> int:
        return int(lib.rp_half_states_count_open(self.pointer, start, end))


class FilterMarks:
    """The log position from which filter bits are valid for a subscription (csrc/store/filters/filter_marks.h). The
    store worker writes, through `pointer`; the pull workers read."""

    def __init__(self) -> None:
        self.pointer = shared("rp_filter_marks", "filter marks")
