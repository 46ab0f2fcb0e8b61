"""Heartbeats of a worker that reads its tables."""

from __future__ import annotations

import gc
import threading

from rocketpy.startup.loading import loading


class Block:
    def __init__(self) -> None:
        self.beats: list[int] = []
        self.third = threading.Event()

    def beat(self, now_ns: int) -> None:
        self.beats.append(now_ns)
        if len(self.beats) == 3:
            self.third.set()


def test_a_worker_that_loads_is_alive_and_looks_for_no_garbage() -> None:
    block, threads = Block(), threading.active_count()
    with loading(block, beat_s=0.0001):
        assert not gc.isenabled()
        assert block.third.wait(30), "beats go on without the main thread"
    assert gc.isenabled() and threading.active_count() == threads


def test_one_that_hangs_is_found() -> None:
    block, times = Block(), iter((0, 0, 4, 10))
    with loading(block, beat_s=0.0001, limit_s=10e-9, now_ns=lambda: next(times)):
        while any("beating" in thread.name for thread in threading.enumerate()):
            pass
    assert block.beats == [0, 4]
