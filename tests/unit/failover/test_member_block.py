"""The member block: orders of the coordinator, reports of the workers."""

from __future__ import annotations

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="shared memory is C")

from rocketpy.failover.member_block import COUNTING_MAX, NO_DEADLINE_NS, Following, MemberBlock, MemberOrders, StoreId
from rocketpy.native.core import lib

FOLLOW = MemberOrders(
    following=Following(member="b-1", epoch=7, ha_address="[::1]:10912", address="10.0.0.1:10911"),
)
SERVE = MemberOrders(
    is_master=True,
    epoch=8,
    takes_sends=True,
    answers_waits=True,
    sends_stream=True,
    is_broker_0=True,
    counting=frozenset({("a", "1f"), ("b", "2e"), ("b", "3d")}),
    unclean_epoch=4,
)


def test_a_new_block_orders_nothing() -> None:
    block = MemberBlock()
    assert block.orders() == (MemberOrders(), 0)
    assert block.deadline_ns == 0 and block.own is None and block.cut_phy_offset is None
    assert (block.opened_epoch, block.newest_epoch_seen, block.sends_refused, block.stream_stopped) == (-1, -1, 0, 0)


@pytest.mark.parametrize("orders", [FOLLOW, SERVE])
def test_orders_are_read_as_they_were_given(orders: MemberOrders) -> None:
    block = MemberBlock()
    version = block.give(orders)
    assert version == block.version == 2
    assert block.orders() == (orders, 2)


def test_orders_that_hold_already_change_nothing() -> None:
    block = MemberBlock()
    assert block.give(MemberOrders()) == 0
    assert block.give(SERVE) == block.give(attrs.evolve(SERVE)) == 2
    assert block.give(attrs.evolve(SERVE, takes_sends=False)) == 4


def test_orders_that_are_being_changed_are_not_read() -> None:
    block = MemberBlock()
    block.pointer.version = 5  # the coordinator died in the middle
    assert block.orders() is None and not lib.rp_member_holds(block.pointer, 4)
    assert block.give(MemberOrders()) == 6, "its successor gives them anew, although they may be equal"
    assert block.orders() == (MemberOrders(), 6)


def test_a_position_that_was_proposed_may_be_confirmed() -> None:
    block = MemberBlock()
    assert block.confirmed(100) == 100
    block.pointer.proposed_phy_offset = 300
    assert block.confirmed(100) == 300


def test_names_that_do_not_fit_are_refused() -> None:
    block = MemberBlock()
    with pytest.raises(ValueError, match="256 bytes, at most 255"):
        block.set_own(("ä" * 128, "1f"))
    with pytest.raises(ValueError, match="zero byte"):
        block.set_own(("a\0b", "1f"))
    with pytest.raises(ValueError, match=f"33 stores have to acknowledge, at most {COUNTING_MAX}"):
        block.give(MemberOrders(counting=frozenset((str(i), "") for i in range(COUNTING_MAX + 1))))
    assert block.version == 0


def test_the_own_store() -> None:
    block = MemberBlock()
    block.set_own(("ä" * 127, "f" * 63))
    assert block.own == StoreId("ä" * 127, "f" * 63)
    block.pointer.own_version |= 1
    assert block.own is None
    block.set_own(("a", "2e"))
    assert block.own == StoreId("a", "2e")


def test_a_deadline_can_be_none() -> None:
    block = MemberBlock()
    block.deadline_ns = NO_DEADLINE_NS
    assert block.deadline_ns == NO_DEADLINE_NS and block.version == 0


def test_the_newest_epoch_seen_only_grows() -> None:
    block = MemberBlock()
    for epoch, newest in ((3, 3), (2, 3), (9, 9)):
        block.see_epoch(epoch)
        assert block.newest_epoch_seen == newest


def test_an_epoch_that_is_refuted_is_forgotten_unless_another_was_seen() -> None:
    block = MemberBlock()
    block.see_epoch(9)
    block.refute_epoch(8, 3)
    assert block.newest_epoch_seen == 9
    block.refute_epoch(9, 3)
    assert block.newest_epoch_seen == 3


def test_a_new_tree_begins_with_its_own_reports() -> None:
    block = MemberBlock()
    pointer = block.pointer
    pointer.opened_epoch, pointer.sends_refused, pointer.stream_stopped = 4, 6, 8
    pointer.cut_phy_offset, pointer.diverged, pointer.proposed_phy_offset = 1000, 1, 77
    block.see_epoch(5)
    block.begin_tree()
    assert (block.opened_epoch, block.sends_refused, block.stream_stopped) == (-1, 0, 0)
    assert block.cut_phy_offset is None and not block.is_diverged
    assert block.newest_epoch_seen == 5 and block.confirmed(0) == 77, "these do not end with a tree"
