"""The compiled extension itself: `ffi` and `lib`, for the code that drives the C loops (reactor, store).

Importing this module without the extension raises NativeMissing; it is the only place that names the extension.
`rocketpy.message` and `rocketpy.remoting` define the formats.
"""

from __future__ import annotations

from ..errors import NativeMissing

try:
    from ._rocketpy import ffi, lib
except ImportError as exc:
    raise NativeMissing(
        f"the compiled core is missing ({exc}); build it with 'python setup.py build_ext --inplace' in a checkout, or "
        "reinstall rocketpy-mq where a C compiler is available and without ROCKETPY_BUILD=python"
    ) from exc

__all__ = ["ffi", "lib"]
