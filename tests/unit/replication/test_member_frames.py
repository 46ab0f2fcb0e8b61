"""The follower's end of a stream with automatic failover, against a socket that the test holds: epochs, the confirmed
position, and frames that a master of the group does not send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.failover.member_block import Following, MemberBlock, MemberOrders
from rocketpy.native.core import lib
from rocketpy.reactor.ring import WorkerBlock
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.follower import Follower
from rocketpy.replication.handshake_messages import Extent, Welcome
from rocketpy.replication.reference_start import Start
from rocketpy.store.control_block import ControlBlock
from tests.support.member_pair import epochs
from tests.support.own_frames import ack, data_frame, fenced, heartbeat
from tests.unit.replication.test_stream import Rig

HISTORY = epochs((1, 0), (3, 100), (4, 300), (6, 300))
ASKS = (lib.RP_STREAM_ORDERS, lib.RP_STREAM_NEEDS_EPOCH)
FOLLOW = MemberOrders(following=Following(member="a", epoch=6, ha_address="a:2", address="a:1"))


class Member(Rig):
    """A follower without a log, that has been welcomed to epoch 6."""

    def __init__(self, root: Path) -> None:
        self.member, self.file = MemberBlock(), EpochFile(root)
        self.member.set_own(("b", "2e"))
        self.member.give(FOLLOW)
        self.store = WorkerBlock("store", 2)
        super().__init__(root, Start(0, 0), is_rocketpy=True, follower=self.join)

    def join(self, control: ControlBlock) -> Follower:
        follower = Follower(self.member, self.file, control.header, self.store.pointer, True)
        assert follower.master(lambda: True) == ("a:1", "a:2")
        assert follower.membership().member == "b"
        follower.join(Welcome(0, 1000, HISTORY), Extent(0, 0), lambda position, size: 0)
        self.follower = follower
        return follower

    def take(self, *frames: bytes) -> bool:
        """Receive them; whether the stream goes on."""
        self.master.sendall(b"".join(frames))
        event = self.stream.turn(0)
        while event in ASKS and self.follower.go_on(self.stream._handle, event):
            event = self.stream.turn(0)
        return event == lib.RP_STREAM_IDLE

    @property
    def confirmed(self) -> int:
        return int(self.control.header.confirmed_phy_offset)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Member]:
    rig = Member(tmp_path)
    yield rig
    rig.close()


def test_acknowledgements_name_the_epoch_of_the_master(rig: Member) -> None:
    assert rig.take() and rig.reports() == ack(0, 6).hex()


def test_each_epoch_is_written_when_it_is_reached(rig: Member) -> None:
    assert rig.file.read() == epochs((1, 0))
    assert rig.take(data_frame(0, b"a" * 99, epoch=1)) and rig.file.read() == epochs((1, 0))
    assert rig.take(data_frame(99, b"a", epoch=1)), "the end of epoch 1 is the beginning of epoch 3"
    assert rig.file.read() == epochs((1, 0), (3, 100))
    assert rig.take(data_frame(100, b"b" * 200, epoch=3), data_frame(300, b"c", epoch=6))
    assert rig.file.read() == HISTORY
    assert rig.received() == (0, b"a" * 100 + b"b" * 200 + b"c")


@pytest.mark.parametrize(
    "frame",
    [
        data_frame(0, b"a" * 100, epoch=3),
        data_frame(0, b"a" * 101, epoch=1),  # bytes of two epochs
        data_frame(0, b"a", epoch=6),
        heartbeat(1000, epoch=4),
    ],
)
def test_bytes_of_another_epoch_end_the_stream(rig: Member, frame: bytes) -> None:
    assert not rig.take(frame)
    assert "another position" in rig.stream.reason and rig.chunks() == []


def test_what_is_confirmed_is_never_more_than_is_here(rig: Member) -> None:
    assert rig.take(data_frame(0, b"a" * 50, end=900, epoch=1)) and rig.confirmed == 0
    rig.publish(40)
    assert rig.take() and rig.confirmed == 40
    rig.publish(50)
    assert rig.take(heartbeat(1000, confirmed=45, epoch=6)) and rig.confirmed == 50, "900 was confirmed before"


def test_the_confirmed_position_does_not_go_back(rig: Member) -> None:
    rig.control.header.confirmed_phy_offset = 70
    rig.publish(100)
    assert rig.take(heartbeat(1000, confirmed=60, epoch=6)) and rig.confirmed == 70


def test_a_master_that_has_been_replaced_says_so(rig: Member) -> None:
    assert not rig.take(fenced(9), b"what follows is not read")
    assert rig.member.newest_epoch_seen == 9 and "newer epoch" in rig.stream.reason


def test_new_orders_for_the_same_master_change_nothing(rig: Member) -> None:
    rig.member.pointer.version += 2
    assert rig.take(data_frame(0, b"a", epoch=1)) and rig.received() == (0, b"a")


def test_a_newer_epoch_in_the_orders_is_passed_on_to_the_old_master(rig: Member) -> None:
    assert rig.take() and rig.reports()
    following = Following(member="c", epoch=8, ha_address="c:2", address="c:1")
    rig.member.give(MemberOrders(following=following))
    assert not rig.take() and rig.reports() == fenced(8).hex()


def test_without_failover_nobody_sends_fenced(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Start(0, 0), is_rocketpy=True)
    rig.master.sendall(fenced(9) + bytes(30))
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED and "not known here" in rig.stream.reason
    rig.close()


def test_the_store_worker_is_woken_when_more_is_confirmed(rig: Member) -> None:
    lib.rp_worker_prepare_sleep(rig.store.pointer)
    rig.publish(10)
    assert rig.take(heartbeat(1000, confirmed=10, epoch=6))
    assert not rig.store.pointer.asleep
