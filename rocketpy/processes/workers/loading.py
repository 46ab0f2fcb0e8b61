"""While a worker loads large tables at its start, its heartbeat is set ahead and the garbage collector is off.

To restore 50 000 clients takes 2 s of CPU, and a million offsets about the same; on a busy machine it takes several
times as long. Without this, workerHeartbeatTimeoutMillis (10 s) would kill each restarted worker again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

LOADING_MAX_S = 600.0  # a longer time means that it hangs


class Beating(Protocol):
    """The heartbeat of a worker block (reactor/ring.py)."""

    def beat(self, now_ns: int) -> None: ...


@contextmanager
def loading(
    block: Beating, *, limit_s: float = LOADING_MAX_S, now_ns: Callable[[], int] = time.monotonic_ns
) -> Iterator[Callable[[], None]]:
    """A context in which the worker counts as alive for `limit_s`: its heartbeat is set ahead. It gives a function that
    sets it ahead again, for work that takes longer and moves.

    A heartbeat thread would be blocked by one long call into C, and would cost memory.
    """

    def moved() -> None:
        block.beat(now_ns() + int(limit_s * 1e9))

    moved()
    gc.disable()
    try:
        yield moved
    finally:
        gc.enable()
        block.beat(now_ns())
