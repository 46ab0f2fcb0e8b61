"""All access to the compiled core goes through this package.

    core      `ffi` and `lib` of the extension; NativeMissing where it is not built or does not load
    layout    structs that C declares, read from bytes and written to bytes
    status    the return codes of its functions, by name

Store and reactor use it. Client and admin tool do without it, and this package can be imported without the extension.
What a format means is said in `rocketpy.message` and `rocketpy.remoting`; tests compare the C with them.
cffi releases the GIL in every call, and C only borrows: keep the Python object of a buffer in a variable until the call
has returned.
"""

from __future__ import annotations

from types import ModuleType


def require_core() -> ModuleType:
    """The module with `ffi` and `lib`, for programs that need the compiled core.

    Raises:
        NativeMissing: it is not built or cannot be loaded; the text names the remedy.
    """
    from . import core

    return core
