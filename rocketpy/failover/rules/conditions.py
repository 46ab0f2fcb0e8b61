"""Conditions that count by how long they have lasted: the memory of a member from one step to the next.

`Fault`: it cannot serve as master. `Hint`: a peer says that there is a newer epoch. `NextMaster`: an operator has asked
it to take over.
"""

from __future__ import annotations

import attrs

from .records import GroupState, SwitchRequest
from .requests import Report, View

RECOVERED_S = 3.0  # without a fault: the next is another one; processes that crash in a loop serve in between
PAUSE_S = 1.0  # between two looks: this process was stopped, and knows nothing of the time between
TELL_S = 2.0  # a fault that is over sooner comes with each change of the role: it is not registered and not logged


@attrs.define
class Fault:
    """The fault of one member, as its reports tell it one after the other."""

    lasts_s: float = 0.0  # since it was seen first; it counts until RECOVERED_S without one
    _since_s: float | None = None
    _seen_s: float = 0.0  # with the fault
    _looked_s: float = 0.0

    def update(self, now_s: float, fault: str) -> None:
        """Take the fault of the report of this moment; empty: there is none."""
        if now_s > self._looked_s + PAUSE_S or now_s >= self._seen_s + RECOVERED_S:
            self._since_s = None
        if fault:
            self._since_s = now_s if self._since_s is None else self._since_s
            self._seen_s = now_s
        self._looked_s = now_s
        self.lasts_s = 0.0 if self._since_s is None else now_s - self._since_s

    def role_changed(self, fault: str) -> None:
        """Begin anew unless the process tree that is about to be replaced has a `fault` now.

        The next tree's time to begin is another fault: role changes in quick succession would otherwise add up to one
        that lasts.
        """
        if not fault:
            self._since_s, self.lasts_s = None, 0.0

    @property
    def is_told(self) -> bool:
        """Return True if it has lasted so long that the group and its operators are to know of it."""
        return self.lasts_s >= TELL_S


def able_others(view: View, member: str) -> frozenset[str]:
    """Return the other in-sync members that are registered with the store that the set names, and have no fault."""
    known = view.state
    if known is None:
        return frozenset()
    return frozenset(
        name
        for name, record in view.members.items()
        if name != member and known.names(name, record.incarnation) and not record.fault
    )


HINT_S = 0.5
"""The time for which a master that hears of a newer epoch asks etcd; after it the peer's word counts."""


@attrs.define
class Hint:
    """The hint of a peer that names an epoch above `state`'s. The coordinator refutes an epoch that etcd does not
    have."""

    _since_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Return True if etcd is to be asked."""
        return self._since_s is not None

    def update(self, now_s: float, newest_seen: int, known: GroupState | None) -> None:
        is_newer = known is not None and newest_seen > known.epoch
        self._since_s = (now_s if self._since_s is None else self._since_s) if is_newer else None

    def is_old(self, now_s: float) -> bool:
        """Return True if etcd had its time. A master without etcd would go on as brokerId 0 beside its successor."""
        return self._since_s is not None and now_s >= self._since_s + HINT_S


SWITCH_OVER_S = 3.0


@attrs.define
class NextMaster:
    """Level-triggered, like all rules; `since_s`: when the present request was seen first."""

    _request: SwitchRequest | None = None
    _since_s: float = 0.0

    def is_wanted(self, view: View | None, report: Report | None, member: str, now_s: float) -> bool:
        """Return True if the master of the present epoch was asked a moment ago to hand over to `member`. The request
        stays in etcd: after `until_ms` it means nothing, also to a coordinator that has just started."""
        request, known = (view.switch, view.state) if view is not None else (None, None)
        if request != self._request:
            self._request, self._since_s = request, now_s
        if request is None or known is None or request.to != member or request.from_epoch != known.epoch:
            return False
        if report is None or report.wall_ms >= request.until_ms:
            return False
        return known.master != member and now_s < self._since_s + SWITCH_OVER_S
