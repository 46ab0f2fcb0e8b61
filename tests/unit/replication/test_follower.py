"""Members of a group with automatic failover: master and follower, from HELLO to the confirmed position."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.failover.member_block import Following, MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.native.core import lib
from rocketpy.processes.member.replaced_master import ReplacedMaster
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.slave import LOOK_S, SlaveReplicator
from tests.support.member_pair import GROUP, IMAGE, A, B, MemberFollower, MemberMaster, epochs
from tests.support.slave_rig import FILE_SIZE

LOG, END = IMAGE.data, len(IMAGE.data)
FIRST, SECOND = IMAGE.records[5], IMAGE.records[16]  # where epochs begin
HISTORY = epochs((1, 0), (3, FIRST), (4, SECOND), (6, SECOND), (7, END))  # 4 and 7 have no bytes
Make = Callable[..., Any]


@pytest.fixture
def made() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    for one in reversed(made):
        one.close()


@pytest.fixture
def master(tmp_path: Path, made: list[Any]) -> MemberMaster:
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG))
    found: MemberMaster = made[-1]
    return found


@pytest.fixture
def follower(tmp_path: Path, made: list[Any]) -> Callable[..., MemberFollower]:
    def make(**options: Any) -> MemberFollower:
        made.append(MemberFollower(tmp_path / "b", **options))
        found: MemberFollower = made[-1]
        return found

    return make


def test_an_empty_member_gets_the_log_and_its_epochs(master: MemberMaster, follower: Make) -> None:
    b = follower()
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged() == {"b": Ack(B[1], 7, END)}, "b to acknowledge all")
    assert b.log == LOG and b.file.read() == HISTORY
    assert b.block.epochs_version > 0 and b.block.newest_epoch_seen == 7


def test_what_all_have_is_confirmed_on_both_sides(master: MemberMaster, follower: Make) -> None:
    b = follower()
    b.follow(master)
    b.turn_until(lambda: b.confirmed == END, "b to learn what is confirmed")
    assert master.confirmed == END and master.block.pointer.alone_phy_offset == 0


def test_a_follower_that_has_not_all_learns_no_more_than_it_has(master: MemberMaster, follower: Make) -> None:
    master.serve(A)
    b = follower()
    b.turn_until(lambda: master.confirmed == END, "a to confirm alone")
    b.follow(master)
    seen = set()

    def look() -> bool:
        seen.add(b.confirmed <= b.rig.published)
        return b.confirmed == END

    b.turn_until(look, "b to have all")
    assert seen == {True}


def test_an_epoch_is_in_the_file_before_its_first_byte_is_in_the_log(
    master: MemberMaster, follower: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = follower()
    written: list[tuple[EpochList, int]] = []
    write = EpochFile.write

    def noted(file: EpochFile, found: EpochList) -> None:
        written.append((found, b.rig.published))
        write(file, found)

    monkeypatch.setattr(EpochFile, "write", noted)
    b.follow(master)
    b.turn_until(lambda: b.rig.published == END, "b to have all")
    monkeypatch.undo()
    before: set[int] = set()
    for found, published in written:
        new = [entry for entry in found.entries if entry.number not in before]
        assert new and all(published <= entry.start for entry in new), f"{new} were written at {published}"
        before |= {entry.number for entry in found.entries}
    assert before == {1, 3, 4, 6, 7}


def test_a_follower_goes_on_where_its_log_ends(master: MemberMaster, follower: Make) -> None:
    b = follower(known=LOG[:SECOND], epoch_list=HISTORY.until(SECOND))
    b.follow(master)
    b.turn_until(lambda: b.rig.published == END, "b to have all")
    assert b.log == LOG and b.count(lib.RP_COUNT_STREAMS) == 1


def test_a_log_of_another_history_has_to_be_cut(master: MemberMaster, follower: Make) -> None:
    """b was the master of epoch 5, which nobody else has."""
    b = follower(known=LOG[: IMAGE.records[20]], epoch_list=epochs((1, 0), (3, FIRST), (5, SECOND)))
    b.follow(master)
    b.turn_until(lambda: b.block.cut_phy_offset is not None, "b to report the cut")
    assert b.block.cut_phy_offset == SECOND and not b.block.is_diverged
    assert b.rig.published == IMAGE.records[20], "nothing was appended"
    assert master.table.acknowledged() == {}, "nor acknowledged"
    b.turn_until(lambda: master.table.closed()["diverged"], "a to refuse the connection")


def test_what_was_confirmed_is_not_cut(master: MemberMaster, follower: Make) -> None:
    b = follower(known=LOG[: IMAGE.records[20]], epoch_list=epochs((1, 0), (3, FIRST), (5, SECOND)))
    b.rig.control.confirmed_phy_offset = IMAGE.records[18]
    b.follow(master)
    b.turn_until(lambda: b.block.is_diverged, "b to find that the logs do not fit")
    assert b.block.cut_phy_offset is None


def test_an_asynchronous_group_cuts_that_too(master: MemberMaster, follower: Make) -> None:
    b = follower(known=LOG[: IMAGE.records[20]], epoch_list=epochs((1, 0), (3, FIRST), (5, SECOND)), is_sync=False)
    b.rig.control.confirmed_phy_offset = IMAGE.records[18]
    b.follow(master)
    b.turn_until(lambda: b.block.cut_phy_offset == SECOND, "b to report the cut")


def damage(b: MemberFollower, position: int) -> None:
    """One byte of the log changes on the disk of b, where no epoch tells it."""
    path = b.file.path.parent / "commitlog" / f"{position - position % FILE_SIZE:020d}"
    with path.open("r+b") as file:
        file.seek(position % FILE_SIZE)
        byte = file.read(1)
        file.seek(position % FILE_SIZE)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("behind", [0, 4], ids=["at its end", "where it is to be cut"])
def test_a_damaged_byte_below_where_both_go_on(
    master: MemberMaster, follower: Make, caplog: pytest.LogCaptureFixture, is_sync: bool, behind: int
) -> None:
    """Fault: A member with a damaged byte within an epoch followed its master and was built upon."""
    end = IMAGE.records[16 + behind]
    listed = epochs((1, 0), (3, FIRST), *([(5, SECOND)] if behind else []))
    b = follower(known=LOG[:end], epoch_list=listed, is_sync=is_sync)
    damage(b, SECOND - 40)
    b.follow(master)
    b.turn_until(lambda: b.count(lib.RP_COUNT_FOLLOWING) == lib.RP_FOLLOWING_HALTED, "b to find the damage")
    assert b.block.is_diverged
    assert b.block.cut_phy_offset is None and b.rig.published == end and b.file.read() == listed
    assert master.table.acknowledged() == {}
    lines = [record.getMessage() for record in caplog.records if "rocketpy store verify" in record.getMessage()]
    assert len(lines) == 1 and f"and {SECOND}, though both are of one history" in lines[0]


def test_logs_with_nothing_in_common(master: MemberMaster, follower: Make) -> None:
    b = follower(known=LOG[:SECOND], epoch_list=epochs((2, 0)))
    b.follow(master)
    b.turn_until(lambda: b.count(lib.RP_COUNT_FOLLOWING) == lib.RP_FOLLOWING_HALTED, "b to halt")
    assert b.block.is_diverged and b.rig.published == SECOND


def test_an_older_master_is_not_followed_and_learns_of_the_newer_epoch(master: MemberMaster, follower: Make) -> None:
    b = follower()
    b.block.see_epoch(9)
    b.follow(master)
    b.turn_until(lambda: master.block.newest_epoch_seen == 9, "a to be told")
    assert b.rig.published == 0 and master.table.acknowledged() == {}


def test_a_log_of_a_newer_epoch_tells_the_master_too(master: MemberMaster, follower: Make) -> None:
    b = follower(known=LOG[:SECOND], epoch_list=epochs((1, 0), (3, FIRST), (8, SECOND)))
    b.follow(master)
    b.turn_until(lambda: master.block.newest_epoch_seen == 8, "a to be told")
    assert not b.block.is_diverged and b.block.cut_phy_offset is None


@pytest.mark.parametrize(("secret", "is_told"), [(b"0123456789abcdef", True), (b"another secret!!", False)])
def test_a_successor_tells_a_master_that_does_not_reach_etcd(
    tmp_path: Path, made: list[Any], secret: bytes, is_told: bool
) -> None:
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG, secret=b"0123456789abcdef"))
    block, file, group = MemberBlock(), EpochFile(tmp_path), attrs.evolve(GROUP, secret=secret)
    block.set_own(B)
    file.write(epochs((1, 0), (9, SECOND)))
    successor = ReplacedMaster(lambda: None, block, group, 2, file)
    successor.tell(made[-1].ha_address)
    assert made[-1].block.newest_epoch_seen == (9 if is_told else -1) and made[-1].table.acknowledged() == {}
    assert block.newest_epoch_seen == -1


def test_a_successor_that_was_replaced_itself_learns_that(
    master: MemberMaster, tmp_path: Path, made: list[Any]
) -> None:
    block, file = MemberBlock(), EpochFile(tmp_path)
    block.set_own(B)
    file.write(epochs((1, 0), (3, FIRST)))
    ReplacedMaster(lambda: None, block, GROUP, 2, file).tell(master.ha_address)
    assert block.newest_epoch_seen == 7 and master.block.newest_epoch_seen == -1


def test_orders_to_follow_nobody_end_the_stream(master: MemberMaster, follower: Make) -> None:
    b = follower()
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged(), "b to acknowledge something")
    assert b.block.stream_stopped == 0
    version = b.block.give(MemberOrders())
    b.turn_until(lambda: b.block.stream_stopped == version, "b to stop")
    assert b.rig.published == len(b.log) and lib.rp_ring_depth(b.rig.log_ring) == 0
    b.turn_until(lambda: not master.table.acknowledged(), "a to see that b has left")


def test_failures_of_a_master_that_was_lost_delay_no_later_one(
    master: MemberMaster, follower: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait after a failure is for the master that failed. A member that waits longer leaves the in-sync set.
    Fault: A follower's failed tries to reach a lost master delayed it by 5 s at the next switch-over."""
    pauses: list[float] = []
    pause = SlaveReplicator._pause

    def recorded(replicator: SlaveReplicator, seconds: float) -> None:
        pauses.append(seconds)
        pause(replicator, seconds)

    monkeypatch.setattr(SlaveReplicator, "_pause", recorded)
    b = follower()
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    b.block.give(MemberOrders(following=Following(member="x", epoch=6, ha_address=address, address=address)))
    b.turn_until(lambda: pauses.count(0.4) == 1, "b to try four times")
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged(), "b to acknowledge something")
    pauses.clear()
    version = b.block.give(MemberOrders())
    b.turn_until(lambda: b.block.stream_stopped == version, "b to stop")
    assert all(seconds <= LOOK_S for seconds in pauses)


def test_a_new_epoch_of_the_same_master_named_in_the_orders(master: MemberMaster, follower: Make) -> None:
    """The orders of a follower name a newer epoch: it leaves, and says why."""
    b = follower()
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged(), "b to acknowledge something")
    b.follow(master, epoch=12)
    b.turn_until(lambda: master.block.newest_epoch_seen == 12, "a to be told")


def test_a_master_that_missed_the_newer_epoch_is_told_again(
    master: MemberMaster, follower: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A follower went on with the stream of the older epoch when its only frame about the newer one was lost."""
    b = follower()
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged(), "b to acknowledge something")
    monkeypatch.setattr("rocketpy.replication.follower.fenced", lambda epoch: b"")  # the frame at the end of a stream
    b.follow(master, epoch=12)
    b.turn_until(lambda: master.block.newest_epoch_seen == 12, "a to be told")


def test_a_master_that_may_not_send_its_log_closes_its_slaves(master: MemberMaster, follower: Make) -> None:
    b = follower()
    b.follow(master)
    b.turn_until(lambda: master.table.acknowledged(), "b to acknowledge something")
    master.block.see_epoch(11)
    master.serve(A, B, sends_stream=False)
    b.turn_until(lambda: b.block.newest_epoch_seen == 11, "b to be told")
    b.turn_until(lambda: master.table.closed()["fenced"] == 1, "a to close the connection")


def test_an_epoch_that_is_not_open_yet_is_not_served(tmp_path: Path, made: list[Any], follower: Make) -> None:
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG))
    master, b = made[-1], follower()
    master.block.opened_epoch = -1
    b.follow(master)
    b.turn_until(lambda: master.table.closed()["failed"] >= 1, "a to refuse b")
    master.block.opened_epoch = 7
    b.turn_until(lambda: b.rig.published == END, "b to have all")


def test_both_prove_that_they_know_the_secret(tmp_path: Path, made: list[Any], follower: Make) -> None:
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG, secret=b"0123456789abcdef"))
    b = follower(secret=b"0123456789abcdef")
    b.follow(made[0])
    b.turn_until(lambda: b.rig.published == END, "b to have all")


def test_a_stranger_cannot_end_the_rule_of_a_master(tmp_path: Path, made: list[Any], follower: Make) -> None:
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG, secret=b"0123456789abcdef"))
    b = follower(known=LOG[:SECOND], epoch_list=epochs((1, 0), (900, FIRST)))
    b.follow(made[0])
    b.turn_until(lambda: made[0].table.closed()["stranger"] >= 1, "a to refuse b")
    assert made[0].block.newest_epoch_seen == -1


def test_a_hello_of_a_stranger_needs_no_epoch_file(tmp_path: Path, made: list[Any], follower: Make) -> None:
    """Fault: A damaged epoch file ended a master's replicator at each HELLO, also a stranger's."""
    made.append(MemberMaster(tmp_path / "a", HISTORY, LOG, secret=b"0123456789abcdef"))
    (tmp_path / "a" / EpochFile(tmp_path).path.name).write_bytes(b"damaged since the tree was opened")
    stranger = follower(secret=b"another secret!!")
    stranger.follow(made[0])
    stranger.turn_until(lambda: made[0].table.closed()["stranger"] >= 1, "a to refuse a stranger")
    made.pop().close()
    b = follower(secret=b"0123456789abcdef")
    b.follow(made[0])
    b.turn_until(lambda: b.rig.published == END, "b to have all")


def test_an_epoch_file_that_is_damaged_is_a_line_in_the_log(
    master: MemberMaster, follower: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A damaged epoch file logged a traceback at each try to follow."""
    b = follower()
    b.file.path.write_bytes(b"no epochs")
    b.follow(master)
    b.turn_until(lambda: "cannot follow the master" in caplog.text, "b to complain")
    assert "epoch file" in caplog.text and "Traceback" not in caplog.text
