"""The confirmed position of a master with automatic failover: what everybody has who has to have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the replicator is C")

from rocketpy.failover.member_block import MemberBlock, MemberOrders
from rocketpy.native.core import ffi, lib
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.control_block import ControlBlock

A, B, C = ("a", "1f"), ("b", "2e"), ("c", "3d")
EPOCH = 7
MIB = 1 << 20


class Master:
    """Member a, whose log ends at `published`. The test writes rows of the slave table."""

    def __init__(self, root: Path, *, is_durable: bool = False) -> None:
        self.control, self.table, self.member = ControlBlock(root / "control", MIB), SlaveTable(), MemberBlock()
        self.member.set_own(A)
        self.confirm = ffi.new(
            "rp_confirm *",
            {
                "member": self.member.pointer,
                "control": self.control.header,
                "table": self.table.pointer,
                "is_durable": is_durable,
            },
        )

    def order(self, *counting: tuple[str, str], epoch: int = EPOCH) -> int:
        return self.member.give(MemberOrders(is_master=True, epoch=epoch, counting=frozenset(counting)))

    def ack(self, index: int, store: tuple[str, str], position: int, epoch: int = EPOCH) -> None:
        row = self.table.pointer.rows[index]
        row.store.member, row.store.incarnation = store[0].encode(), store[1].encode()
        row.state, row.epoch, row.acked_phy_offset = lib.RP_SLAVE_REPLICATING, epoch, position

    def publish(self, end: int, durable: int = 0) -> None:
        self.control.header.published_phy_offset, self.control.header.durable_phy_offset = end, durable

    def run(self) -> int:
        """Confirm what can be; the confirmed position."""
        before = self.confirmed
        has_moved = lib.rp_confirm_run(self.confirm)
        assert bool(has_moved) is (self.confirmed > before)
        assert self.member.confirmed(0) >= self.confirmed, "what is confirmed was proposed"
        return self.confirmed

    @property
    def confirmed(self) -> int:
        return int(self.control.header.confirmed_phy_offset)

    @property
    def alone(self) -> int:
        return int(self.member.pointer.alone_phy_offset)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path)
    yield master
    master.control.close()


def test_the_slowest_of_those_who_count_decides(master: Master) -> None:
    master.order(A, B, C)
    master.publish(1000)
    assert master.run() == 0, "two have acknowledged nothing"
    master.ack(0, B, 600)
    assert master.run() == 0
    master.ack(1, C, 400)
    assert master.run() == 400 and master.alone == 0
    master.ack(1, C, 2000)
    assert master.run() == 600
    master.ack(0, B, 2000)
    assert master.run() == 1000, "nothing is confirmed that this member has not"


def test_who_does_not_count_is_not_waited_for(master: Master) -> None:
    master.order(A, B)
    master.publish(1000)
    master.ack(0, C, 10)
    master.ack(1, B, 900)
    assert master.run() == 900


@pytest.mark.parametrize(("store", "epoch"), [(("b", "other"), EPOCH), (B, EPOCH - 1), (B, -1)])
def test_another_store_or_epoch_acknowledges_nothing(master: Master, store: tuple[str, str], epoch: int) -> None:
    master.order(A, B)
    master.publish(1000)
    master.ack(0, store, 900, epoch)
    assert master.run() == 0


def test_a_connection_that_is_gone_acknowledges_nothing_more(master: Master) -> None:
    master.order(A, B)
    master.publish(1000)
    master.ack(0, B, 500)
    assert master.run() == 500
    master.ack(0, B, 900)
    master.table.pointer.rows[0].state = lib.RP_SLAVE_FREE
    assert master.run() == 500


def test_of_two_connections_of_a_store_the_better_one_counts(master: Master) -> None:
    master.order(A, B)
    master.publish(1000)
    master.ack(0, B, 300)
    master.ack(1, B, 700)
    master.ack(2, B, 500)
    assert master.run() == 700


def test_what_is_confirmed_alone_is_named(master: Master) -> None:
    master.order(A)
    master.publish(1000)
    assert master.run() == 1000 and master.alone == 1000
    master.order(A, B)
    master.publish(2000)
    master.ack(0, B, 1500)
    assert master.run() == 1500 and master.alone == 1000


def test_with_sync_flush_this_member_has_what_is_on_its_disk(tmp_path: Path) -> None:
    master = Master(tmp_path, is_durable=True)
    master.order(A)
    master.publish(1000, durable=300)
    assert master.run() == 300
    master.publish(1000, durable=1000)
    assert master.run() == 1000
    master.control.close()


def test_without_an_epoch_nothing_is_confirmed(master: Master) -> None:
    master.publish(1000)
    assert master.run() == 0, "no orders"
    master.order(epoch=-1)
    assert master.run() == 0
    master.order()
    assert master.run() == 0, "nobody counts, not even this member"


def test_a_store_that_is_not_the_one_that_counts_confirms_nothing(master: Master) -> None:
    master.member.set_own(("a", "new"))
    master.order(A)
    master.publish(1000)
    assert master.run() == 0


def test_orders_that_are_being_changed_confirm_nothing(master: Master) -> None:
    master.order(A)
    master.publish(1000)
    master.member.pointer.version |= 1
    assert master.run() == 0
    master.order(A)
    assert master.run() == 1000


def test_a_restart_does_not_take_back_what_was_confirmed(master: Master) -> None:
    master.order(A)
    master.publish(1000)
    assert master.run() == 1000
    master.confirm.version_plus_1 = 0
    master.order(A, B)
    assert master.run() == 1000
