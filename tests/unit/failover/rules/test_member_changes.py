"""When a master hands over, gives up, or waits for etcd's answer: each is shown by a few views and reports."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rocketpy.failover.rules.conditions import SWITCH_OVER_S
from rocketpy.failover.rules.fences import NEVER_S, Lease
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import GroupState, MasterRecord
from rocketpy.failover.rules.requests import Kind, Outcome, Report, RevokeLease, Transaction
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Event, State
from tests.unit.failover.rules.test_member import LEASE_S, REPORT, SETTINGS, STATE, VIEW, master, report
from tests.unit.failover.rules.test_member_rules import KNOWN, OTHER, OWN, PAIR, PAIR_VIEW, SYNC, appointed, switching

FAULT_S = SETTINGS.fault_s
BOTH = attrs.evolve(PAIR_VIEW, revision=10, members={"a": OWN, "b": OTHER})


def have_fault(member: Member, seconds: float, **changes: Any) -> list[Event]:
    """Let the master have a fault from 100 s on, for so long; its lease is renewed. Returns the events."""
    member.changes_taken()
    for tenth in range(round(seconds * 10) + 1):
        now_s = 100.0 + tenth / 10
        member.lease = Lease(5, now_s, LEASE_S)
        member.step(now_s, report(end=50, fault="its disk is full", **changes))
    return [change.event for change in member.changes_taken()]


def pair_master(settings: Settings = SETTINGS) -> Member:
    member = Member(settings)
    member.learn(BOTH)
    member.lease = Lease(5, 100.0, LEASE_S)
    member.step(100.0, report(end=50))
    assert member.state is State.MASTER
    return member


# --- a fault ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_open", "event", "state"),
    [(True, Event.HAS_FAULT, State.SWITCHING_OVER), (False, Event.GAVE_UP, State.JOINING)],
    ids=["open", "not open"],
)
def test_a_fault_ends_the_rule_of_a_master_when_it_has_lasted(is_open: bool, event: Event, state: State) -> None:
    member = pair_master()
    assert have_fault(member, FAULT_S - 0.1, is_open=is_open) == []
    assert have_fault(member, FAULT_S, is_open=is_open)[0] is event and member.state is state


@pytest.mark.parametrize("is_open", [True, False])
def test_a_member_that_cannot_open_its_store_gives_up(is_open: bool) -> None:
    """It cannot hand over what it does not serve."""
    member = pair_master()
    member.learn(attrs.evolve(BOTH, revision=11, state=attrs.evolve(PAIR, epoch=4), state_revision=11))
    member.step(100.0, attrs.evolve(REPORT, end=50))
    assert member.state is State.PROMOTING and member.epoch == 4
    assert have_fault(member, FAULT_S, is_open=is_open) == [Event.GAVE_UP]


def test_a_master_with_a_fault_hands_over_to_the_member_that_can_serve() -> None:
    """It leaves the set: when it can serve again, it enters as others do."""
    member = pair_master()
    have_fault(member, FAULT_S)
    (asked,) = member.step(100.0 + FAULT_S, report(end=50, fault="its disk is full", acks={"b": Ack("k", 3, 50)}))
    assert isinstance(asked, Transaction) and asked.kind is Kind.SWITCH_OVER
    assert asked.state == GroupState(epoch=4, master="b", in_sync={"b": "k"})


def test_a_master_with_a_fault_stays_if_nobody_can_serve() -> None:
    member = pair_master()
    member.learn(attrs.evolve(BOTH, revision=11, state=STATE))
    assert have_fault(member, FAULT_S + 1) == []


def test_a_fault_of_no_interest_ends_nothing() -> None:
    member = pair_master(attrs.evolve(SETTINGS, fault_s=0.0))
    assert have_fault(member, FAULT_S) == []


def test_a_fault_that_is_over_at_this_moment_ends_nothing() -> None:
    member = pair_master()
    assert have_fault(member, FAULT_S - 0.1) == []
    member.step(100.0 + FAULT_S, report(end=50))
    assert member.state is State.MASTER and member.fault.lasts_s >= FAULT_S


def test_a_master_that_waits_for_an_answer_does_not_give_up() -> None:
    """The answer of etcd may still come; it decides whether the master is able."""
    member = pair_master()
    member._decisions.ask(Kind.CHANGE_SET, BOTH, state=STATE)
    assert have_fault(member, FAULT_S + 1) == []


def test_a_member_that_gave_up_takes_no_epoch_up_to_that_one() -> None:
    member = pair_master()
    have_fault(member, FAULT_S, is_open=False)
    member.step(200.0, attrs.evolve(REPORT, end=50))
    assert member.state is State.JOINING, "though `state` still names it"


# --- a switch-over ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "event"), [("", Event.SWITCH_OVER_FAILED), ("its disk is full", Event.GAVE_UP)])
def test_a_switch_over_that_is_not_done_in_time_ends(fault: str, event: Event) -> None:
    member = switching()
    for tenth in range(1, round(SWITCH_OVER_S * 10)):
        member.step(100.0 + tenth / 10, report(end=50, fault=fault))
        assert member.state is State.SWITCHING_OVER
    member.step(100.0 + SWITCH_OVER_S, report(end=50, fault=fault))
    assert member.changes_taken()[0].event is event


@pytest.mark.parametrize(("first_s", "last_s"), [(2.0, 3.0), (0.0, 2.9)], ids=["a new one", "over"])
def test_a_fault_that_nobody_was_told_of_ends_no_rule(first_s: float, last_s: float) -> None:
    """The switch-over fails, and the master goes on."""
    member = switching()
    for tenth in range(1, round(SWITCH_OVER_S * 10) + 1):
        fault = "its disk is full" if first_s <= tenth / 10 <= last_s else ""
        member.step(100.0 + tenth / 10, report(end=50, fault=fault))
    assert [change.event for change in member.changes_taken()] == [Event.SWITCH_OVER_FAILED]


def test_a_switch_over_of_a_master_with_a_fault_ends_as_it_began_if_nobody_is_better() -> None:
    member = switching()
    member.learn(attrs.evolve(BOTH, revision=11, members={"a": OWN, "b": attrs.evolve(OTHER, fault="the same")}))
    for tenth in range(1, round(SWITCH_OVER_S * 10) + 1):
        member.step(100.0 + tenth / 10, report(end=50, fault="its disk is full"))
    assert [change.event for change in member.changes_taken()] == [Event.SWITCH_OVER_FAILED]


def asked_to_switch() -> tuple[Member, Report, Transaction]:
    """A master that has asked etcd to make b the master of the next epoch."""
    member, seen = switching(), report(end=50, acks={"b": Ack("k", 3, 50)})
    (asked,) = member.step(100.1, seen)
    assert isinstance(asked, Transaction) and asked.kind is Kind.SWITCH_OVER
    assert asked.state is not None and (asked.state.master, asked.state.epoch) == ("b", 4)
    assert asked.master == MasterRecord(member="b", epoch=4, lease=OTHER.lease)
    return member, seen, asked


def test_nothing_is_asked_while_an_answer_is_awaited() -> None:
    member, seen, _ = asked_to_switch()
    assert member.step(100.2, seen) == [] and member.step(102.0, seen) == []


def test_a_switch_over_without_an_answer_is_asked_again_and_then_made_impossible() -> None:
    member, seen, asked = asked_to_switch()
    member.answered(asked.number, Outcome.UNKNOWN)
    (again,) = member.step(100.0 + SWITCH_OVER_S - 0.1, seen)
    assert isinstance(again, Transaction) and attrs.evolve(again, number=asked.number) == asked
    member.answered(again.number, Outcome.UNKNOWN)
    (touch,) = member.step(100.0 + SWITCH_OVER_S, seen)
    assert isinstance(touch, Transaction) and (touch.kind, touch.state, touch.master) == (Kind.TOUCH, PAIR, None)
    assert member.state is State.SWITCHING_OVER, "b may be the master by now"
    member.answered(touch.number, Outcome.SUCCEEDED)
    assert member._view is not None
    member.learn(attrs.evolve(member._view, revision=12, state_revision=12))
    member.step(100.0 + SWITCH_OVER_S + 0.1, seen)
    assert member.state is State.MASTER


def test_a_fenced_master_stays_fenced_while_its_switch_over_may_succeed() -> None:
    """The target may be master by now, and acknowledge with a lease of its own."""
    member, seen, asked = asked_to_switch()
    over_s = member.orders.deadline_s
    member.step(over_s, seen)
    assert member.state is State.FENCED
    member.lease = Lease(5, over_s, LEASE_S)
    member.step(over_s + 0.1, seen)
    assert member.state is State.FENCED
    member.answered(asked.number, Outcome.REFUSED)
    member.step(over_s + 0.2, seen)
    assert member.state in (State.MASTER, State.SWITCHING_OVER)


# --- the lease and the key of the master ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "held",
    [
        None,
        MasterRecord(member="a", epoch=3, lease=6),
        MasterRecord(member="a", epoch=2, lease=5),
        MasterRecord(member="b", epoch=3, lease=5),
    ],
    ids=["no key", "another lease", "another epoch", "another member"],
)
def test_a_lease_counts_only_if_it_holds_the_key_of_the_master(held: MasterRecord | None) -> None:
    member = master(100.0)
    member.learn(attrs.evolve(VIEW, revision=10, master=held))
    member.step(100.1, report())
    assert member.state is State.FENCED


def test_a_master_whose_lease_has_ended_is_fenced_at_once() -> None:
    member = master(100.0)
    member.lease_gone(5)
    assert member.orders.deadline_s == NEVER_S
    member.step(100.1, report())
    assert member.state is State.FENCED


def test_a_master_puts_its_key_back_while_its_lease_holds() -> None:
    member = master(100.0)
    member.learn(attrs.evolve(VIEW, revision=10, master=None))
    assert member.lease is not None
    deadline_s = member.lease.deadline_s
    assert member.step(deadline_s, report()) == [] and member.state is State.FENCED
    (asked,) = member.step(deadline_s - 0.1, report())
    assert isinstance(asked, Transaction) and (asked.kind, asked.state) == (Kind.PUT_BACK, None)
    assert asked.master == MasterRecord(member="a", epoch=3, lease=5) and asked.master_absent
    member.answered(asked.number, Outcome.REFUSED)
    member.lease = None
    assert member.step(deadline_s - 0.1, report()) == []


def test_a_member_that_joins_gives_back_what_its_last_process_held() -> None:
    member = Member(SETTINGS)
    member.lease = Lease(9, 100.0, LEASE_S)
    held = attrs.evolve(VIEW, members={"a": attrs.evolve(OWN, lease=9)})
    member.learn(held)
    served = attrs.evolve(REPORT, epochs=KNOWN, end=50)
    assert member.step(100.0, served) == [RevokeLease(5)] and member.state is State.JOINING
    member.learn(attrs.evolve(held, revision=10, members={}))
    assert member.step(100.1, served) == [], "it is not registered yet: the others would elect without its log"
    member.learn(attrs.evolve(held, revision=11, master=MasterRecord(member="b", epoch=3, lease=9)))
    assert member.step(100.2, served) == [], "the key is another member's"


def test_a_member_that_opens_its_store_asks_for_nothing() -> None:
    member = appointed()
    member.learn(attrs.evolve(VIEW, revision=10, master=None))
    assert member.step(100.1, REPORT) == [] and member.state is State.PROMOTING


# --- the in-sync set --------------------------------------------------------------------------------------------------


def asked_to_enter() -> tuple[Member, Transaction]:
    """A lone master that has asked for b to be in sync, when b had what was confirmed without it."""
    member = master(100.0)
    for end, confirmed, acked in ((80, 10, 80), (90, 85, 82)):
        seen = report(epochs=KNOWN, end=end, confirmed=confirmed, acks={"b": Ack("k", 3, acked)})
        assert member.step(100.1, seen) == []
    (asked,) = member.step(100.2, report(epochs=KNOWN, end=90, confirmed=85, acks={"b": Ack("k", 3, 86)}))
    assert isinstance(asked, Transaction)
    return member, asked


def test_a_follower_enters_when_it_has_all_that_was_confirmed() -> None:
    member, asked = asked_to_enter()
    assert asked.kind is Kind.CHANGE_SET and asked.state == PAIR and asked.master is None
    assert member.orders.counting == {("a", "i"), ("b", "k")}


def test_a_change_of_the_set_without_an_answer_is_asked_again() -> None:
    member, asked = asked_to_enter()
    member.answered(asked.number, Outcome.UNKNOWN)
    (again,) = member.step(100.0 + SWITCH_OVER_S + 1, report(epochs=KNOWN, end=90, confirmed=85))
    assert isinstance(again, Transaction) and attrs.evolve(again, number=asked.number) == asked


def test_a_member_that_does_not_keep_up_leaves_the_set() -> None:
    member = pair_master()
    assert member.step(100.0 + SETTINGS.keep_up_s, report(end=50)) == []
    (asked,) = member.step(100.1 + SETTINGS.keep_up_s, report(end=50))
    assert isinstance(asked, Transaction) and asked.kind is Kind.CHANGE_SET and asked.state == STATE


# --- acknowledgements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "acknowledged"), [("async", 80), ("sync", 60)])
def test_a_master_acknowledges_what_its_mode_promises(mode: str, acknowledged: int) -> None:
    settings = SETTINGS if mode == "async" else SYNC
    member = Member(settings)
    member.learn(attrs.evolve(BOTH, config=settings.config))
    member.lease = Lease(5, 100.0, LEASE_S)
    member.step(100.0, report(end=80, confirmed=10, acks={"b": Ack("k", 3, 60)}))
    assert (member.acknowledged, member.confirmed, member.copies) == (acknowledged, 60, 2)
    assert member.orders.counting == {("a", "i"), ("b", "k")}


def test_what_was_confirmed_is_never_taken_back() -> None:
    member = pair_master()
    member.step(100.1, report(end=80, acks={"b": Ack("k", 3, 60)}))
    member.step(100.2, report(end=80, acks={}))
    assert member.confirmed == 60


def test_a_master_of_an_epoch_that_is_over_confirms_nothing() -> None:
    """Before its next step, too: its orders then name nobody who counts."""
    member = pair_master()
    member.learn(attrs.evolve(BOTH, revision=11, state=attrs.evolve(PAIR, epoch=4, master="b")))
    assert member.orders.counting == frozenset()
