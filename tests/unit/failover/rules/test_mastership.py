"""Who enters and leaves the in-sync set of a master that takes messages meanwhile, and to whom it switches over."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.failover.rules.epochs import EpochList
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.failover.rules.mastership import Mastership
from rocketpy.failover.rules.records import GroupState, MasterRecord, MemberRecord, SwitchRequest
from rocketpy.failover.rules.requests import Report, View
from tests.support.cases import cases

ALONE = GroupState(epoch=3, master="a", in_sync={"a": "i"})
PAIR = GroupState(epoch=3, master="a", in_sync={"a": "i", "b": "k"})
KEEP_UP_S = 3.0


def report(end: int, confirmed: int, acked: int, epoch: int = 3) -> Report:
    return Report(
        incarnation="i",
        epochs=EpochList().opened(3, 0),
        end=end,
        confirmed=confirmed,
        done=True,
        acks={"b": Ack("k", epoch, acked)},
    )


def step(master: Mastership, now_s: float, seen: Report, known: GroupState = ALONE) -> GroupState | None:
    return master.change_of_set(now_s, known, seen, seen.confirmed, KEEP_UP_S)


def made() -> Mastership:
    return Mastership("a", "i", 3, since_s=0.0)


def test_who_enters_counts_before_etcd_is_asked() -> None:
    """The broker may have confirmed more, without the follower, by the time that the orders that count it hold.
    Fault: A follower could enter the in-sync set without the last confirmed messages."""
    master = made()
    assert step(master, 10.0, report(100, 100, 100)) is None
    assert master.entering == {("b", "k")}
    assert step(master, 10.2, report(200, 150, 120)) is None, "150 was confirmed before it counted"
    assert master.entering == {("b", "k")}
    asked = step(master, 10.4, report(300, 150, 150))
    assert asked is not None and asked.in_sync == {"a": "i", "b": "k"}


def test_a_follower_enters_although_it_is_always_a_little_behind() -> None:
    """Fault: Under load a follower could never enter the in-sync set."""
    master, asked, confirmed = made(), None, 0
    for turn in range(1, 10):
        end = 1000 * turn
        acked = end - 10
        confirmed = max(confirmed, min(end, acked) if master.entering else end)
        asked = asked or step(master, 10 + 0.2 * turn, report(end, confirmed, acked))
    assert asked is not None and asked.in_sync == {"a": "i", "b": "k"}


def test_one_that_stops_on_the_way_does_not_count_for_ever() -> None:
    master = made()
    assert step(master, 10.0, report(100, 100, 100)) is None and master.entering
    assert step(master, 12.0, report(200, 150, 100)) is None and master.entering
    assert step(master, 14.0, report(200, 150, 100)) is None and not master.entering


def test_another_store_of_the_same_member_begins_anew() -> None:
    master = made()
    assert step(master, 10.0, report(100, 100, 100)) is None
    other = report(100, 100, 100)
    other.acks["b"] = Ack("other", 3, 100)  # type: ignore[index]  # a dict
    assert step(master, 10.2, other) is None and master.entering == {("b", "other")}


def test_who_follows_another_epoch_does_not_count() -> None:
    master = made()
    assert step(master, 10.0, report(100, 100, 100, epoch=2)) is None and not master.entering


def test_who_changes_to_another_epoch_counts_no_more() -> None:
    master = made()
    assert step(master, 10.0, report(100, 100, 100)) is None and master.entering
    assert step(master, 10.2, report(100, 100, 100, epoch=2)) is None and not master.entering


def test_a_follower_of_an_empty_log_enters() -> None:
    master = made()
    assert step(master, 10.0, report(0, 0, 0)) is None and master.entering == {("b", "k")}


def test_who_has_never_caught_up_does_not_count() -> None:
    """The epoch has just begun: only a member of the set has a time from then on."""
    master = Mastership("a", "i", 3, since_s=10.0)
    assert step(master, 10.0, report(100, 0, 50)) is None and not master.entering


def test_a_member_of_the_set_that_keeps_up_changes_nothing() -> None:
    master = made()
    for now_s in (10.0, 10.2, 10.4):
        assert step(master, now_s, report(100, 100, 100), PAIR) is None and not master.entering
    assert master.acknowledging(PAIR, report(100, 100, 0).acks) == {"b"}
    assert master.acknowledging(PAIR, report(100, 100, 0, epoch=2).acks) == frozenset()


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_member_that_does_not_keep_up_leaves_the_set(epoch: int) -> None:
    """Neither does an acknowledgement of another epoch."""
    master = Mastership("a", "i", 3, since_s=10.0)
    behind = report(100, 0, 100 if epoch == 2 else -1, epoch)
    assert step(master, 10.0, behind, PAIR) is None
    assert step(master, 10.0 + KEEP_UP_S, behind, PAIR) is None
    assert step(master, 10.1 + KEEP_UP_S, behind, PAIR) == ALONE


def test_a_member_that_does_not_come_leaves_the_set() -> None:
    master = Mastership("a", "i", 3, since_s=10.0)
    nobody = attrs.evolve(report(100, 0, 0), acks={})
    assert step(master, 10.0 + KEEP_UP_S, nobody, PAIR) is None
    assert step(master, 10.1 + KEEP_UP_S, nobody, PAIR) == ALONE


def test_a_member_that_comes_with_another_store_leaves_the_set_at_once() -> None:
    other = attrs.evolve(report(100, 100, 100), acks={"b": Ack("other", 3, 100)})
    assert step(made(), 0.1, other, PAIR) == ALONE
    older = attrs.evolve(other, acks={"b": Ack("other", 2, 100)})
    assert step(made(), 0.1, older, PAIR) is None, "as a follower of this epoch only"


# --- switch-over ------------------------------------------------------------------------------------------------------


def member(incarnation: str, lease: int) -> MemberRecord:
    return MemberRecord(address="", ha_address="", broker_id=1, incarnation=incarnation, epoch=3, end=100, lease=lease)


REQUEST = SwitchRequest(from_epoch=3, to="b", until_ms=1000)
WANTED = View(revision=1, state=PAIR, members={"a": member("i", 7), "b": member("k", 8)}, switch=REQUEST)


@cases(
    "view",
    [
        attrs.evolve(WANTED, switch=None),
        attrs.evolve(WANTED, switch=attrs.evolve(REQUEST, from_epoch=2)),
        attrs.evolve(WANTED, switch=attrs.evolve(REQUEST, to="a")),
        attrs.evolve(WANTED, switch=attrs.evolve(REQUEST, until_ms=999)),
        attrs.evolve(WANTED, state=None),
        attrs.evolve(WANTED, state=ALONE),  # b would lack messages
        attrs.evolve(WANTED, members={"a": member("i", 7)}),  # b is not alive
        attrs.evolve(WANTED, members={"a": member("i", 7), "b": member("other", 8)}),  # b has lost its store
    ],
)
def test_a_request_that_cannot_be_carried_out_is_left_alone(view: View) -> None:
    master = made()
    assert not master.accept_switch_over(view, wall_ms=999)
    assert master.switch_over(view, report(100, 100, 100)) is None
    assert master.accept_switch_over(WANTED, wall_ms=999), "it has not been tried"


def test_a_request_is_tried_once() -> None:
    master = made()
    assert master.accept_switch_over(WANTED, wall_ms=999)
    assert not master.accept_switch_over(WANTED, wall_ms=999)
    assert not master.accept_switch_over(attrs.evolve(WANTED, switch=None), wall_ms=999), "withdrawn"
    again = attrs.evolve(WANTED, switch=attrs.evolve(REQUEST, until_ms=2000))
    assert master.accept_switch_over(again, wall_ms=999), "the operator has asked again"


@cases(
    "seen, view",
    [
        (report(100, 100, 99), WANTED),
        (report(100, 100, 100, epoch=2), WANTED),
        (attrs.evolve(report(100, 100, 100), acks={}), WANTED),
        (attrs.evolve(report(100, 100, 100), acks={"b": Ack("other", 3, 100)}), WANTED),
        (attrs.evolve(report(100, 100, 100), done=False), WANTED),  # sends are still taken
        (report(100, 100, 100), attrs.evolve(WANTED, state=None)),
        (report(100, 100, 100), attrs.evolve(WANTED, state=ALONE)),
        (report(100, 100, 100), attrs.evolve(WANTED, members={})),
    ],
)
def test_the_master_waits_until_the_target_has_everything(seen: Report, view: View) -> None:
    master = made()
    assert master.accept_switch_over(WANTED, wall_ms=0)
    assert master.switch_over(view, seen) is None


def test_the_target_is_the_next_master_with_its_own_lease() -> None:
    master = made()
    assert master.switch_over(WANTED, report(100, 100, 100)) is None, "it has not been asked for"
    assert master.accept_switch_over(WANTED, wall_ms=0)
    assert master.switch_over(WANTED, report(100, 100, 100)) == (
        attrs.evolve(PAIR, epoch=4, master="b"),
        MasterRecord(member="b", epoch=4, lease=8),
    )
