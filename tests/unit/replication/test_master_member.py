"""Which epoch a master with automatic failover serves: the one that it was told, has opened, and has in its log."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.failover.member_block import MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.replication.master import MasterMember


@pytest.mark.parametrize(
    ("orders", "opened", "last", "epoch"),
    [
        (MemberOrders(is_master=True, epoch=5, sends_stream=True), 5, 5, 5),
        (MemberOrders(is_master=True, epoch=5), 5, 5, None),
        (MemberOrders(is_master=True, epoch=5, sends_stream=True), 4, 5, None),
        (MemberOrders(is_master=True, epoch=5, sends_stream=True), 5, 4, None),
        (MemberOrders(), -1, 5, None),
    ],
    ids=["serves", "no stream", "not opened", "another log", "no master"],
)
def test_a_member_serves_the_epoch_that_it_was_told_and_has_opened(
    orders: MemberOrders, opened: int, last: int, epoch: int | None
) -> None:
    block = MemberBlock()
    block.give(orders)
    block.opened_epoch = opened
    assert MasterMember(block, EpochList((Epoch(last, 0),))).epoch() == epoch


def test_while_its_orders_change_a_member_serves_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    block = MemberBlock()
    monkeypatch.setattr(block, "orders", lambda: None)
    assert MasterMember(block, EpochList((Epoch(5, 0),))).epoch() is None
