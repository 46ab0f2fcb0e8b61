"""Tells if this broker is certainly still the master that its coordinator has made it, before it registers as one.

A process that was stopped for longer than its lease (SIGSTOP, a frozen virtual machine) wakes with old orders, and may
send something before its coordinator has read etcd again. A master whose lease has ended may go on without etcd
(haServeWithoutLease). So without a lease the master is certain only after its processes have run for GRACE_S, in which
the coordinator has heard of a successor if there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from rocketpy.failover.member_block import MemberBlock

from .shown import MemberShown
from .tree import MemberMemory

GRACE_S = 3.0
PAUSE_S = 3.0  # without a look: this process was stopped


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.define(eq=False)
class MasterCertainty:
    """The certainty of one process. `epoch` is asked every 50 ms (manager_role.py), and before each registration."""

    block: MemberBlock
    shown: MemberShown
    clock_s: Callable[[], float] = _boot_s
    _looked_s: float = attrs.field(init=False, default=0.0)
    _lapsed_s: float | None = attrs.field(init=False, default=None)  # since when the lease is seen to be over

    @classmethod
    def of(cls, memory: MemberMemory) -> MasterCertainty:
        return cls(memory.block, memory.shown)

    def epoch(self) -> int | None:
        """Return the epoch that this broker serves as master; None: it is no master, or that is uncertain now."""
        has_run_long_enough = self._look()
        found = self.block.orders()
        if found is None or not found[0].is_broker_0 or not has_run_long_enough:
            return None
        epoch = found[0].epoch
        is_over = self.clock_s() * 1e9 >= self.block.deadline_ns
        return None if is_over or epoch < 0 or self.block.newest_epoch_seen > epoch else epoch

    def _look(self) -> bool:
        """Return True if there is a lease, or this process has run for GRACE_S without one."""
        now_s = self.clock_s()
        was_paused, self._looked_s = now_s > self._looked_s + PAUSE_S, now_s
        if self.shown.read().lease_s > 0:
            self._lapsed_s = None
            return True
        if self._lapsed_s is None or was_paused:
            self._lapsed_s = now_s
        return now_s >= self._lapsed_s + GRACE_S
