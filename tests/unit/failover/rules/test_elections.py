"""Who may campaign, in which order, and what an election writes."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.failover.rules import elections
from rocketpy.failover.rules.elections import Candidate
from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.records import GroupConfig, GroupState, MasterRecord, MemberRecord, SwitchRequest
from rocketpy.failover.rules.requests import View

STATE = GroupState(epoch=4, master="a", in_sync={"a": "ia", "b": "ib"})


def config(mode: str = "sync") -> GroupConfig:
    return GroupConfig(format=1, mode=mode, file_size=1, members=("a", "b", "c"))


def who(member: str, incarnation: str = "", **registered: tuple[str, int, int]) -> Candidate:
    """A candidate; the others by (incarnation, epoch, end)."""
    records = {
        name: MemberRecord(address="", ha_address="", broker_id=1, incarnation=which, epoch=epoch, end=end, lease=1)
        for name, (which, epoch, end) in registered.items()
    }
    epoch = records[member].epoch if member in records else 4
    return Candidate(member=member, incarnation=incarnation or f"i{member}", epoch=epoch, registered=records)


@pytest.mark.parametrize(
    ("candidate", "may"),
    [
        (who("b"), True),
        (who("a"), True),  # the old master itself, started again
        (who("c"), False),
        (who("b", "new"), False),  # lost its disk
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_only_members_in_sync_stand(candidate: Candidate, may: bool, mode: str) -> None:
    """Fault: An asynchronous group could elect a member still copying the log, and the old master then cut its log."""
    assert elections.may_campaign(candidate, config(mode), STATE, absent_s=99.0, lease_s=6.0) is may


def test_a_synchronous_group_does_not_wait_for_other_members_in_sync() -> None:
    """Each of them has everything that was acknowledged."""
    state = GroupState(epoch=4, master="a", in_sync={"a": "ia", "b": "ib", "c": "ic"})
    alone = who("b", b=("ib", 4, 60))
    assert elections.may_campaign(alone, config("sync"), state, absent_s=0.0, lease_s=6.0)
    assert not elections.may_campaign(alone, config("async"), state, absent_s=0.0, lease_s=6.0)


def test_nobody_campaigns_for_an_empty_set() -> None:
    """Nobody knows then which log has what was acknowledged."""
    state = GroupState(epoch=4, master="a", in_sync={})
    candidate = who("b", b=("ib", 4, 60))
    assert not elections.may_campaign(candidate, config(), state, absent_s=99.0, lease_s=6.0)


def test_when_all_in_sync_members_have_lost_their_tails_the_longest_log_stands() -> None:
    def may(member: str, **registered: tuple[str, int, int]) -> bool:
        candidate = who(member, "new", **registered)
        return elections.may_campaign(candidate, config(), STATE, absent_s=6.0, lease_s=6.0)

    assert may("b", a=("x", 4, 50), b=("new", 4, 60))
    assert not may("a", a=("new", 4, 50), b=("x", 4, 60))
    assert not may("b", a=("ia", 4, 10), b=("new", 4, 60))  # a has everything
    assert not may("b", b=("new", 4, 60))  # a may come back with everything
    assert not may("b", a=("x", -1, 0), b=("new", 4, 60))  # a lost its disk: people decide
    assert not may("b", b=("new", 4, 60), c=("x", 4, 50))  # the same
    assert not may("c", a=("x", 4, 50), b=("x", 4, 50), c=("new", 3, 60))  # a tail that nobody acknowledged


def test_a_store_of_the_set_from_a_backup_does_not_win_over_a_longer_log_that_has_left_the_set() -> None:
    """Of one epoch the longer log has all of the shorter one. What was acknowledged before c left the set may be gone
    from the backup.
    Fault: A sole in-sync member restored from a backup won over one with more acknowledged messages."""
    state = GroupState(epoch=4, master="a", in_sync={"a": "ia"})

    def may(member: str, absent_s: float = 0.0, **registered: tuple[str, int, int]) -> bool:
        candidate = who(member, registered[member][0], **registered)
        return elections.may_campaign(candidate, config(), state, absent_s=absent_s, lease_s=6.0)

    everybody = {"a": ("backup", 4, 50), "b": ("ib", 4, 55), "c": ("ic", 4, 60)}
    assert not may("a", **everybody)
    assert not may("b", **everybody)
    assert may("c", **everybody)
    assert not may("c", **(everybody | {"a": ("ia", 4, 50)}))  # a has everything
    assert not may("a", a=("backup", 4, 50), b=("ib", 4, 40))  # c may come with a longer log
    assert may("a", absent_s=6.0, a=("backup", 4, 50), b=("ib", 4, 40))  # it had its time
    assert may("a", a=("lost power", 4, 50), b=("ib", 4, 40), c=("ic", 3, 60))


def test_a_removed_broker_that_is_still_registered_keeps_nobody_from_an_election() -> None:
    """It has the longest log, and can not be elected itself.
    Fault: A removed broker with the longest log kept the others from an election."""
    candidate = who("b", "new-b", a=("new-a", 4, 50), b=("new-b", 4, 60), z=("iz", 4, 99))
    assert elections.may_campaign(candidate, config(), STATE, absent_s=99.0, lease_s=6.0)
    removed = who("z", a=("new-a", 4, 50), b=("new-b", 4, 60), z=("iz", 4, 99))
    assert not elections.may_campaign(removed, config(), STATE, absent_s=99.0, lease_s=6.0)


def test_longer_logs_of_brokers_that_are_not_in_the_group() -> None:
    """By epoch, then by length, as candidates are compared."""
    registered = who(
        "b", a=("ia", 9, 999), x=("ix", 4, 61), y=("iy", 5, 1), z=("iz", 4, 60), w=("iw", 3, 99)
    ).registered
    assert set(elections.longer_outside(config(), registered, epoch=4, end=60)) == {"x", "y"}


def test_the_first_epoch_of_a_group_is_above_all_that_its_logs_name() -> None:
    """The keys in etcd were deleted, and one store has messages of an earlier group.
    Fault: A group whose keys in etcd were deleted restarted at epoch 1 and elected once per old epoch."""
    old = {"a": ("ia", 7, 50), "b": ("ib", -1, 0), "c": ("ic", -1, 0)}
    assert elections.bootstrapped(who("a", **old)) == GroupState(epoch=8, master="a", in_sync={"a": "ia"})
    assert elections.bootstrapped(who("a")).epoch == 5  # of its own log alone: nobody is registered any more
    new = dict.fromkeys("abc", ("x", -1, 0))
    assert elections.bootstrapped(who("a", "x", **new)) == GroupState(epoch=1, master="a", in_sync={"a": "x"})


@pytest.mark.parametrize(
    ("registered", "absent_s", "may"),
    [
        ({"a": ("x", 4, 1), "b": ("x", 4, 1), "c": ("x", 4, 1)}, 0.0, True),
        ({"b": ("x", 4, 1), "c": ("x", 4, 1)}, 0.0, True),
        ({"c": ("x", 4, 1)}, 5.9, False),
        ({"c": ("x", 4, 1)}, 6.0, True),
        ({"b": ("x", 4, 1), "c": ("x", -1, 0)}, 6.0, False),  # an empty store would empty the others
        ({"a": ("x", 4, 1), "c": ("x", 4, 1)}, 5.9, False),  # b may come with a longer log
        ({"b": ("new", 4, 1), "c": ("x", 4, 1)}, 0.0, True),  # b is here, and can't win
    ],
)
def test_an_asynchronous_group_waits_for_those_who_may_win_but_not_for_the_last_master(
    registered: dict[str, tuple[str, int, int]], absent_s: float, may: bool
) -> None:
    state = GroupState(epoch=4, master="a", in_sync={"a": "ia", "b": "ib", "c": "x"})
    candidate = who("c", "x", **registered)
    assert elections.may_campaign(candidate, config("async"), state, absent_s=absent_s, lease_s=6.0) is may


@pytest.mark.parametrize(
    ("held", "own", "lease", "may"),
    [
        (1, None, None, False),  # it has no lease yet
        (1, 1, 2, False),  # etcd still has what its last process has registered
        (1, 2, 2, True),
        (2, 2, 2, True),  # its own mastership, which it has given up
        (2, None, 2, True),
    ],
)
def test_a_mastership_of_the_last_process_ends_when_this_one_is_registered(
    held: int, own: int | None, lease: int | None, may: bool
) -> None:
    candidate = who("a", a=("ia", 4, 1))
    registered = {} if own is None else {"a": attrs.evolve(candidate.registered["a"], lease=own)}
    master = MasterRecord(member="a", epoch=4, lease=held)
    assert elections.may_give_back(master, registered, Lease(lease, 0.0, 6.0) if lease else None) is may


def test_rank_goes_by_epoch_then_length_then_name() -> None:
    registered = {"a": ("x", 3, 900), "b": ("x", 4, 10), "c": ("x", 4, 20), "d": ("x", 4, 20)}
    among = frozenset(registered)
    assert [elections.rank(who(name, "x", **registered), among) for name in "abcd"] == [4, 3, 1, 2]
    assert elections.rank(who("c", "x", **registered), frozenset("ab")) == 3


@pytest.mark.parametrize(
    ("ends", "founder"),
    [((0, 0, 0), "a"), ((0, 1, 0), "b"), ((0, 1, 1), None), ((0, 0, None), None)],
)
def test_founding_needs_everybody_and_at_most_one_store_with_messages(
    ends: tuple[int | None, ...], founder: str | None
) -> None:
    registered = {name: ("x", -1, end) for name, end in zip("abc", ends, strict=True) if end is not None}
    found = [name for name in "abc" if elections.may_bootstrap(who(name, "x", **registered), config())]
    assert found == ([founder] if founder else [])


def test_the_new_set_leaves_the_old_master_out() -> None:
    assert elections.elected(who("b"), config(), STATE) == GroupState(epoch=5, master="b", in_sync={"b": "ib"})
    assert elections.elected(who("a"), config(), STATE).in_sync == {"a": "ia", "b": "ib"}
    assert elections.elected(who("b", "new"), config(), STATE).in_sync == {"b": "new"}
    assert elections.elected(who("b"), config("async"), STATE).in_sync == {"b": "ib"}


def test_only_a_member_in_sync_keeps_the_set_of_a_synchronous_group() -> None:
    state = GroupState(epoch=4, master="a", in_sync={"a": "ia", "b": "ib", "c": "ic"})
    assert elections.elected(who("b"), config(), state).in_sync == {"b": "ib", "c": "ic"}
    assert elections.elected(who("b", "new"), config(), state).in_sync == {"b": "new"}
    assert elections.elected(who("b"), config("async"), state).in_sync == {"b": "ib"}


def test_an_asynchronous_group_prefers_the_longest_log_to_a_request() -> None:
    """The request may be an old one: what only the longest log has would be cut.
    Fault: An expired switch-over request made an asynchronous group elect the shorter log."""
    state = GroupState(epoch=5, master="a", in_sync={"a": "i", "b": "i", "c": "i"})
    members = {
        name: MemberRecord(address="x", ha_address="y", broker_id=1, incarnation="i", epoch=5, end=end, lease=end)
        for name, end in (("b", 1_000), ("c", 9_000))
    }
    wanted = SwitchRequest(from_epoch=5, to="b", until_ms=1)
    view = View(revision=1, state=state, state_revision=1, members=members, switch=wanted)

    def first(mode: str) -> str:
        candidates = [Candidate(member=name, incarnation="i", epoch=5, registered=members) for name in members]
        return min(candidates, key=lambda one: elections.delay_s(one, config(mode), view)).member

    assert (first("async"), first("sync")) == ("c", "b")
