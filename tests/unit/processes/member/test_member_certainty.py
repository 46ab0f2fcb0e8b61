"""A broker registers as master only while it certainly is the one."""

from __future__ import annotations

import pytest

from rocketpy.failover.member_block import NO_DEADLINE_NS, MemberBlock, MemberOrders
from rocketpy.failover.rules.states import State
from rocketpy.processes.member.certainty import GRACE_S, PAUSE_S, MasterCertainty
from rocketpy.processes.member.shown import MemberShown

EPOCH = 7


class Rig:
    """A master of epoch 7 at 100 s, with a lease until 104 s."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.block, self.shown = MemberBlock(), MemberShown(lambda: self.now_s)
        self.block.give(MemberOrders(is_master=True, epoch=EPOCH, is_broker_0=True))
        self.block.deadline_ns = NO_DEADLINE_NS
        self.shown.show(State.MASTER, EPOCH, 2, 104.0)
        self.certainty = MasterCertainty(self.block, self.shown, lambda: self.now_s)

    def epochs(self, seconds: int) -> list[int | None]:
        """As it is asked once a second."""
        found = []
        for _ in range(seconds):
            self.now_s += 1.0
            found.append(self.certainty.epoch())
        return found


def test_a_master_with_its_lease_is_certain() -> None:
    assert Rig().epochs(3) == [EPOCH] * 3


def test_a_master_that_wakes_without_its_lease_is_not_certain_until_it_has_run_a_while() -> None:
    """Its orders are those of before the pause."""
    rig = Rig()
    assert rig.epochs(1) == [EPOCH]
    rig.now_s += 30.0
    assert rig.epochs(5) == [None, None, None, EPOCH, EPOCH], "etcd is away, and nobody else was elected"
    rig.now_s += PAUSE_S
    assert rig.epochs(1) == [None]
    assert GRACE_S == 3.0


def test_a_lease_that_is_back_is_enough() -> None:
    rig = Rig()
    rig.now_s += 30.0
    assert rig.epochs(1) == [None]
    rig.shown.show(State.MASTER, EPOCH, 2, rig.now_s + 6)
    assert rig.epochs(1) == [EPOCH]


@pytest.mark.parametrize("why", ["a slave", "no epoch", "a newer epoch", "the deadline"])
def test_others_are_not_certain(why: str) -> None:
    rig = Rig()
    if why in ("a slave", "no epoch"):
        rig.block.give(
            MemberOrders(is_master=True, epoch=-1 if why == "no epoch" else EPOCH, is_broker_0=why != "a slave")
        )
    if why == "a newer epoch":
        rig.block.see_epoch(EPOCH + 1)
    if why == "the deadline":
        rig.block.deadline_ns = 101 * 10**9
    assert rig.epochs(1) == [None]
