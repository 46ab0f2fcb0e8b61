"""The header of a control block, for a process that must not change it, nor die of it.

`ControlBlock` formats a block that it finds unusable, which one may seem to be while it changes. This view maps the
first page for reading. It is for a store that is open: recovery may cut the file to nothing for a moment.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi

from .files import store_error


class ControlView:
    """Use `header` as that of ControlBlock; its fields are plain loads. Close it before another one is made.

    Raises:
        StoreError: there is no such file, or it is too short.
    """

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size < mmap.PAGESIZE:
                    raise StoreError(f"{path} is no control block: it has less than {mmap.PAGESIZE} bytes")
                self._map = mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise store_error(exc, path, "map") from exc
        self._bytes: Any = ffi.from_buffer(self._map)
        self.header: Any = ffi.cast("const rp_control *", self._bytes)

    def close(self) -> None:
        self.header = ffi.NULL
        ffi.release(self._bytes)
        self._map.close()
