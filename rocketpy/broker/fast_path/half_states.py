"""Which half messages are open: shared memory that survives the workers (csrc/store/transactions/half_states.h)."""

from __future__ import annotations

import os
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib


class SharedHalfStates:
    """Created and filled before the first fork. The send worker writes, through `pointer`; the manager moves the base;
    all processes may read."""

    def __init__(self) -> None:
        self.pointer: Any = lib.rp_half_states_create()
        if self.pointer == ffi.NULL:
            raise StoreError(f"no shared memory for the states of half messages: {os.strerror(ffi.errno)}")

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
