"""The compiled extension itself: `ffi` and `lib`, for the code that drives the C loops (reactor, store), and
Layout, for its structs in messages; shared memory for others.

Importing this module without the extension raises NativeMissing; it is the only place that names the extension.
`rocketpy.message` and `rocketpy.remoting` define the formats.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ..errors import NativeMissing, StoreError

try:
    from ._rocketpy import ffi, lib
except ImportError as exc:
    if sys.platform != "linux":
        raise NativeMissing(
            f"broker and name server need the compiled core, which needs Linux, and this is {sys.platform}; client and "
            "mqadmin run here"
        ) from exc
    raise NativeMissing(
        f"the compiled core is missing ({exc}); build it with 'python setup.py build_ext --inplace' in a checkout "
        "(a C compiler and Python.h), or reinstall a wheel that has it (docs/run/install.md#extras)"
    ) from exc

__all__ = ["Layout", "ffi", "lib", "shared"]


def shared(name: str, purpose: str, more: int = 0) -> Any:
    """A pointer to a zeroed struct of the headers, and `more` bytes, which all processes share that are forked later.

    It is never freed. Raises: StoreError: there is no memory for this purpose.
    """
    start = lib.rp_shared_create(ffi.sizeof(name) + more)
    if start == ffi.NULL:
        raise StoreError(f"no shared memory for {purpose}: {os.strerror(ffi.errno)}")
    return ffi.cast(f"{name} *", start)


class Layout:
    """One struct type of the headers in csrc/, read from bytes and written to bytes: each is declared once, in C.

    Args:
        name: as C knows it, "rp_origin".
    """

    __slots__ = ("_pointer", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int = ffi.sizeof(name)
        """Bytes."""
        self._pointer: Any = ffi.typeof(f"{name} *")

    def read(self, data: bytes | bytearray) -> Any:
        """The struct that `data` begins with, in place: it keeps `data` alive, and what is set changes a bytearray.

        Raises: ValueError (too few bytes).
        """
        if len(data) < self.size:
            raise ValueError(f"{self.name} has {self.size} bytes, here are {len(data)}")
        return ffi.from_buffer(self._pointer, data)

    def copy(self, data: bytes) -> Any:
        """A changeable copy of the struct that `data` begins with.

        Raises: ValueError (too few bytes).
        """
        return ffi.new(self._pointer, self.read(data)[0])

    def write(self, *values: object, **fields: object) -> bytes:
        """Return a struct with its first fields, or the named fields, set; the others are zero.

        Raises: OverflowError (a number beyond its field).
        """
        assert not (values and fields)
        return bytes(ffi.buffer(ffi.new(self._pointer, values or fields)))
