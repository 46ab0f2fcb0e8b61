"""All access to the compiled core goes through this package.

    core              `ffi` and `lib` of the extension, and Layout: structs that C declares; NativeMissing where the
                      extension is not built or does not load
    Status            the return codes of its functions, by name; known without the extension, too
    require_core()    for programs that need the extension

Store and reactor use it. Client and admin tool do without it, and this package can be imported without the extension.
What a format means is said in `rocketpy.message` and `rocketpy.remoting`; tests compare the C with them.
cffi releases the GIL in every call, and C only borrows: keep the Python object of a buffer in a variable until the call
has returned.
"""

from __future__ import annotations

from enum import IntEnum
from types import ModuleType


def require_core() -> ModuleType:
    """The module with `ffi` and `lib`, for programs that need the compiled core.

    Raises:
        NativeMissing: it is not built or cannot be loaded; the text names the remedy.
    """
    from . import core

    return core


class Status(IntEnum):
    """`rp_status` of csrc/base/status.h. From 0 up: expected outcomes; below: faults."""

    OK = 0
    EMPTY = 1
    FULL = 2
    END_OF_FILE = 3
    INCOMPLETE = 4
    UNSUPPORTED = 5
    NOT_FOUND = 6
    STOPPED = 7
    INVALID = -1
    TOO_LARGE = -2
    CORRUPT = -3
    NO_SPACE = -4
    IO_ERROR = -5
    NO_MEMORY = -6
