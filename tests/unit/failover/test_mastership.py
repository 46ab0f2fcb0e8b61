"""How a follower enters the in-sync set of a master that takes messages meanwhile."""

from __future__ import annotations

from rocketpy.failover.epochs import EpochList
from rocketpy.failover.in_sync import Ack
from rocketpy.failover.mastership import Mastership
from rocketpy.failover.records import GroupState
from rocketpy.failover.requests import Report

ALONE = GroupState(epoch=3, master="a", in_sync={"a": "i"})
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


def step(master: Mastership, now_s: float, seen: Report) -> GroupState | None:
    return master.change_of_set(now_s, ALONE, seen, seen.confirmed, KEEP_UP_S)


def made() -> Mastership:
    return Mastership("a", "i", 3, since_s=0.0)


def test_who_enters_counts_before_etcd_is_asked() -> None:
    """The broker may have confirmed more, without the follower, by the time that the orders that count it hold."""
    master = made()
    assert step(master, 10.0, report(100, 100, 100)) is None
    assert master.entering == {("b", "k")}
    assert step(master, 10.2, report(200, 150, 120)) is None, "150 was confirmed before it counted"
    assert master.entering == {("b", "k")}
    asked = step(master, 10.4, report(300, 150, 150))
    assert asked is not None and asked.in_sync == {"a": "i", "b": "k"}


def test_a_follower_enters_although_it_is_always_a_little_behind() -> None:
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
