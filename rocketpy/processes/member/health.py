"""Finds the reason why a broker cannot serve as the master of its group, from what its processes share.

The coordinator of a broker that cannot open, write or acknowledge its log still runs, and renews the lease. It asks
`Health` with each report; the rules (rocketpy/failover) decide what follows from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs

from rocketpy.failover.member_block import MemberBlock
from rocketpy.native import Status
from rocketpy.store.control_block import RunningFlag

from .marks import TreeMarks

SUPERVISOR_SILENT_S = 3.0  # it turns once a second
GUARDIAN_SILENT_S = 3.0  # it turns four times a second
SYNC_STUCK_S = 5.0  # without progress of a disk that is waited for
FLAGS = {
    RunningFlag.NOT_WRITEABLE: "the log cannot be brought to the disk",
    RunningFlag.DISK_FULL: "the disk is full",
    RunningFlag.CONSUME_QUEUE_FAULT: "consume queues cannot be written",
    RunningFlag.INDEX_FAULT: "the index cannot be written",
}
APPENDS = {
    Status.NO_SPACE: "there is no space for the next file of the log",
    Status.IO_ERROR: "the next file of the log cannot be made or written",
    Status.NO_MEMORY: "there is no memory for the next file of the log",
}


@attrs.define(eq=False)
class Health:
    """The health of one member.

    Args:
        is_sync_flush: sends wait for this broker's disk.
    """

    block: MemberBlock
    marks: TreeMarks
    is_sync_flush: bool = False
    clock_s: Callable[[], float] = time.monotonic
    _durable: int = attrs.field(init=False, default=-1)
    _durable_since_s: float = attrs.field(init=False, default=0.0)

    def fault(self, header: Any | None) -> str:
        """Return the reason why this broker cannot serve as master, for operators; empty: there is none.

        Args:
            header: of the control block; None: no store is open.
        """
        if header is None:
            self._durable = -1
            return "its store is not open: it is being opened, or its processes end again and again; see its log"
        now_s = self.clock_s()
        if now_s > self.marks.guardian_turned_s + GUARDIAN_SILENT_S and not self._serves():
            return "its guardian does not run"
        if now_s > self.marks.supervisor_turned_s + SUPERVISOR_SILENT_S:
            return "its supervisor does not run"
        flags = next((text for flag, text in FLAGS.items() if header.running_flags & flag), "")
        return self.marks.tree_fault or flags or self._append_fault(header) or self._sync_fault(header, now_s)

    def _serves(self) -> bool:
        """Return True if the process tree that runs is the wanted one: a master needs its guardian for the next role
        only. A slave that is elected needs another process tree."""
        found = self.block.orders()
        return found is not None and found[0].is_master and found[0].epoch == self.block.opened_epoch

    def _append_fault(self, header: Any) -> str:
        status = self.block.append_fault(int(header.published_phy_offset))
        return APPENDS.get(Status(status), f"the log cannot be made longer ({Status(status).name})") if status else ""

    def _sync_fault(self, header: Any, now_s: float) -> str:
        durable = int(header.durable_phy_offset)
        if durable != self._durable or durable >= int(header.published_phy_offset):
            self._durable, self._durable_since_s = durable, now_s
        is_stuck = self.is_sync_flush and now_s > self._durable_since_s + SYNC_STUCK_S
        return f"its disk has synced nothing for {SYNC_STUCK_S:g} s" if is_stuck else ""
