"""Nothing is confirmed under an old in-sync set that the coordinator did not know of when it changed the set, wherever
the replicator is stopped: its step is stopped at each machine instruction from before it proposes a position until it
has confirmed it, the set is changed, and the step goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the replicator is C")

from rocketpy.failover.member_block import MemberBlock
from rocketpy.native.core import ffi, lib
from tests.support.stepping import Steps, can_step
from tests.unit.replication.test_confirm import A, B, Master

pytestmark = pytest.mark.skipif(not can_step(), reason="children cannot be traced here")

END = 1000
MARGIN = 20  # instructions before the proposal and after the confirmation


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path)
    yield master
    master.control.close()


def begin(master: Master) -> Steps:
    """A replicator that knows its orders and enters rp_confirm_run, to confirm the end of the log."""
    master.control.header.confirmed_phy_offset = 0
    master.member = MemberBlock()
    master.member.set_own(A)
    master.confirm.member, master.confirm.version_plus_1 = master.member.pointer, 0
    master.order(A)
    master.publish(END)
    lib.rp_confirm_look(master.confirm)
    run = ffi.addressof(lib, "rp_confirm_run")
    return Steps(lambda: lambda: run(master.confirm), entry=int(ffi.cast("uintptr_t", run)))


def find_steps(master: Master) -> tuple[int, int]:
    """How many instructions are executed until the position is proposed, and until it is confirmed."""
    steps, done, proposed = begin(master), 0, 0
    while not master.confirmed:
        assert steps.run(1) == 1
        done += 1
        if not proposed and master.member.confirmed(0):
            proposed = done
    steps.kill()
    return proposed, done


def test_a_set_that_changes_at_any_instruction(master: Master) -> None:
    proposed, confirmed = find_steps(master)
    assert 0 < proposed < confirmed
    outcomes = set()
    for stop in range(proposed - MARGIN, confirmed + MARGIN):
        steps = begin(master)
        assert steps.run(stop) == stop
        master.order(A, B)  # the coordinator: B is to count
        known = master.member.confirmed(master.confirmed)
        steps.finish()
        assert master.confirmed <= known, f"stopped after {stop} instructions"
        outcomes.add((master.confirmed, known))
    assert outcomes == {(0, 0), (0, END), (END, END)}, "not known, proposed in vain, confirmed"
