"""Heartbeats of a worker that reads its tables."""

from __future__ import annotations

import gc

import pytest

from rocketpy.processes.workers.garbage_collection import loading

S = 1_000_000_000


class Block:
    def __init__(self) -> None:
        self.heartbeat_ns = 0

    def beat(self, now_ns: int) -> None:
        self.heartbeat_ns = now_ns


def test_a_worker_that_loads_is_alive_for_so_long_and_looks_for_no_garbage() -> None:
    """Fault: A manager that read large tables for longer than its heartbeat allows was killed at each start."""
    block, times = Block(), iter((5 * S, 7 * S, 8 * S))
    with loading(block, limit_s=600, now_ns=lambda: next(times)) as moved:
        assert not gc.isenabled()
        assert block.heartbeat_ns == 605 * S, "the supervisor counts silence from here on"
        moved()
        assert block.heartbeat_ns == 607 * S
    assert gc.isenabled()
    assert block.heartbeat_ns == 8 * S, "from now on a hang is found as always"


def test_one_that_fails_leaves_all_as_it_was() -> None:
    block = Block()
    with pytest.raises(OSError), loading(block, now_ns=lambda: S):
        raise OSError
    assert gc.isenabled() and block.heartbeat_ns == S
