"""The rules of an election: the members that may campaign, their order, and the state that the winner writes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .fences import Lease
from .records import GroupConfig, GroupState, MasterRecord, MemberRecord
from .requests import View

RANK_DELAY_S = 0.2  # by rank; the master puts a lost key back sooner than the first candidate campaigns


@attrs.frozen(kw_only=True)
class Candidate:
    """This member, as far as elections go."""

    member: str
    incarnation: str
    epoch: int  # the newest of its log; -1: the store is new
    registered: Mapping[str, MemberRecord]


def may_bootstrap(candidate: Candidate, config: GroupConfig) -> bool:
    """Return True if this member writes the first `state`: all members are registered, and no other store has
    messages."""
    if any(name not in candidate.registered for name in config.members):
        return False
    filled = [name for name in config.members if candidate.registered[name].end > 0]
    return candidate.member == (filled or config.members)[0] and len(filled) <= 1


def may_campaign(
    candidate: Candidate, config: GroupConfig, state: GroupState, *, absent_s: float, lease_s: float
) -> bool:
    """Return True if this member may be elected while `master` is absent.

    Only the in-sync set has everything that was acknowledged (in an asynchronous group: nearly everything), and a
    member that lost bytes has another incarnation. A member that still copies would have the others cut away what it
    lacks. In an asynchronous group the longest log should win, so a member waits until all who could win are here or
    had time to come. The last master had that time: its lease. If it is back, its log counts.

    Args:
        absent_s: how long `master` has been absent, as this member saw it.
    """
    if candidate.epoch < 0:
        return False
    had_time = absent_s >= lease_s
    if not state.names(candidate.member, candidate.incarnation):
        is_everybody_here = had_time or all(name in candidate.registered for name in config.members)
        return is_everybody_here and all_lost_their_tails(candidate, config, state)
    awaited = state.in_sync.keys() - candidate.registered.keys() - {state.master}
    return config.mode == "sync" or not awaited or had_time


def may_give_back(held: MasterRecord, registered: Mapping[str, MemberRecord], lease: Lease | None) -> bool:
    """Return True if a member that joins may end a mastership of its own: its last process's, once this process has
    registered it. Otherwise others would compare their logs without its own."""
    own = registered.get(held.member)
    return lease is not None and lease.number in (held.lease, own.lease if own else None)


def all_lost_their_tails(candidate: Candidate, config: GroupConfig, state: GroupState) -> bool:
    """Return True if all in-sync members are here with logs of the last epoch that may lack their tails, and no log is
    longer.

    They lost power together, or were put back from backups. Nobody is known to have all that was acknowledged, and
    nobody who has it can come back. Of one epoch the longest log has all of the others, whether its member is in the
    set or has left it; a broker that was removed from the group can not be elected, so its log does not count. A lost
    disk is another matter: its log has no epochs, and people have to decide.
    """
    found = {name: candidate.registered.get(name) for name in state.in_sync}
    have_lost = bool(found) and all(
        record is not None and record.incarnation != state.in_sync[name] and record.epoch >= state.epoch
        for name, record in found.items()
    )
    is_member = candidate.member in config.members
    return have_lost and is_member and rank(candidate, frozenset(config.members)) == 1


def rank(candidate: Candidate, among: frozenset[str]) -> int:
    """Return the place (1 and up) of this member: newest epoch first, then the longest log, then the name."""
    order = sorted(
        (name for name in candidate.registered if name in among),
        key=lambda name: (-candidate.registered[name].epoch, -candidate.registered[name].end, name),
    )
    return order.index(candidate.member) + 1 if candidate.member in order else len(order) + 1


def best(registered: Mapping[str, MemberRecord], among: frozenset[str]) -> str:
    """Return the first of some registered members, in the order of candidates."""
    return min(among, key=lambda name: (-registered[name].epoch, -registered[name].end, name))


def longer_outside(
    config: GroupConfig, registered: Mapping[str, MemberRecord], *, epoch: int, end: int
) -> dict[str, MemberRecord]:
    """Return the registered brokers that are not in the group, and whose log is longer than the new master's.

    Such a broker was removed from the group, and may have messages that were acknowledged before the others lost
    their tails.

    Args:
        epoch: the newest of the new master's log, before it begins its own.
        end: of that log.
    """
    return {
        name: record
        for name, record in registered.items()
        if name not in config.members and (record.epoch, record.end) > (epoch, end)
    }


def delay_s(candidate: Candidate, config: GroupConfig, view: View) -> float:
    """Return the seconds that a candidate waits before it asks: a better one is first, one with a fault comes last.

    The member that an operator has asked for comes first in a synchronous group, where every candidate has all that was
    acknowledged. In an asynchronous group the longest log comes first, and the request may be an old one.
    """
    rivals = frozenset(view.state.in_sync if view.state else config.members)
    with_fault = frozenset(name for name, record in view.members.items() if record.fault)
    place = rank(candidate, rivals - with_fault)
    request = view.switch if config.mode == "sync" else None
    if request is not None and view.state is not None and request.from_epoch == view.state.epoch:
        place = place + 1 if request.to != candidate.member else 1
    return RANK_DELAY_S * place


def bootstrapped(candidate: Candidate) -> GroupState:
    """Return the first state of a group. Others enter the set as soon as they have caught up.

    Its logs may name epochs, of a group whose keys in etcd were deleted: a master serves only one that is above them.
    """
    epoch = 1 + max([0, candidate.epoch, *(record.epoch for record in candidate.registered.values())])
    return GroupState(epoch=epoch, master=candidate.member, in_sync={candidate.member: candidate.incarnation})


def elected(candidate: Candidate, config: GroupConfig, state: GroupState) -> GroupState:
    """Return the state after this member has won: the next epoch, and the set without the old master.

    A member that campaigns without being in the set takes over alone: nobody else has a log that is known to fit.
    """
    kept: dict[str, str] = {}
    if config.mode == "sync" and state.names(candidate.member, candidate.incarnation):
        kept = {name: incarnation for name, incarnation in state.in_sync.items() if name != state.master}
    kept[candidate.member] = candidate.incarnation
    return attrs.evolve(state, epoch=state.epoch + 1, master=candidate.member, in_sync=kept)
