"""A worker that reads large tables at its start: it counts as alive meanwhile, and looks for no garbage.

50 000 clients take 2 s of CPU to enter and a million offsets about as long to read, several times that where others
want the CPU too; workerHeartbeatTimeoutMillis (10 s) would end each successor in turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

LOADING_MAX_S = 600.0  # longer, and it hangs


class Beating(Protocol):
    """Of a worker's block (reactor/ring.py)."""

    def beat(self, now_ns: int) -> None: ...


@contextmanager
def loading(
    block: Beating, *, limit_s: float = LOADING_MAX_S, now_ns: Callable[[], int] = time.monotonic_ns
) -> Iterator[None]:
    """A block that counts as alive for `limit_s` whatever it does: its heartbeat is given in advance.

    A thread that beats would be stopped by one long call into C, and would cost memory.
    """
    block.beat(now_ns() + int(limit_s * 1e9))
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        block.beat(now_ns())
