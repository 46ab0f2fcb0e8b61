"""The state of the coordinator, for metrics and operators: a page that it shares with the manager.

Each value is a number of its own: a reader may meet a new state beside the epoch of the state before. It meets no
zeros: values are copied over the old ones, which `struct.pack_into` would clear first.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable

import attrs

from rocketpy.failover.rules.states import State

STATES = tuple(State)
_FIELDS = struct.Struct("=BqIQd")  # state, epoch, members in sync, changes of state, end of the lease
_FAULTS = struct.Struct("=BI")  # of this member, number of members with one
_ETCD = struct.Struct("=BQ")  # has an alarm, bytes of the database
_FAULTS_AT = _FIELDS.size
_ETCD_AT = _FAULTS_AT + _FAULTS.size


@attrs.frozen(kw_only=True)
class MemberState:
    """The member at one moment."""

    state: str  # a name of failover.states.State
    epoch: int  # that it serves; -1: none
    in_sync: int  # as master: members that have to acknowledge, itself included; otherwise 0
    changes: int  # of the state, since the broker was started
    lease_s: float  # seconds that the lease still has; 0: there is none
    has_fault: bool = False  # it cannot serve as master
    faulty: int = 0  # registered members that cannot, as etcd has them
    has_alarm: bool = False  # etcd has
    etcd_bytes: int = 0  # of the database of etcd


class MemberShown:
    """Made before the first fork. The coordinator writes."""

    def __init__(self, clock_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self._clock_s = clock_s
        self.show(State.JOINING, -1, 0, 0.0)

    def show(self, state: State, epoch: int, in_sync: int, lease_ends_s: float) -> None:
        """Publish the state. `lease_ends_s`: of CLOCK_BOOTTIME; 0: there is no lease."""
        before, _, _, changes, _ = _FIELDS.unpack_from(self._page)
        index = STATES.index(state)
        self._page[: _FIELDS.size] = _FIELDS.pack(index, epoch, in_sync, changes + (index != before), lease_ends_s)

    def show_faults(self, has_fault: bool, faulty: int) -> None:
        """Publish faults. `faulty`: the number of registered members that cannot serve as master."""
        self._page[_FAULTS_AT:_ETCD_AT] = _FAULTS.pack(has_fault, faulty)

    def show_etcd(self, has_alarm: bool, db_bytes: int) -> None:
        """Publish the state of etcd, as the coordinator has seen it last."""
        self._page[_ETCD_AT : _ETCD_AT + _ETCD.size] = _ETCD.pack(has_alarm, db_bytes)

    def read(self) -> MemberState:
        index, epoch, in_sync, changes, lease_ends_s = _FIELDS.unpack_from(self._page)
        has_fault, faulty = _FAULTS.unpack_from(self._page, _FAULTS_AT)
        has_alarm, etcd_bytes = _ETCD.unpack_from(self._page, _ETCD_AT)
        return MemberState(
            state=STATES[index].name,
            epoch=epoch,
            in_sync=in_sync,
            changes=changes,
            lease_s=max(0.0, lease_ends_s - self._clock_s()),
            has_fault=bool(has_fault),
            faulty=faulty,
            has_alarm=bool(has_alarm),
            etcd_bytes=etcd_bytes,
        )
