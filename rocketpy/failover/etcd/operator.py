"""An operator's requests to a group, on the keys that its coordinators use: checks, another master, another
configuration."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
import trio

from rocketpy.errors import RocketError
from rocketpy.failover.rules.records import (
    SYNC_FLUSH,
    GroupConfig,
    GroupState,
    MasterRecord,
    MemberRecord,
    SwitchRequest,
)
from rocketpy.failover.rules.requests import Kind, Outcome, Transaction, View
from rocketpy.failover.rules.settings import differences

from .group_keys import GroupKeys

SWITCH_S = 8.0  # longer than a switch-over that fails and the election after it
LOOK_S = 0.05


class OperatorRefused(RocketError):
    """The group is not in a state in which this can be done; the text says what is missing."""


def is_in_sync(view: View, member: str) -> bool:
    """Return True if the in-sync set names the store with which the member is registered."""
    record = view.members.get(member)
    return view.state is not None and record is not None and view.state.names(member, record.incarnation)


async def switch_master(
    keys: GroupKeys, target: str, *, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> tuple[GroupState, GroupState]:
    """Let the master hand over to `target`, and wait until it has.

    Returns: the states before and after.
    Raises:
        OperatorRefused: `target` cannot be master now, or the master did not hand over in SWITCH_S.
        EtcdError, EtcdUnavailable, EtcdReplaced, RecordInvalid: as GroupKeys.
    """
    view = await keys.read()
    before = view.state
    if before is None:
        raise OperatorRefused("this group has no master yet, and never had one: its members have to be started")
    if view.master is None:
        raise OperatorRefused("there is no master now that could hand over; an election is to be waited for")
    if before.master == target:
        raise OperatorRefused(f"{target} is master already, in epoch {before.epoch}")
    _registered(view, target)
    if not is_in_sync(view, target):
        raise OperatorRefused(
            f"{target} is not in sync: it may lack acknowledged messages; the in-sync members are "
            f"{', '.join(sorted(before.in_sync))}"
        )
    until_ms = wall_ms() + int(SWITCH_S * 1000)
    await keys.request_switch(SwitchRequest(from_epoch=before.epoch, to=target, until_ms=until_ms))
    after = await _later_state(keys, before.epoch)
    if after is None:
        raise OperatorRefused(f"{before.master} is still master after {SWITCH_S:g} s; its log says why")
    if after.master != target:
        raise OperatorRefused(f"{after.master} was elected in epoch {after.epoch}, and not {target}")
    return before, after


async def _later_state(keys: GroupKeys, epoch: int) -> GroupState | None:
    """Return the first state of a later epoch; None: there was none in SWITCH_S."""
    with trio.move_on_after(SWITCH_S):
        while True:
            state = (await keys.read()).state
            if state is not None and state.epoch > epoch:
                return state
            await trio.sleep(LOOK_S)
    return None


def check_replaceable(view: View, member: str) -> str:
    """Check that `member` may go on with an empty store, because another member has everything.

    Returns: the master, from which it will copy.
    Raises:
        OperatorRefused: it would take messages away from the group.
    """
    known = view.state
    if known is None or view.master is None:
        raise OperatorRefused("the group has no master now that an empty store could be filled from")
    if member in (known.master, view.master.member):
        raise OperatorRefused(f"{member} is the master, in epoch {known.epoch}; use switchMaster first")
    if not known.in_sync.keys() - {member}:
        raise OperatorRefused(f"{member} is the only one in sync: nobody else has everything")
    return known.master


def check_configuration(view: View, wanted: GroupConfig) -> None:
    """Check that a group may go over to `wanted` while it runs.

    Raises:
        OperatorRefused: a promise would rest on something else in between.
    """
    known, state = view.config, view.state
    if known is None or state is None:
        raise OperatorRefused("this group has not begun yet: its first member writes what it agrees on")
    fixed = attrs.evolve(wanted, members=known.members, flush="", in_sync_min=0)
    if found := differences(fixed, attrs.evolve(known, flush=""), known.members[0]):
        raise OperatorRefused(f"this cannot be changed while the group runs: {found}")
    added, gone = set(wanted.members) - set(known.members), set(known.members) - set(wanted.members)
    if len(added) + len(gone) > 1:
        names = ", ".join(sorted(added | gone))
        raise OperatorRefused(f"one member at a time is added or removed; these are several: {names}")
    for name in gone:
        if name in view.members or name in state.in_sync:
            raise OperatorRefused(f"{name} runs or is in sync: stop it, and wait until haStatus shows neither")
    weak = sorted(name for name, record in view.members.items() if record.flush != SYNC_FLUSH)
    if wanted.flush == SYNC_FLUSH and known.flush != SYNC_FLUSH and weak:
        raise OperatorRefused(f"flushDiskType is not SYNC_FLUSH on {', '.join(weak)}: restart them with it first")


async def configure(keys: GroupKeys, wanted: GroupConfig) -> tuple[GroupConfig, GroupConfig]:
    """Change the settings on which a group agrees, while it runs. Returns: the settings before, and now.

    Raises:
        OperatorRefused: as check_configuration, or the group has changed meanwhile.
        EtcdError, EtcdUnavailable, EtcdReplaced, RecordInvalid: as GroupKeys.
    """
    view = await keys.read()
    check_configuration(view, wanted)
    assert view.config is not None
    if not await keys.reconfigure(wanted, view):
        raise OperatorRefused("the group has changed meanwhile; look at haStatus, and try again")
    return view.config, wanted


def unclean_election(view: View, target: str) -> Transaction:
    """Makes `target` master, alone in the set, though it may lack acknowledged messages.

    Raises:
        OperatorRefused: there is no need, or nothing to elect.
    """
    record = _registered(view, target)
    if view.master is not None:
        raise OperatorRefused(f"{view.master.member} is master in epoch {view.master.epoch}; use switchMaster")
    able = [member for member in sorted(view.members) if is_in_sync(view, member)]
    if able:
        raise OperatorRefused(
            f"{', '.join(able)} has everything that was acknowledged and is registered; it will be elected without this"
        )
    longest = max(view.members.values(), key=lambda each: each.end)
    if record.end == 0 and longest.end > 0:
        raise OperatorRefused(f"{target} has an empty log, and {longest.address} has {longest.end} bytes")
    epoch = 1 + max([view.state.epoch if view.state else 0, *(each.epoch for each in view.members.values())])
    return Transaction(
        number=1,
        kind=Kind.ELECT,
        state_revision=view.state_revision,
        state=GroupState(epoch=epoch, master=target, in_sync={target: record.incarnation}, unclean=epoch),
        master=MasterRecord(member=target, epoch=epoch, lease=record.lease),
        master_absent=True,
    )


async def elect(keys: GroupKeys, election: Transaction) -> GroupState:
    """Carry the election out.

    Raises:
        OperatorRefused: the group has changed meanwhile, or etcd did not tell.
        EtcdReplaced, RecordInvalid: as GroupKeys.
    """
    assert election.state is not None
    outcome, _ = await keys.decide(election)
    if outcome is Outcome.SUCCEEDED:
        return election.state
    if outcome is Outcome.UNKNOWN:
        raise OperatorRefused("etcd did not tell whether it has elected; haStatus shows it")
    raise OperatorRefused("the group has changed meanwhile, or the member has lost its lease; look at haStatus")


def _registered(view: View, target: str) -> MemberRecord:
    """Return the record of a running member. Raises: OperatorRefused: it is no member, or not running."""
    known = set(view.config.members if view.config else ()) | set(view.members)
    if target not in known:
        raise OperatorRefused(f"there is no member {target}; there are: {', '.join(sorted(known)) or 'none'}")
    record = view.members.get(target)
    if record is None:
        raise OperatorRefused(f"{target} is not registered: it does not run, or does not reach etcd")
    return record
