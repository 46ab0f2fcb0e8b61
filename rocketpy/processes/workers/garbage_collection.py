"""Keeps collections of cyclic garbage short in a process whose tables grow, and off while it loads them.

A collection of the oldest generation visits every object that is not frozen; 250 000 objects block the event loop for
50 ms. Objects that survive a long collection belong to a table, so they are frozen: no later collection visits them.
The next one comes after some 42 000 new objects, and takes about 10 ms.

Frozen objects are freed as usual when nothing refers to them; only a cycle among them would stay. Tables have none, and
so few other objects are alive at the end of a long collection that they do not matter beside the frozen ones.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

GENERATIONS = 700, 10, 5  # the interpreter's thresholds, but for the oldest: half of its 10, and so half as long
LONG_MS = 5.0  # of processor time; a quarter of the longest step that an event loop may have (docs/adr/0096)
OLDEST_GENERATION = 2
LOADING_MAX_S = 600.0  # of large tables; a longer time means that it hangs


@contextmanager
def short_collections(*, long_ms: float = LONG_MS, now_ns: Callable[[], int] = time.thread_time_ns) -> Iterator[None]:
    """Freeze, within a context, the objects that survive a collection of `long_ms` or more.

    Args:
        long_ms: processor time of the collection, in milliseconds.
        now_ns: processor time of the thread that collects, in nanoseconds.
    """
    began_ns = 0

    def freeze_survivors(phase: str, info: dict[str, int]) -> None:
        nonlocal began_ns
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "start":
            began_ns = now_ns()
        elif now_ns() - began_ns >= long_ms * 1e6:
            gc.freeze()

    thresholds = gc.get_threshold()
    gc.set_threshold(*GENERATIONS)
    gc.callbacks.append(freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.set_threshold(*thresholds)


class Beating(Protocol):
    """The heartbeat of a worker block (reactor/ring.py)."""

    def beat(self, now_ns: int) -> None: ...


@contextmanager
def loading(
    block: Beating, *, limit_s: float = LOADING_MAX_S, now_ns: Callable[[], int] = time.monotonic_ns
) -> Iterator[Callable[[], None]]:
    """Let the worker count as alive for `limit_s` within a context, by a heartbeat set ahead; collect no garbage.

    The context gives a function that sets the heartbeat ahead again, for work that takes longer and moves.

    To restore 50 000 clients takes 2 s of CPU, and a million offsets about the same; on a busy machine it takes several
    times as long. Without this, workerHeartbeatTimeoutMillis (10 s) would kill each restarted worker again. A heartbeat
    thread would be blocked by one long call into C, and would cost memory.
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
