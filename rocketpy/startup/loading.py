"""A worker that reads large tables at its start: it counts as alive meanwhile, and looks for no garbage.

50 000 clients take 2 s of CPU to enter and a million offsets about as long to read, several times that where others
want the CPU too; workerHeartbeatTimeoutMillis (10 s) would end each successor in turn.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

BEAT_S = 0.5
LOADING_MAX_S = 600.0  # longer, and it hangs


class Beating(Protocol):
    """Of a worker's block (reactor/ring.py)."""

    def beat(self, now_ns: int) -> None: ...


@contextmanager
def loading(
    block: Beating,
    *,
    beat_s: float = BEAT_S,
    limit_s: float = LOADING_MAX_S,
    now_ns: Callable[[], int] = time.monotonic_ns,
) -> Iterator[None]:
    """A block in which a thread gives the worker's heartbeats, for at most `limit_s`."""
    done = threading.Event()
    deadline_ns = now_ns() + int(limit_s * 1e9)

    def beat() -> None:
        while (at_ns := now_ns()) < deadline_ns:
            block.beat(at_ns)
            if done.wait(beat_s):
                return

    thread = threading.Thread(target=beat, name="beating while loading", daemon=True)
    gc.disable()
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        gc.enable()
