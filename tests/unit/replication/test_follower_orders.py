"""A follower's orders, its name and where it has to cut: without a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.failover.member_block import Following, MemberBlock, MemberOrders
from rocketpy.native.core import ffi
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.errors import MasterUnusable, NeedsCut, OtherOrders
from rocketpy.replication.follower import Follower
from rocketpy.replication.handshake_messages import Extent, Tail, Welcome
from tests.support.member_pair import B, epochs

FOLLOWING = Following(member="a", epoch=6, ha_address="10.0.0.1:10912", address="10.0.0.1:10911")
ADDRESSES = (FOLLOWING.address, FOLLOWING.ha_address)


@pytest.fixture
def control() -> Any:
    return ffi.new("rp_control *")


@pytest.fixture
def follower(tmp_path: Path, control: Any) -> Follower:
    return Follower(MemberBlock(), EpochFile(tmp_path), control, ffi.NULL, is_sync=True)


def test_a_stream_has_stopped_when_all_of_it_is_in_the_log(follower: Follower) -> None:
    """The coordinator lets this member campaign then."""
    block = follower.block
    assert follower.master(lambda: True) is None or block.stream_stopped == 0
    block.give(MemberOrders(following=FOLLOWING))
    assert follower.master(lambda: True) == ADDRESSES and block.stream_stopped == 0
    version = block.give(MemberOrders())
    assert follower.has_news
    assert follower.master(lambda: False) is None and block.stream_stopped == 0, "the ring has more"
    assert follower.master(lambda: True) is None and block.stream_stopped == version
    assert not follower.has_news
    block.give(MemberOrders(following=FOLLOWING))
    assert follower.master(lambda: True) == ADDRESSES and block.stream_stopped == 0


def test_other_orders_end_a_handshake(follower: Follower) -> None:
    follower.block.give(MemberOrders(following=FOLLOWING))
    follower.master(lambda: True)
    follower.check()
    follower.block.give(MemberOrders())
    with pytest.raises(OtherOrders):
        follower.check()


def test_a_store_without_a_name_does_not_introduce_itself(follower: Follower) -> None:
    with pytest.raises(MasterUnusable, match="no incarnation yet"):
        follower.membership()
    follower.block.set_own(B)
    assert (follower.membership().member, follower.membership().incarnation) == B


@pytest.mark.parametrize("crc", [7, 8])
def test_where_the_log_has_to_be_cut_is_told_when_the_rest_is_equal(follower: Follower, crc: int) -> None:
    follower.block.set_own(B)
    follower.file.write(epochs((1, 0), (3, 500)))
    follower.membership()
    welcome = Welcome(450, 2000, epochs((1, 0), (6, 450)), 450, tail=Tail(0, 7))
    with pytest.raises(NeedsCut if crc == 7 else Exception) as raised:
        follower.join(welcome, Extent(0, 900), lambda _at, _size: crc)
    assert isinstance(raised.value, NeedsCut) is (crc == 7)
    assert int(follower.block.pointer.cut_phy_offset) == (450 if crc == 7 else 2**64 - 1)
    assert follower.file.read() == epochs((1, 0), (3, 500)), "the log still has them"
