"""Who has to acknowledge, who may enter, and since when a follower keeps up."""

from __future__ import annotations

import pytest

from rocketpy.failover.rules import in_sync
from rocketpy.failover.rules.epochs import CUT_BYTES_MAX, Epoch, EpochList, Log, cut_for, may_serve, may_take
from rocketpy.failover.rules.in_sync import Ack, Progress
from rocketpy.failover.rules.records import GroupState

TWO = GroupState(epoch=3, master="a", in_sync={"a": "i", "b": "k"})
ONE = in_sync.without(TWO, ["b"])
THREE = in_sync.having(TWO, {"c": "m"})


def test_sets_that_were_asked_for_count_beside_the_old_one() -> None:
    assert in_sync.counting_stores(TWO, []) == {("a", "i"), ("b", "k")}
    assert in_sync.counting_stores(TWO, [ONE, THREE]) == {("a", "i"), ("b", "k"), ("c", "m")}


@pytest.mark.parametrize(
    ("acks", "position"),
    [
        ({}, -1),
        ({"b": Ack("k", 3, 40)}, 40),
        ({"b": Ack("k", 3, 90)}, 50),  # never beyond the own log
        ({"b": Ack("k", 2, 40)}, -1),  # another epoch
        ({"b": Ack("x", 3, 40)}, -1),  # another store
    ],
)
def test_everybody_who_counts_has_to_have_it(acks: dict[str, Ack], position: int) -> None:
    counting = in_sync.counting_stores(TWO, [])
    assert in_sync.confirmable(("a", "i"), 50, 3, counting, acks) == position


@pytest.mark.parametrize(
    ("epoch", "position", "enters"), [(3, 30, True), (3, 29, False), (2, 99, False), (3, 24, False), (3, 99, True)]
)
def test_entering_takes_all_that_may_have_been_acknowledged(epoch: int, position: int, enters: bool) -> None:
    assert in_sync.may_enter(Ack("m", epoch, position), 3, epoch_start=25, confirmed=30) is enters
    assert in_sync.may_enter(Ack("m", epoch, position), 3, epoch_start=30, confirmed=25) is enters


def test_a_follower_keeps_up_while_it_has_what_the_master_had_a_while_ago() -> None:
    progress = Progress(caught_up_s=0.0)
    for turn in range(1, 11):  # always a turn behind: 100 bytes a second
        progress.record(position=100 * (turn - 1), end=100 * turn, now_s=float(turn))
    assert progress.caught_up_s == 9.0
    for turn in range(11, 21):  # it stands still
        progress.record(position=900, end=100 * turn, now_s=float(turn))
    assert progress.caught_up_s == 9.0
    progress.record(position=2000, end=2000, now_s=21.0)
    assert progress.caught_up_s == 21.0


def log(end: int, confirmed: int, *starts: tuple[int, int]) -> Log:
    return Log(epochs=EpochList(tuple(Epoch(*start) for start in starts)), end=end, confirmed=confirmed)


@pytest.mark.parametrize(
    ("own", "is_sync", "cut"),
    [
        (log(30, 20, (1, 0)), True, 30),  # behind
        (log(60, 50, (1, 0)), True, 50),  # a tail that nobody else has
        (log(60, 51, (1, 0)), True, None),  # of which a part was shown
        (log(60, 51, (1, 0)), False, 50),
        (log(60, 0, (1, 5)), False, None),  # nothing in common
        (log(0, 0), True, 0),
    ],
)
def test_where_a_log_is_cut(own: Log, is_sync: bool, cut: int | None) -> None:
    assert cut_for(own, log(80, 70, (1, 0), (2, 50)), is_sync=is_sync) == cut


@pytest.mark.parametrize(("more", "cut"), [(0, 50), (1, None)])
def test_an_asynchronous_group_cuts_no_more_than_a_failover_leaves(more: int, cut: int | None) -> None:
    own = log(50 + CUT_BYTES_MAX + more, 50, (1, 0))
    assert cut_for(own, log(80, 70, (1, 0), (2, 50)), is_sync=False) == cut
    assert cut_for(own, log(80, 70, (1, 0), (2, 50)), is_sync=True) == 50  # nobody was told that it is stored


@pytest.mark.parametrize(
    ("own", "unclean", "cut"),
    [
        (log(60, 51, (1, 0)), 2, 50),  # the former lone master, after `haElect --unclean` began epoch 2
        (log(60, 51, (1, 0)), 3, 50),  # and after an election since
        (log(60, 51, (1, 0)), 0, None),
        (log(60, 51, (1, 0)), 1, None),  # that was before: this log has it
        (log(60, 51, (1, 0)), 4, None),  # the master's log does not have it
        (log(70, 65, (1, 0), (2, 50)), 2, None),  # it differs after the unclean epoch
        (log(60, 0, (7, 5)), 9, None),  # nothing in common
    ],
)
@pytest.mark.parametrize("is_sync", [True, False])
def test_an_operator_gives_up_what_a_lone_master_had(own: Log, unclean: int, cut: int | None, is_sync: bool) -> None:
    """Fault: After an unclean election the former lone master halted instead of being cut."""
    master = log(80, 70, (1, 0), (2, 50), (3, 60))
    expected = cut_for(own, master, is_sync=is_sync) if cut is None else cut
    assert cut_for(own, master, is_sync=is_sync, unclean=unclean) == expected
    if is_sync and cut is None:
        assert expected is None


def test_nobody_follows_an_older_master() -> None:
    epochs = EpochList((Epoch(1, 0), Epoch(4, 10)))
    assert (
        may_take(4, epochs, newest_epoch_seen=4)
        and not may_take(3, epochs, newest_epoch_seen=-1)
        and not may_take(4, epochs, newest_epoch_seen=5)
    )
    assert may_serve(4, epochs, -1) and not may_serve(3, epochs, -1) and not may_serve(4, epochs, 5)
