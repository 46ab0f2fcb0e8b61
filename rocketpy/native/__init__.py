"""The functions that exist twice, and the choice between their twins.

`native` is the twin in use: `_c` (the extension built from csrc/) or `_python` (the specification). The environment
variable ROCKETPY_NATIVE decides once, at import: `auto` (the default) takes C where it was built, `c` insists on it,
`python` does without. The loops of the fast path have no twin: they are reached through `rocketpy.native.core`, and who
needs them calls `require_core()` first. Runs in every process; keeps no state; only bytes and values.
"""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

from ..errors import ConfigError
from .abc import Native

__all__ = ["Native", "choose", "native", "require_core"]


def choose(wish: str) -> Native:
    """The twin that `wish` (auto, c, python) names. A core that was built and does not load is an error, not a reason
    to be slow.

    Raises:
        ConfigError: no such wish.
        NativeMissing: `c` where there is no core, or a core that does not load.
    """
    if wish not in ("auto", "c", "python"):
        raise ConfigError(f"{wish!r} is none of auto, c, python", key="ROCKETPY_NATIVE")
    if wish == "python" or (wish == "auto" and importlib.util.find_spec("rocketpy.native._rocketpy") is None):
        from . import _python

        return _python
    from . import _c

    return _c


def require_core() -> ModuleType:
    """The module with `ffi` and `lib`, for parts that cannot do without.

    Raises:
        NativeMissing: it is not there; the text says what to do.
    """
    from . import core

    return core


native: Native = choose(os.environ.get("ROCKETPY_NATIVE", "auto"))
