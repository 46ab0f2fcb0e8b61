"""What a member makes of its lease, of damage, and of a peer's word; elections and sets have their own tests."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rocketpy.failover.rules.conditions import HINT_S
from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import GroupConfig, GroupState, MasterRecord, MemberRecord
from rocketpy.failover.rules.requests import Kind, Outcome, Report, RevokeLease, Transaction, View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import State

LEASE_S = 6.0
CONFIG = GroupConfig(format=1, mode="async", file_size=1 << 20, members=("a", "b"))
SETTINGS = Settings(member="a", config=CONFIG, lease_s=LEASE_S, without_lease=False)
REPORT = Report(incarnation="i", epochs=EpochList(), end=0, confirmed=0, done=True, wall_ms=10**14)
STATE = GroupState(epoch=3, master="a", in_sync={"a": "i"})
VIEW = View(revision=9, config=CONFIG, state=STATE, state_revision=8, master=MasterRecord(member="a", epoch=3, lease=5))


def report(**changes: Any) -> Report:
    return attrs.evolve(REPORT, opened=3, **changes)


def master(now_s: float) -> Member:
    """A member that has been elected, has a lease from `now_s` on, and serves."""
    member = Member(SETTINGS)
    member.learn(VIEW)
    member.lease = Lease(5, now_s, LEASE_S)
    member.step(now_s, report())
    assert member.state is State.MASTER
    return member


def test_orders_and_changes_name_the_epoch_and_what_etcd_says() -> None:
    member = master(100.0)
    assert (member.orders.epoch, member.orders.unclean, member.following) == (3, 0, None)
    assert {change.epoch for change in member.changes_taken()} == {3} and member.changes_taken() == []
    member.learn(attrs.evolve(VIEW, revision=10, state=attrs.evolve(STATE, unclean=2)))
    assert member.orders.unclean == 2
    member.step(100.0, report(damaged=True))
    assert [(change.after, change.epoch) for change in member.changes_taken()] == [(State.HALTED, -1)]


def test_a_read_of_etcd_that_comes_late_changes_nothing() -> None:
    member = master(100.0)
    members = ("a", "b", "c")
    member.learn(attrs.evolve(VIEW, revision=10, config=attrs.evolve(CONFIG, members=members)))
    assert member.settings.config.members == members
    member.learn(VIEW)
    assert member.settings.config.members == members


def test_a_follower_takes_the_stream_of_the_master_that_etcd_names() -> None:
    member = Member(SETTINGS)
    assert (member.registered, member.in_sync_count, member.following, member.orders.epoch) == ({}, 0, None, -1)
    held = MasterRecord(member="b", epoch=3, lease=7)
    state = GroupState(epoch=3, master="b", in_sync={"b": "j", "a": "i"})
    member.learn(attrs.evolve(VIEW, state=state, master=held))
    for now_s in (100.0, 101.0):
        member.step(now_s, attrs.evolve(REPORT))
    assert (member.in_sync_count, member.following, member.orders.epoch) == (2, ("b", 3), -1)
    assert member.state is State.IN_SYNC


def test_the_end_of_another_lease_ends_nothing() -> None:
    """A late answer, about a lease that was given up before."""
    member = master(100.0)
    member.lease_gone(4)
    assert member.lease is not None and member.lease.number == 5
    member.lease_gone(5)
    assert member.lease is None


def test_a_master_answers_no_send_when_its_lease_is_over() -> None:
    member = master(100.0)
    member.step(member.orders.deadline_s - 0.01, report())
    assert member.state is State.MASTER
    over_s = member.orders.deadline_s
    assert 100.0 < over_s <= 100.0 + LEASE_S
    member.step(over_s, report())
    assert member.state is State.FENCED and not member.duties.answers_waits
    acknowledged = member.acknowledged
    member.step(over_s, report(end=acknowledged + 100))
    assert member.acknowledged == acknowledged
    member.lease = Lease(5, over_s, LEASE_S)
    member.step(over_s, report())
    assert member.state is State.MASTER, "the lease was renewed"


def test_a_master_that_hears_of_a_newer_epoch_leaves_when_etcd_had_its_time() -> None:
    member = master(100.0)
    member.step(101.0, report(newest_epoch_seen=4))
    member.step(101.0 + HINT_S - 0.01, report(newest_epoch_seen=4))
    assert member.state is State.MASTER and member.hint.is_open
    member.step(101.0 + HINT_S, report(newest_epoch_seen=4))
    assert member.state not in (State.MASTER, State.FENCED) and member.orders.epoch == -1


def test_a_damaged_store_serves_nothing() -> None:
    member = master(100.0)
    member.step(101.0, report(damaged=True))
    assert member.state is State.HALTED and not member.duties.takes_sends
    member.step(102.0, report(damaged=True))
    assert member.state is State.HALTED, "though etcd names it as the master"


def candidate() -> tuple[Member, View, Transaction]:
    """A member of a group without a master that has just asked etcd for its election."""
    own = MemberRecord(address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=3, end=50, lease=7)
    view = attrs.evolve(
        VIEW, state=attrs.evolve(STATE, master="b", in_sync={"a": "i"}), master=None, members={"a": own}
    )
    known = attrs.evolve(REPORT, epochs=EpochList((Epoch(3, 0),)), end=50)
    member = Member(SETTINGS)
    member.learn(view)
    member.lease = Lease(7, 100.0, 1000.0)
    asked: list[Any] = []
    for tenth in range(600):
        asked = asked or member.step(100.0 + tenth / 10, known)
    assert member.state is State.CANDIDATE and asked[0].kind is Kind.ELECT
    return member, view, asked[0]


@pytest.mark.parametrize(
    ("outcome", "is_undecided"),
    [(None, True), (Outcome.UNKNOWN, True), (Outcome.REFUSED, False)],
    ids=["waits", "unknown", "refused"],
)
def test_a_candidate_whose_election_may_still_succeed_follows_nobody(
    outcome: Outcome | None, is_undecided: bool
) -> None:
    """Though the old master is there again: if the election succeeds after all, this member is the master."""
    member, view, asked = candidate()
    if outcome is not None:
        member.answered(asked.number, outcome)
    member.learn(attrs.evolve(view, revision=10, master=MasterRecord(member="b", epoch=3, lease=9)))
    requests = member.step(200.0, attrs.evolve(REPORT, epochs=EpochList((Epoch(3, 0),)), end=50))
    assert requests == ([RevokeLease(7)] if outcome is Outcome.UNKNOWN else []), "then it cannot succeed any more"
    assert (member.state is State.CANDIDATE) is (member.following is None) is is_undecided
