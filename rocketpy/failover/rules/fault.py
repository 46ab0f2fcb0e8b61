"""The fault that keeps a member from serving as master: how long it has lasted, and the members without one."""

from __future__ import annotations

import attrs

from .requests import View

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
        """The process tree is about to be replaced. If the one before has no fault now, what the next one takes to
        begin is another fault: role changes in quick succession would otherwise add up to one that lasts."""
        if not fault:
            self._since_s, self.lasts_s = None, 0.0

    @property
    def is_told(self) -> bool:
        """Return True if it has lasted so long that the group and its operators are to know of it."""
        return self.lasts_s >= TELL_S


def able_others(view: View, member: str) -> frozenset[str]:
    """The other in-sync members that are registered, with the store that the set names, and without a fault."""
    known = view.state
    if known is None:
        return frozenset()
    return frozenset(
        name
        for name, record in view.members.items()
        if name != member and known.names(name, record.incarnation) and not record.fault
    )
