"""Rules of a member that histories break seldom: each is shown by a few views and reports."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.failover.rules.fences import NEVER_S, Lease
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import MasterRecord, MemberRecord, SwitchRequest
from rocketpy.failover.rules.requests import View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Event, State
from tests.unit.failover.rules.test_member import CONFIG, LEASE_S, REPORT, SETTINGS, STATE, VIEW, master, report

SYNC_CONFIG = attrs.evolve(CONFIG, mode="sync")
SYNC = Settings(member="a", config=SYNC_CONFIG, lease_s=LEASE_S, without_lease=False, in_sync_min=2)
PAIR = attrs.evolve(STATE, in_sync={"a": "i", "b": "k"})
PAIR_VIEW = attrs.evolve(VIEW, state=PAIR)
OTHER = MemberRecord(address="h:1", ha_address="h:2", broker_id=2, incarnation="k", epoch=3, end=50, lease=8)
OWN = attrs.evolve(OTHER, incarnation="i", lease=5)
OTHER_IS_MASTER = attrs.evolve(
    VIEW, state=attrs.evolve(PAIR, master="b"), master=MasterRecord(member="b", epoch=3, lease=8)
)
KNOWN = EpochList((Epoch(3, 0),))


def appointed(settings: Settings = SETTINGS) -> Member:
    """A member that has been elected, and has not opened its store as master yet."""
    member = Member(settings)
    member.learn(VIEW)
    member.lease = Lease(5, 100.0, LEASE_S)
    member.step(100.0, REPORT)
    assert member.state is State.PROMOTING
    return member


def follower(in_sync: bool = True) -> Member:
    """A member whose master is b."""
    member = Member(SETTINGS)
    report = REPORT if in_sync else attrs.evolve(REPORT, incarnation="new")
    member.learn(OTHER_IS_MASTER)
    member.step(100.0, report)
    assert member.state is (State.IN_SYNC if in_sync else State.FOLLOWER)
    return member


# --- before anything is known -----------------------------------------------------------------------------------------


def test_a_member_that_knows_nothing_has_acknowledged_nothing_and_asks_for_nothing() -> None:
    member = Member(SETTINGS)
    assert (member.acknowledged, member.confirmed, member.copies) == (0, 0, 1)
    assert member.orders.unclean == 0 and member.orders.counting == frozenset() and member.step(100.0, REPORT) == []
    member.lease_gone(4)
    assert member.lease is None and member.state is State.JOINING


def test_the_members_that_are_alive_are_those_of_the_last_read() -> None:
    member = Member(SETTINGS)
    member.learn(attrs.evolve(VIEW, members={"b": OTHER}))
    assert member.registered == {"b": OTHER}


def test_a_member_never_follows_itself() -> None:
    """`state` names it as the master, but with a store that it has lost."""
    member = follower()
    member.learn(attrs.evolve(VIEW, revision=10, state=attrs.evolve(STATE, in_sync={"a": "lost"})))
    member.step(101.0, REPORT)
    assert member.state is State.FOLLOWER and member.following is None


# --- a master ---------------------------------------------------------------------------------------------------------


def test_a_synchronous_master_takes_no_sends_with_too_few_in_sync() -> None:
    member = Member(SYNC)
    member.learn(attrs.evolve(VIEW, config=SYNC_CONFIG))
    member.lease = Lease(5, 100.0, LEASE_S)
    member.step(100.0, report())
    assert member.state is State.MASTER and not member.orders.duties.takes_sends
    member.learn(attrs.evolve(PAIR_VIEW, revision=10, config=SYNC_CONFIG))
    assert member.orders.duties.takes_sends


def test_acknowledgements_of_a_stranger_are_left_out() -> None:
    """It knows the secret. It follows with all members of the group, or alone."""
    member = master(100.0)
    acks = {name: Ack(name, 3, 0) for name in "abx"}
    for followers in ("abx", "x"):
        member.step(101.0, report(acks={name: acks[name] for name in followers}))
        assert member._report is not None and set(member._report.acks) == set(followers) - {"x"}


def test_a_master_begins_with_what_its_store_has_confirmed() -> None:
    """Consumers have seen that much, though no follower has come yet."""
    member = Member(SETTINGS)
    member.learn(PAIR_VIEW)
    member.lease = Lease(5, 100.0, LEASE_S)
    member.step(100.0, report(end=90, confirmed=70))
    assert member.state is State.MASTER and (member.confirmed, member.copies) == (70, 2)


def test_a_damaged_member_that_was_repaired_takes_the_epoch_that_it_was_elected_for() -> None:
    member = appointed()
    member.step(101.0, attrs.evolve(REPORT, damaged=True))
    assert member.state is State.HALTED
    member.step(102.0, REPORT)
    assert member.state is State.PROMOTING and member.epoch == 3


def test_a_member_whose_settings_do_not_fit_its_group_serves_nothing() -> None:
    member = master(100.0)
    member.learn(attrs.evolve(VIEW, revision=10, config=SYNC_CONFIG))
    member.step(101.0, report())
    assert member.state is State.HALTED
    member.step(102.0, report())
    assert member.state is State.HALTED, "though etcd names it as the master"


@pytest.mark.parametrize("members", [{}, {"a": OWN, "b": OTHER}], ids=["alone", "with b"])
def test_a_master_serves_no_longer_if_etcd_has_lost_the_state_of_the_group(members: Mapping[str, MemberRecord]) -> None:
    member = master(100.0)
    member.learn(View(revision=10, config=CONFIG, members=members))
    member.step(101.0, report(end=10))
    assert member.state is State.JOINING and member.orders.epoch == -1


def switching(now_s: float = 100.0) -> Member:
    """A master that an operator has asked to hand over to b, which lacks some messages."""
    member = master(now_s)
    wanted = SwitchRequest(from_epoch=3, to="b", until_ms=2 * REPORT.wall_ms)
    member.learn(attrs.evolve(PAIR_VIEW, revision=10, members={"a": OWN, "b": OTHER}, switch=wanted))
    assert member.step(now_s, report(end=50)) == [] and member.state is State.SWITCHING_OVER
    member.changes_taken()
    return member


@pytest.mark.parametrize(
    ("epoch", "event"),
    [(4, Event.SWITCHED_OVER), (5, Event.HIGHER_EPOCH), (None, Event.HIGHER_EPOCH)],
    ids=["the next", "a later one", "none"],
)
def test_a_master_tells_a_switch_over_from_other_elections(epoch: int | None, event: Event) -> None:
    member = switching()
    state = None if epoch is None else attrs.evolve(PAIR, epoch=epoch, master="b")
    member.learn(View(revision=11, config=CONFIG, state=state, state_revision=11))
    member.step(100.5, report(end=50))
    assert member.changes_taken()[0].event is event
    other = master(100.0)
    other.changes_taken()
    other.learn(View(revision=11, config=CONFIG, state=state, state_revision=11))
    other.step(100.5, report(end=50))
    assert other.changes_taken()[0].event is Event.HIGHER_EPOCH, "it was not asked to hand over"


# --- a fault ----------------------------------------------------------------------------------------------------------


def test_a_fault_that_comes_and_goes_outlasts_a_fence() -> None:
    """The process tree is the same, so what crashes in it is one fault."""
    member = master(100.0)
    member.step(104.5, report(fault="it crashes"))
    over_s = member.orders.deadline_s
    member.step(over_s, report())
    assert member.state is State.FENCED and member.fault.lasts_s == over_s - 104.5
    member.lease = Lease(5, over_s, LEASE_S)
    member.step(over_s + 0.5, report())
    assert member.state is State.MASTER and member.fault.lasts_s == over_s + 0.5 - 104.5


def test_a_fault_that_comes_and_goes_ends_with_a_change_of_role() -> None:
    member = follower()
    member.step(100.5, attrs.evolve(REPORT, fault="it crashes"))
    member.step(101.0, REPORT)
    assert member.fault.lasts_s == 0.5
    member.learn(attrs.evolve(VIEW, revision=10, state=attrs.evolve(STATE, epoch=4)))
    member.step(101.2, REPORT)
    assert member.state is State.PROMOTING and member.fault.lasts_s == 0.0


# --- a follower -------------------------------------------------------------------------------------------------------


def test_a_member_with_another_store_is_not_in_sync_for_a_moment() -> None:
    changes = follower(in_sync=False).changes_taken()
    assert [change.event for change in changes] == [Event.MASTER_KNOWN]


def test_a_member_leaves_the_in_sync_set_as_soon_as_etcd_says_so() -> None:
    member = follower()
    assert [change.event for change in member.changes_taken()] == [Event.MASTER_KNOWN, Event.ENTERED_SET]
    member.step(100.5, REPORT)
    assert member.changes_taken() == []
    member.learn(attrs.evolve(OTHER_IS_MASTER, revision=10, state=attrs.evolve(STATE, master="b", in_sync={"b": "k"})))
    member.step(101.0, REPORT)
    assert [change.event for change in member.changes_taken()] == [Event.LEFT_SET]


def test_a_follower_of_a_group_whose_state_is_lost_waits() -> None:
    member = follower()
    member.learn(View(revision=10, config=CONFIG, members={"a": OWN, "b": OTHER}))
    for now_s in (101.0, 200.0):
        assert member.step(now_s, attrs.evolve(REPORT, epochs=KNOWN, end=50)) == []
        assert member.state is State.FOLLOWER and member.following is None


@pytest.mark.parametrize("in_sync", [True, False])
def test_a_log_that_has_diverged_serves_nothing_until_an_operator_orders_it(in_sync: bool) -> None:
    member = follower(in_sync)
    member.changes_taken()
    member.step(101.0, attrs.evolve(REPORT, incarnation="i" if in_sync else "new", diverged=True))
    assert [change.event for change in member.changes_taken()] == [Event.DIVERGED]
    member.step(102.0, REPORT)
    assert member.state is State.HALTED, "the next process tree does not know yet"
    ordered = attrs.evolve(STATE, epoch=4, unclean=4)
    member.learn(attrs.evolve(VIEW, revision=10, state=ordered, state_revision=10))
    member.step(103.0, attrs.evolve(REPORT, damaged=True))
    assert member.state is State.HALTED
    member.step(104.0, attrs.evolve(REPORT, diverged=True))
    assert member.state is State.PROMOTING and member.epoch == 4


def test_a_member_does_not_take_an_epoch_that_is_older_than_one_it_has_heard_of() -> None:
    member = follower()
    member.learn(attrs.evolve(VIEW, revision=10, state=attrs.evolve(STATE, epoch=4), state_revision=10))
    member.step(101.0, attrs.evolve(REPORT, newest_epoch_seen=5))
    assert member.state is State.IN_SYNC and member.hint.is_open
    member.step(102.0, attrs.evolve(REPORT, newest_epoch_seen=4))
    assert member.state is State.PROMOTING


def test_the_orders_of_a_fenced_master_whose_state_is_lost_name_nobody_who_counts() -> None:
    member = master(100.0)
    member.lease_gone(5)
    member.step(100.1, report())
    assert member.state is State.FENCED and member.orders.counting == {("a", "i")}
    member.learn(View(revision=10, config=CONFIG))
    assert member.orders.counting == frozenset()


def test_the_orders_of_a_master_whose_state_is_lost_let_no_answer_leave() -> None:
    """A coordinator that ends reads them once more, perhaps between a read of etcd and the next step.
    Fault: A coordinator that ended just after etcd had lost its group's state did not end its lease."""
    member = master(100.0)
    member.learn(View(revision=10, config=CONFIG))
    assert member.state is State.MASTER and member.orders.deadline_s == NEVER_S


def test_a_master_of_a_state_that_etcd_has_lost_acknowledges_nothing_more() -> None:
    """etcd was put back from a backup, which has an older epoch."""
    member = master(100.0)
    member.learn(attrs.evolve(VIEW, revision=10, state=attrs.evolve(STATE, epoch=2), state_revision=10))
    acknowledged = member.acknowledged
    member.step(100.1, report(end=80))
    assert (member.acknowledged, member.confirmed) == (acknowledged, acknowledged)
