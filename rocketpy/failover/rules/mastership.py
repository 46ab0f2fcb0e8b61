"""The state of a master during its epoch: the followers that keep up, and the target of a switch-over."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from . import in_sync
from .in_sync import Ack, Progress
from .records import GroupState, MasterRecord, SwitchRequest
from .requests import Report, View


@attrs.define(eq=False)
class Mastership:
    """One epoch of one master. `since_s` is CLOCK_BOOTTIME when it began."""

    member: str
    incarnation: str
    epoch: int
    since_s: float
    _progress: dict[str, Progress] = attrs.field(init=False, factory=dict)
    _entering: dict[str, str] = attrs.field(init=False, factory=dict)
    """Incarnations of members that count, and are asked for when they have all."""
    _request: SwitchRequest | None = attrs.field(init=False, default=None)
    """The request of an operator or of this master; it is being carried out, or has failed."""
    _leaves_set: bool = attrs.field(init=False, default=False)
    """True if that request says that this member cannot serve: it has to enter the set again."""

    def acknowledging(self, known: GroupState, acks: Mapping[str, Ack]) -> frozenset[str]:
        """Return the members of the set that have acknowledged something in this epoch."""
        members = known.in_sync.items()
        return frozenset(one[0] for one in members if in_sync.position_of(one, self.epoch, acks) is not None)

    def confirmable(self, report: Report, counting: frozenset[in_sync.StoreId]) -> int:
        """Return the position that every counting store has acknowledged in this epoch."""
        own = (self.member, self.incarnation)
        return in_sync.confirmable(own, report.end, self.epoch, counting, report.acks)

    @property
    def entering(self) -> frozenset[in_sync.StoreId]:
        """Members that will be asked for. They count already, like those of the set."""
        return frozenset(self._entering.items())

    def change_of_set(
        self,
        now_s: float,
        known: GroupState,
        report: Report,
        confirmed: int,
        keep_up_s: float,
        excused: frozenset[str] = frozenset(),
    ) -> GroupState | None:
        """Return the next in-sync set: first without members that are late, then with members that have caught up.

        A member that has caught up counts first. Only a later report, taken under the orders that count it, says what
        was confirmed without it; when it has that, it is asked for. Under load it would never have all at any moment
        that the report is of; while it counts, nothing is confirmed that it lacks.

        Args:
            excused: members that could take over from this one, which has a fault and may not hear their
                acknowledgements: in this time none of them is late.
        """
        self._record(now_s, known, report)
        for name in excused & self._progress.keys():
            self._progress[name].caught_up_s = now_s
        late = [
            name
            for name, incarnation in known.in_sync.items()
            if name not in excused and self._is_late(name, incarnation, now_s, report, keep_up_s)
        ]
        if late:
            return in_sync.without(known, late)
        start = next((entry.start for entry in report.epochs.entries if entry.number == self.epoch), report.end)
        able = {
            name: ack
            for name, ack in report.acks.items()
            if name not in known.in_sync
            and in_sync.may_enter(ack, self.epoch, start, 0)
            and self._progress[name].caught_up_s > now_s - keep_up_s
        }
        ready = {
            name: ack.incarnation
            for name, ack in able.items()
            if self._entering.get(name) == ack.incarnation and in_sync.may_enter(ack, self.epoch, start, confirmed)
        }
        self._entering = {name: ack.incarnation for name, ack in able.items()}
        return in_sync.having(known, ready) if ready else None

    def _record(self, now_s: float, known: GroupState, report: Report) -> None:
        """Record how far each member has the log. One that has not come has until `keep_up_s` after the epoch began."""
        for name in known.in_sync.keys() | report.acks.keys():
            ack = report.acks.get(name)
            begun = self.since_s if name in known.in_sync else float("-inf")
            progress = self._progress.setdefault(name, Progress(begun))
            if ack is not None and ack.epoch == self.epoch:
                progress.record(ack.position, report.end, now_s)

    def _is_late(self, name: str, incarnation: str, now_s: float, report: Report, keep_up_s: float) -> bool:
        if name == self.member:
            return False
        ack = report.acks.get(name)
        replaced = ack is not None and ack.epoch == self.epoch and ack.incarnation != incarnation
        return replaced or now_s - self._progress[name].caught_up_s > keep_up_s

    # --- switch-over --------------------------------------------------------------------------------------------------

    def accept_switch_over(self, view: View, wall_ms: int) -> bool:
        """Take an operator's request for another master; False: there is none that can succeed. Each is tried once."""
        request = view.switch
        if (
            request is None
            or request == self._request
            or request.from_epoch != self.epoch
            or wall_ms >= request.until_ms
        ):
            return False
        if request.to == self.member or not self._is_able(request.to, view):
            return False
        self._request, self._leaves_set = request, False
        return True

    def hand_over_to(self, name: str) -> None:
        """Switch over without an operator, because this member cannot serve."""
        self._request, self._leaves_set = SwitchRequest(from_epoch=self.epoch, to=name, until_ms=0), True

    def switch_over(self, view: View, report: Report) -> tuple[GroupState, MasterRecord] | None:
        """Return the next `state` and `master`, when the target has everything; None: not yet."""
        request, known = self._request, view.state
        if request is None or known is None or not report.done or not self._is_able(request.to, view):
            return None
        target = (request.to, known.in_sync[request.to])
        position = in_sync.position_of(target, self.epoch, report.acks)
        if position is None or position < report.end:
            return None
        kept = in_sync.without(known, [self.member] if self._leaves_set else [])
        new = attrs.evolve(kept, epoch=self.epoch + 1, master=request.to)
        return new, MasterRecord(member=request.to, epoch=new.epoch, lease=view.members[request.to].lease)

    def _is_able(self, name: str, view: View) -> bool:
        """Return True if the member is in sync, and alive with the same store."""
        record, known = view.members.get(name), view.state
        return record is not None and known is not None and known.names(name, record.incarnation)
