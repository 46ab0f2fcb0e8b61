"""What the coordinator shows of itself to the manager, for metrics and operators: a page that they share.

Each value is a number of its own: a reader may meet a new state beside the epoch of the one before.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable

import attrs

from rocketpy.failover.states import State

STATES = tuple(State)
_FIELDS = struct.Struct("=BqIQd")  # state, epoch, members in sync, changes of state, end of the lease


@attrs.frozen(kw_only=True)
class MemberState:
    """The member at one moment."""

    state: str  # a name of failover.states.State
    epoch: int  # that it serves; -1: none
    in_sync: int  # as master: members that have to acknowledge, itself included; otherwise 0
    changes: int  # of the state, since the broker was started
    lease_s: float  # seconds that the lease still has; 0: there is none


class MemberShown:
    """Made before the first fork. The coordinator writes."""

    def __init__(self, clock_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._clock_s = clock_s
        self.show(State.JOINING, -1, 0, 0.0)

    def show(self, state: State, epoch: int, in_sync: int, lease_ends_s: float) -> None:
        """`lease_ends_s`: of CLOCK_BOOTTIME; 0: there is no lease."""
        before, _, _, changes, _ = _FIELDS.unpack_from(self._page)
        index = STATES.index(state)
        _FIELDS.pack_into(self._page, 0, index, epoch, in_sync, changes + (index != before), lease_ends_s)

    def read(self) -> MemberState:
        index, epoch, in_sync, changes, lease_ends_s = _FIELDS.unpack_from(self._page)
        lease_s = max(0.0, lease_ends_s - self._clock_s())
        return MemberState(state=STATES[index].name, epoch=epoch, in_sync=in_sync, changes=changes, lease_s=lease_s)
