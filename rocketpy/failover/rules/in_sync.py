"""The in-sync set as its master keeps it: the members that have to acknowledge, and the rules by which it shrinks and
grows.

Only the master changes the set, each time by a transaction on `state`'s revision. A transaction without an answer may
succeed later. Until `state` has another revision, the members of the old set and of every set that was asked for count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from .records import GroupState

StoreId = tuple[str, str]  # of a member's store: the member's name, its incarnation


@attrs.frozen
class Ack:
    """A member's acknowledgement of everything below `position`, as a follower of `epoch`."""

    incarnation: str
    epoch: int
    position: int


def counting_stores(state: GroupState, asked: Iterable[GroupState]) -> frozenset[StoreId]:
    """Return the stores that have to acknowledge, by `state` and by the states asked for that may still come."""
    return frozenset(member for each in (state, *asked) for member in each.in_sync.items())


def position_of(member: StoreId, epoch: int, acks: Mapping[str, Ack]) -> int | None:
    """Return the position that this member, with this store, has acknowledged under `epoch`; None: none."""
    ack = acks.get(member[0])
    if ack is None or ack.incarnation != member[1] or ack.epoch != epoch:
        return None
    return ack.position


def confirmable(own: StoreId, own_end: int, epoch: int, counting: Iterable[StoreId], acks: Mapping[str, Ack]) -> int:
    """Return the position that every counting store has acknowledged; -1 if one has acknowledged nothing yet."""
    ends = [own_end]
    for member in counting:
        if member != own:
            position = position_of(member, epoch, acks)
            ends.append(-1 if position is None else position)
    return min(ends)


def may_enter(ack: Ack, epoch: int, epoch_start: int, confirmed: int) -> bool:
    """Return True if a member has all messages that were ever acknowledged to a client.

    `confirmed` alone does not suffice: the last master may have acknowledged more than it could tell this one, up to
    the position at which the epoch begins.
    """
    return ack.epoch == epoch and ack.position >= max(confirmed, epoch_start)


@attrs.define
class Progress:
    """A follower's progress: the latest time at which the master's log had nothing that the follower lacks."""

    caught_up_s: float  # this time
    sample: int = 0  # an end of the master's log
    sampled_s: float = 0.0

    def record(self, position: int, end: int, now_s: float) -> None:
        """Note that the follower has acknowledged `position` while the log ends at `end`."""
        if position >= end:
            self.caught_up_s = now_s
        elif position >= self.sample:
            self.caught_up_s = max(self.caught_up_s, self.sampled_s)
            self.sample, self.sampled_s = end, now_s


def without(state: GroupState, names: Iterable[str]) -> GroupState:
    """Return `state` with a smaller set."""
    gone = set(names)
    kept = {name: incarnation for name, incarnation in state.in_sync.items() if name not in gone}
    return attrs.evolve(state, in_sync=kept)


def having(state: GroupState, entering: Mapping[str, str]) -> GroupState:
    """Return `state` with a larger set."""
    return attrs.evolve(state, in_sync={**state.in_sync, **entering})
