"""The reason why a broker cannot serve as master: found in shared memory that the test plays."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="shared memory is C")

from rocketpy.failover.member_block import MemberBlock, MemberOrders
from rocketpy.native import Status
from rocketpy.native.core import lib
from rocketpy.processes.member.health import (
    APPENDS,
    FLAGS,
    GUARDIAN_SILENT_S,
    SUPERVISOR_SILENT_S,
    SYNC_STUCK_S,
    Health,
)
from rocketpy.processes.member.marks import FAULT_BYTES_MAX, TreeMarks
from rocketpy.processes.member.tree import fault_of
from rocketpy.reactor.ring import WorkerBlock
from rocketpy.reactor.worker_spec import WorkerSpec
from rocketpy.store.control_block import ControlBlock, RunningFlag


@attrs.define(eq=False)
class Play:
    """A broker with an open store whose supervisor turns."""

    control: ControlBlock
    health: Health
    now_s: list[float]

    @classmethod
    def make(cls, directory: Path, *, is_sync_flush: bool = False) -> Play:
        now_s = [100.0]
        health = Health(MemberBlock(), TreeMarks(), is_sync_flush, lambda: now_s[0])
        health.marks.supervisor_turned_s = health.marks.guardian_turned_s = now_s[0]
        return cls(ControlBlock(directory / "control", 1 << 20), health, now_s)

    def fault(self) -> str:
        return self.health.fault(self.control.header)

    def after(self, seconds: float) -> str:
        """The fault after some time in which supervisor and guardian turned."""
        self.now_s[0] += seconds
        self.health.marks.supervisor_turned_s = self.health.marks.guardian_turned_s = self.now_s[0]
        return self.fault()


def test_a_broker_that_serves_has_no_fault(tmp_path: Path) -> None:
    play = Play.make(tmp_path)
    assert play.fault() == "" and "not open" in play.health.fault(None)


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_the_store_are_faults(tmp_path: Path, flag: RunningFlag) -> None:
    play = Play.make(tmp_path)
    play.control.header.running_flags = flag
    assert play.fault() == FLAGS[flag]


@pytest.mark.parametrize("status", [*APPENDS, Status.CORRUPT])
def test_an_append_that_failed_is_a_fault_until_one_succeeds(tmp_path: Path, status: Status) -> None:
    play = Play.make(tmp_path)
    play.control.header.published_phy_offset = 500
    lib.rp_member_append_failed(play.health.block.pointer, status, 500)
    assert play.fault() == APPENDS.get(status, "the log cannot be made longer (CORRUPT)")
    play.control.header.published_phy_offset = 600
    assert play.fault() == ""
    lib.rp_member_append_failed(play.health.block.pointer, status, 600)
    play.health.block.begin_tree()
    assert play.fault() == ""


def test_a_guardian_that_does_not_turn_is_a_fault(tmp_path: Path) -> None:
    """Nobody would replace the process tree of a member that is elected.
    Fault: An elected member with a frozen guardian kept the lease without opening its epoch."""
    play = Play.make(tmp_path)
    play.now_s[0] += GUARDIAN_SILENT_S + 0.1
    play.health.marks.supervisor_turned_s = play.now_s[0]
    assert play.fault() == "its guardian does not run"
    play.health.block.give(MemberOrders(is_master=True, epoch=7))
    assert play.fault() == "its guardian does not run", "the epoch is not open"
    play.health.block.opened_epoch = 7
    assert play.fault() == "", "it serves, and another one would have to do without it"
    play.health.block.give(MemberOrders())
    assert play.after(0.2) == ""


def test_a_supervisor_that_does_not_turn_is_a_fault(tmp_path: Path) -> None:
    play = Play.make(tmp_path)
    play.now_s[0] += SUPERVISOR_SILENT_S + 0.1
    play.health.marks.guardian_turned_s = play.now_s[0]
    assert play.fault() == "its supervisor does not run"
    play.health.marks.tree_fault = "worker send hangs"
    assert play.after(1.0) == "worker send hangs"
    play.health.marks.tree_fault = ""
    assert play.fault() == ""


def test_a_long_text_is_cut() -> None:
    marks = TreeMarks()
    marks.tree_fault = "x" * 300
    assert marks.tree_fault == "x" * (FAULT_BYTES_MAX - 1)


@pytest.mark.parametrize("is_sync_flush", [True, False])
def test_a_disk_that_syncs_nothing_is_a_fault_if_sends_wait_for_it(tmp_path: Path, is_sync_flush: bool) -> None:
    play = Play.make(tmp_path, is_sync_flush=is_sync_flush)
    header = play.control.header
    assert play.fault() == "" and play.after(SYNC_STUCK_S * 2) == "", "there is nothing to sync"
    header.published_phy_offset = 900
    assert play.after(1.0) == "" and bool(play.after(SYNC_STUCK_S + 1)) is is_sync_flush
    header.durable_phy_offset = 300
    assert play.after(SYNC_STUCK_S + 1) == "", "it goes on, if slowly"


def test_a_worker_that_does_not_serve_is_named() -> None:
    block = WorkerBlock("send", 0)
    spec = WorkerSpec(name="send", role="send", block=block, main=lambda _context: None, hang_timeout_s=10.0)
    block.begin(int(100e9))
    assert fault_of(spec, [], 100.0) == "worker send has not begun to serve"
    block.mark_ready()
    assert fault_of(spec, ["manager"], 104.0) == ""
    assert fault_of(spec, ["send"], 104.0) == "worker send does not run"
    assert fault_of(spec, [], 106.0) == "worker send hangs"


def test_a_worker_that_waits_for_its_first_connection_is_no_fault() -> None:
    """Fault: A member with a spare selector had a fault, so its group elected another master."""
    block = WorkerBlock("selector-1", 0)
    spec = WorkerSpec(name="selector-1", role="selector", block=block, main=lambda _context: None, starts_on=3)
    assert fault_of(spec, ["selector-1"], 100.0) == ""
    block.begin(int(100e9))
    assert fault_of(spec, ["selector-1"], 100.0) == "", "it may be that there is no memory for it"
    block.mark_ready()
    assert fault_of(spec, ["selector-1"], 100.0) == "worker selector-1 does not run"


def test_a_manager_that_reads_the_log_before_it_serves_has_no_fault_as_long_as_it_goes_on() -> None:
    """Fault: Reading the log for new topics counted as a fault of a new master."""
    block = WorkerBlock("manager", 0)
    spec = WorkerSpec(name="manager", role="manager", block=block, main=lambda _context: None, hang_timeout_s=10.0)
    block.begin(int(100e9))
    assert fault_of(spec, [], 101.0, 0.0) == "worker manager has not begun to serve"
    assert fault_of(spec, [], 120.0, 119.0) == ""
    assert fault_of(spec, [], 120.0, 114.0) == "worker manager has not begun to serve", "it is silent"
    assert fault_of(spec, ["manager"], 120.0, 119.0) == "worker manager does not run"
    marks = TreeMarks()
    marks.tree_fault = "x" * 300
    marks.manager_moved_s = 119.5
    assert marks.manager_moved_s == 119.5 and len(marks.tree_fault) == FAULT_BYTES_MAX - 1
