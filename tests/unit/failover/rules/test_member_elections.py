"""When a member begins an election, and what it asks for: each is shown by a few views and reports."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import GroupState, MasterRecord
from rocketpy.failover.rules.requests import Kind, Outcome, Transaction
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Event, State
from tests.unit.failover.rules.test_member import LEASE_S, REPORT, SETTINGS, STATE, VIEW, candidate
from tests.unit.failover.rules.test_member_rules import KNOWN, OTHER, OWN, PAIR, PAIR_VIEW, SYNC, SYNC_CONFIG

BOTH = attrs.evolve(PAIR_VIEW, revision=10, members={"a": OWN, "b": OTHER})


def alone(now_s: float, present: bool, member: Member, revision: int) -> State:
    """One step of an asynchronous member whose companion c, in sync, is not there."""
    held = MasterRecord(member="b", epoch=3, lease=8) if present else None
    state = attrs.evolve(STATE, master="b", in_sync={"a": "i", "b": "k", "c": "l"})
    member.learn(attrs.evolve(VIEW, revision=revision, state=state, master=held))
    member.step(now_s, attrs.evolve(REPORT, epochs=KNOWN, end=50))
    return member.state


def test_an_asynchronous_member_gives_the_others_the_time_of_a_lease() -> None:
    """It counts from when the master was last missed, and begins again with each master that was there."""
    member = Member(SETTINGS)
    assert alone(100.0, True, member, 10) is State.IN_SYNC
    assert alone(101.0, False, member, 11) is State.IN_SYNC
    assert alone(101.0 + LEASE_S - 0.1, False, member, 12) is State.IN_SYNC
    assert alone(107.0, True, member, 13) is State.IN_SYNC
    assert alone(108.0, False, member, 14) is State.IN_SYNC
    assert alone(108.0 + LEASE_S - 0.1, False, member, 15) is State.IN_SYNC
    assert alone(108.0 + LEASE_S, False, member, 16) is State.CANDIDATE


@pytest.mark.parametrize("in_sync", [{"a": "i"}, {"c": "l"}])
def test_a_candidate_begins_anew_when_the_state_has_changed(in_sync: dict[str, str]) -> None:
    """The set that it campaigned on is not the one that counts."""
    member, view, asked = candidate()
    member.answered(asked.number, Outcome.REFUSED)
    changed = GroupState(epoch=3, master="b", in_sync=in_sync)
    member.changes_taken()
    member.learn(attrs.evolve(view, revision=10, state=changed, state_revision=10))
    member.step(200.0, attrs.evolve(REPORT, epochs=KNOWN, end=50))
    events = [change.event for change in member.changes_taken()]
    assert events[0] is Event.ELECTION_LOST and (member.state is State.CANDIDATE) is ("a" in in_sync)


@pytest.mark.parametrize(
    "changes",
    [{"done": False}, {"end": 51}],
    ids=["its stream has not stopped", "its end is not registered"],
)
def test_a_candidate_waits_until_its_log_can_be_compared(changes: dict[str, Any]) -> None:
    member, _, asked = candidate()
    member.answered(asked.number, Outcome.REFUSED)
    known = attrs.evolve(REPORT, epochs=KNOWN, end=50)
    assert member.step(200.0, attrs.evolve(known, **changes)) == []
    lease, member.lease = member.lease, None
    assert member.step(200.1, known) == []
    member.lease = lease
    (again,) = member.step(200.2, known)
    assert isinstance(again, Transaction) and again.kind is Kind.ELECT and again.master_absent


def test_a_candidate_asks_once_and_for_the_next_epoch() -> None:
    member, _, asked = candidate()
    assert asked.state == GroupState(epoch=4, master="a", in_sync={"a": "i"})
    assert asked.master == MasterRecord(member="a", epoch=4, lease=7)
    assert member.step(200.0, attrs.evolve(REPORT, epochs=KNOWN, end=50)) == [], "its answer is awaited"


def test_an_election_that_was_asked_under_a_lease_that_has_ended_cannot_succeed() -> None:
    member, view, asked = candidate()
    member.answered(asked.number, Outcome.UNKNOWN)
    member.lease_gone(7)
    member.learn(attrs.evolve(view, revision=10, master=MasterRecord(member="b", epoch=3, lease=9)))
    member.step(200.0, attrs.evolve(REPORT, epochs=KNOWN, end=50))
    assert member.state is not State.CANDIDATE and member.following == ("b", 3)


@pytest.mark.parametrize("is_registered", [True, False])
@pytest.mark.parametrize("settings", [SETTINGS, SYNC], ids=["async", "sync"])
def test_only_an_asynchronous_group_compares_logs_before_an_election(settings: Settings, is_registered: bool) -> None:
    """In a synchronous one, every member in sync has all that was acknowledged."""
    member = Member(settings)
    members = {"a": attrs.evolve(OWN, end=40)} if is_registered else {}
    state = attrs.evolve(STATE, master="b", unclean=2)
    lost = attrs.evolve(VIEW, config=settings.config, master=None, state=state)
    member.learn(attrs.evolve(lost, members=members))
    member.lease = Lease(5, 100.0, 1000.0)
    known = attrs.evolve(REPORT, epochs=KNOWN, end=50)
    asked = [member.step(now_s, known) for now_s in (100.0, 110.0, 120.0)]
    assert member.state is State.CANDIDATE
    expected = attrs.evolve(state, epoch=4, master="a")
    assert [one.state for each in asked for one in each] == ([expected] if settings is SYNC else [])


def test_a_member_that_was_the_master_before_it_began_may_be_elected_again() -> None:
    member = Member(SETTINGS)
    member.learn(attrs.evolve(VIEW, master=None, members={"a": OWN}))
    member.step(100.0, attrs.evolve(REPORT, epochs=KNOWN, end=50))
    assert member.state is State.CANDIDATE


def test_the_first_election_of_a_group_is_a_bootstrap() -> None:
    member = Member(SETTINGS)
    new = attrs.evolve(OWN, epoch=-1, end=0, lease=5)
    view = attrs.evolve(VIEW, state=None, state_revision=0, master=None)
    member.learn(attrs.evolve(view, members={"a": new, "b": attrs.evolve(new, incarnation="k", lease=8)}))
    member.lease = Lease(5, 100.0, LEASE_S)
    assert member.step(100.0, REPORT) == [] and member.state is State.CANDIDATE
    (asked,) = member.step(100.0 + 1.0, REPORT)
    assert isinstance(asked, Transaction) and asked.kind is Kind.BOOTSTRAP
    assert asked.state == GroupState(epoch=1, master="a", in_sync={"a": "i"})
    assert asked.master == MasterRecord(member="a", epoch=1, lease=5)


@pytest.mark.parametrize(
    ("begun_s", "b_fault", "waited_s"),
    [(97.5, "", 2 * LEASE_S), (97.5, "the same", 0.0), (99.0, "", 0.0)],
    ids=["it waits", "nobody else is able", "a new fault"],
)
def test_a_member_with_a_fault_lets_others_be_elected_first(begun_s: float, b_fault: str, waited_s: float) -> None:
    member = Member(attrs.evolve(SYNC, in_sync_min=1))
    view = attrs.evolve(
        BOTH,
        config=SYNC_CONFIG,
        master=None,
        state=attrs.evolve(PAIR, master="c", in_sync={**PAIR.in_sync, "c": "l"}),
        members={"a": OWN, "b": attrs.evolve(OTHER, fault=b_fault)},
    )
    known = attrs.evolve(REPORT, epochs=KNOWN, end=50, fault="its disk is full")
    member.learn(attrs.evolve(view, revision=9, master=MasterRecord(member="c", epoch=3, lease=3)))
    for tenth in range(round((100.0 - begun_s) * 10)):
        member.step(begun_s + tenth / 10, known)
    assert member.state is State.IN_SYNC
    member.learn(view)
    states = []
    for tenth in range(round(waited_s * 10) + 1):
        member.step(100.0 + tenth / 10, known)
        states.append(member.state)
    assert states == [State.IN_SYNC] * (len(states) - 1) + [State.CANDIDATE]
