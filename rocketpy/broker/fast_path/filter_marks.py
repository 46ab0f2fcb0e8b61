"""Filter marks: the log position from which filter bits are valid for a subscription, in shared memory that survives a
restart of the store worker and of pull workers (csrc/store/filters/filter_marks.h)."""

from __future__ import annotations

import os
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib


class FilterMarks:
    """Created before the first fork. The store worker writes, through `pointer`; the pull workers read."""

    def __init__(self) -> None:
        self.pointer: Any = lib.rp_filter_marks_create()
        if self.pointer == ffi.NULL:
            raise StoreError(f"no shared memory for filter marks: {os.strerror(ffi.errno)}")
