"""One member of a group: takes reports, views of etcd and answers; says what it is, what it does, what it asks for.

    member.learn(view)               something was read from etcd
    member.answered(number, outcome) a transaction was answered, or its answer is given up
    member.lease = ...               a lease was granted or renewed; `lease_gone(number)`: it has ended
    member.step(now_s, report)       -> requests; afterwards `state`, `duties`, `following`, `acknowledged` hold

It has no clock: `now_s` is CLOCK_BOOTTIME. Every decision is level-triggered: it follows from what is known, not from
which message brought it, so a message that is lost, doubled or late costs time only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from . import elections, in_sync
from .conditions import SWITCH_OVER_S, Fault, Hint, NextMaster, able_others
from .elections import Candidate
from .fences import NEVER_S, Lease
from .mastership import Mastership
from .records import GroupState, MasterRecord, MemberRecord
from .requests import Decisions, Kind, Orders, Outcome, Report, RevokeLease, Transaction, View
from .settings import Settings
from .states import DUTIES, Change, Duties, Event, State, next_state

SERVING = frozenset({State.PROMOTING, State.MASTER, State.FENCED, State.SWITCHING_OVER})


@attrs.define(eq=False)
class Member:
    """The rules of failover for one member; see the module."""

    settings: Settings
    state: State = State.JOINING
    epoch: int = attrs.field(init=False, default=-1)  # the epoch that this member serves, in the states of SERVING
    lease: Lease | None = attrs.field(init=False, default=None)
    acknowledged: int = attrs.field(init=False, default=0)  # sends that end up to here may be answered SUCCESS
    confirmed: int = attrs.field(init=False, default=0)  # what consumers may see, in the states of SERVING
    copies: int = attrs.field(init=False, default=1)  # members that have `confirmed`; 1: SLAVE_NOT_AVAILABLE if sync
    changes: list[Change] = attrs.field(init=False, factory=list)  # not yet taken by `changes_taken`
    hint: Hint = attrs.field(init=False, factory=Hint)
    fault: Fault = attrs.field(init=False, factory=Fault)
    _view: View | None = attrs.field(init=False, default=None)
    _report: Report | None = attrs.field(init=False, default=None)
    _now_s: float = attrs.field(init=False, default=0.0)
    _since_s: float = attrs.field(init=False, default=0.0)  # when the present state began
    _absent_since_s: float | None = attrs.field(init=False, default=None)
    _next: NextMaster = attrs.field(init=False, factory=NextMaster)
    _base: int = attrs.field(init=False, default=0)  # the revision of `state` that a candidate campaigns on
    _given_up: int = attrs.field(init=False, default=-1)  # the last epoch that this member did not go on to serve
    _decisions: Decisions = attrs.field(init=False, factory=Decisions)
    _mastership: Mastership | None = attrs.field(init=False, default=None)

    # --- what comes in ------------------------------------------------------------------------------------------------

    def learn(self, view: View) -> None:
        """Take a read of etcd; an older one than the last is left out."""
        if self._view is None or view.revision >= self._view.revision:
            self._view = view
            self.settings = self.settings.in_group(view.config)
            self._decisions.seen(view.state_revision)

    def answered(self, number: int, outcome: Outcome) -> None:
        """Take the answer to a transaction. Call `learn` with what came with it."""
        self._decisions.answered(number, outcome)

    def lease_gone(self, number: int) -> None:
        """Forget a lease of this member, which has ended for certain."""
        self._decisions.lease_gone(number)
        if self.lease is not None and self.lease.number == number:
            self.lease = None

    def changes_taken(self) -> list[Change]:
        """Return the changes of state since the last call."""
        taken, self.changes = self.changes, []
        return taken

    # --- what follows -------------------------------------------------------------------------------------------------

    @property
    def duties(self) -> Duties:
        return DUTIES[self.state]

    @property
    def registered(self) -> Mapping[str, MemberRecord]:
        """The members that are alive, as etcd was read last."""
        return self._view.members if self._view else {}

    @property
    def in_sync_count(self) -> int:
        """Members in sync, the master included."""
        known = self._view.state if self._view else None
        return len(known.in_sync) if known else 0

    @property
    def following(self) -> tuple[str, int] | None:
        """The member whose stream to take, and the epoch that `state` names; None: no stream."""
        known = self._view.state if self._view and self.duties.takes_stream else None
        return None if known is None or known.master == self.settings.member else (known.master, known.epoch)

    @property
    def orders(self) -> Orders:
        """The orders for the broker now. They count what the last `step` asks for, so apply them before asking."""
        duties = self.duties
        if not self.settings.may_store(self.in_sync_count):
            duties = attrs.evolve(duties, takes_sends=False)
        return Orders(
            state=self.state,
            duties=duties,
            epoch=self.epoch if self.state in SERVING else -1,
            following=self.following,
            counting=self._counting(),
            is_next_master=self._next.is_wanted(self._view, self._report, self.settings.member, self._now_s),
            deadline_s=self._open_until() if self.duties.answers_waits else NEVER_S,
            unclean=self._view.state.unclean if self._view and self._view.state else 0,
        )

    def step(self, now_s: float, report: Report) -> list[Transaction | RevokeLease]:
        """Work out all consequences of the view and the report.

        Returns: the requests to etcd, at most one transaction at a time.
        """
        members = self.settings.config.members  # a stranger who knows the secret may follow under any name
        report = attrs.evolve(report, acks={name: ack for name, ack in report.acks.items() if name in members})
        self._now_s, self._report = now_s, report
        self.fault.update(now_s, report.fault)
        if self._view is None:
            return []
        present = self._view.master is not None
        self._absent_since_s = None if present else self._absent_since_s or now_s
        self.hint.update(now_s, report.newest_epoch_seen, self._view.state)
        for _ in State:  # no state is entered twice in a step
            event = self._event()
            if event is None:
                break
            self._enter(next_state(self.state, event), event)
        self._acknowledge()
        return self._requests()

    def _enter(self, after: State, event: Event) -> None:
        assert after is not self.state, f"{event} means nothing in {self.state}"
        assert self._view is not None and self._report is not None
        if (after in SERVING) != (self.state in SERVING):
            self.fault.role_changed(self._report.fault)
        if after is State.PROMOTING:
            assert self._view.state is not None
            self.epoch = self._view.state.epoch
        if after is State.CANDIDATE:
            self._base = self._view.state_revision
        if after in SERVING and self._mastership is None:
            self._mastership = Mastership(self.settings.member, self._report.incarnation, self.epoch, self._now_s)
            self.confirmed = self._report.confirmed
        elif after not in SERVING:
            self._given_up = self.epoch if event is Event.GAVE_UP else self._given_up
            self._mastership = None
        self.changes.append(Change(self.state, event, after, self.epoch if after in SERVING else -1))
        self.state, self._since_s = after, self._now_s

    # --- events -------------------------------------------------------------------------------------------------------

    def _event(self) -> Event | None:
        """Return the event that holds now and means something in this state; the first of several."""
        view, report = self._view, self._report
        assert view is not None and report is not None
        is_unfit = report.damaged or not self.settings.may_be_in(view.config)
        if self.state is State.HALTED:  # an operator may have made it master in etcd, though it has diverged
            return Event.OPERATOR_ORDER if self._is_appointed() and not is_unfit else None
        if is_unfit:
            return Event.MISCONFIGURED
        if self.state in SERVING:
            if self.hint.is_old(self._now_s) or view.state is None or view.state.epoch > self.epoch:
                return self._replaced_by(view.state)
            return _EVENTS[self.state](self)
        if self._is_appointed():
            return Event.APPOINTED
        return _EVENTS[self.state](self)

    def _replaced_by(self, known: GroupState | None) -> Event:
        switched = self.state is State.SWITCHING_OVER and known is not None and known.epoch == self.epoch + 1
        return Event.SWITCHED_OVER if switched else Event.HIGHER_EPOCH

    def _is_appointed(self) -> bool:
        assert self._view is not None and self._report is not None
        known = self._view.state
        return (
            known is not None
            and known.master == self.settings.member
            and known.names(self.settings.member, self._report.incarnation)
            and known.epoch > max(self._report.epochs.last, self._given_up)
            and known.epoch >= self._report.newest_epoch_seen
        )

    def _in_joining(self) -> Event | None:
        assert self._view is not None
        known = self._view.state
        if known is None:
            return Event.MAY_BOOTSTRAP if elections.may_bootstrap(self._candidate, self.settings.config) else None
        if self._may_campaign():
            return Event.MAY_CAMPAIGN
        return Event.MASTER_KNOWN if known.master != self.settings.member else None

    def _in_follower(self) -> Event | None:
        return self._diverged_or_campaigns() or (Event.ENTERED_SET if self._is_in_sync() else None)

    def _in_in_sync(self) -> Event | None:
        return self._diverged_or_campaigns() or (None if self._is_in_sync() else Event.LEFT_SET)

    def _diverged_or_campaigns(self) -> Event | None:
        assert self._report is not None
        if self._report.diverged:
            return Event.DIVERGED
        return Event.MAY_CAMPAIGN if self._may_campaign() else None

    def _in_candidate(self) -> Event | None:
        assert self._view is not None
        if self._view.state_revision != self._base:
            return Event.ELECTION_LOST
        return Event.MASTER_BACK if self._view.master is not None and not self._is_undecided else None

    def _in_promoting(self) -> Event | None:
        assert self._report is not None
        return Event.READY if self._report.opened == self.epoch else self._fault_event()

    def _in_master(self) -> Event | None:
        assert self._view is not None and self._report is not None and self._mastership is not None
        if not self._fence_is_open():
            return Event.LEASE_OVER
        is_wanted = self._mastership.accept_switch_over(self._view, self._report.wall_ms)
        return Event.SWITCH_OVER_WANTED if is_wanted else self._fault_event()

    def _fault_event(self) -> Event | None:
        """Return the event if this member cannot serve and another one can. HAS_FAULT begins the switch-over."""
        assert self._view is not None and self._report is not None and self._mastership is not None
        able, least_s = able_others(self._view, self.settings.member), self.settings.fault_s
        if not self._report.fault or not able or not least_s or self.fault.lasts_s < least_s or self._is_undecided:
            return None
        if self.state is State.PROMOTING or not self._report.is_open:
            return Event.GAVE_UP
        self._mastership.hand_over_to(elections.best(self._view.members, able))
        return Event.HAS_FAULT

    def _in_fenced(self) -> Event | None:
        if self._decisions.is_asked(Kind.SWITCH_OVER):  # the target may be master by now, with a lease of its own
            return None
        return Event.LEASE_BACK if self._fence_is_open() else None

    def _in_switching_over(self) -> Event | None:
        assert self._view is not None and self._report is not None
        if not self._fence_is_open():
            return Event.LEASE_OVER
        if self._now_s < self._since_s + SWITCH_OVER_S or self._is_undecided:
            return None
        has_fault = self._report.fault and self.fault.is_told
        is_able = not has_fault or not able_others(self._view, self.settings.member)
        return Event.SWITCH_OVER_FAILED if is_able else Event.GAVE_UP

    # --- what events and requests rest on -----------------------------------------------------------------------------

    @property
    def _is_undecided(self) -> bool:
        """A transaction of this member may still succeed."""
        return self._decisions.waiting is not None or bool(self._decisions.unresolved)

    @property
    def _candidate(self) -> Candidate:
        assert self._view is not None and self._report is not None
        return Candidate(
            member=self.settings.member,
            incarnation=self._report.incarnation,
            epoch=self._report.epochs.last,
            registered=self._view.members,
        )

    def _is_in_sync(self) -> bool:
        assert self._view is not None and self._report is not None
        known = self._view.state
        return known is not None and known.names(self.settings.member, self._report.incarnation)

    def _may_campaign(self) -> bool:
        view = self._view
        assert view is not None
        if view.state is None or self._absent_since_s is None:  # the latter: there is a master
            return False
        absent_s, lease_s = self._now_s - self._absent_since_s, self.settings.lease_s
        if self.fault.is_told and absent_s < 2 * lease_s and able_others(view, self.settings.member):
            return False  # it would win, and could not serve
        return elections.may_campaign(
            self._candidate, self.settings.config, view.state, absent_s=absent_s, lease_s=lease_s
        )

    def _master_lease(self, held: MasterRecord | None) -> Lease | None:
        """Return the lease that holds `master`, if this member has it."""
        if held is None or self.lease is None or held.lease != self.lease.number:
            return None
        return self.lease if held.member == self.settings.member and held.epoch == self.epoch else None

    def _fence_is_open(self) -> bool:
        return self._now_s < self._open_until()

    def _open_until(self) -> float:
        assert self._view is not None and self._mastership is not None and self._report is not None
        if (known := self._view.state) is None:  # etcd has lost it, and there was no step since
            return NEVER_S
        acknowledging = self._mastership.acknowledging(known, self._report.acks)
        return self.settings.fence.open_until(self._master_lease(self._view.master), known, acknowledging)

    def _acknowledge(self) -> None:
        """Move `confirmed`, and `acknowledged` where the fence is open."""
        view, report = self._view, self._report
        assert view is not None and report is not None
        if self._mastership is None or view.state is None or view.state.epoch != self.epoch:
            return
        counting = self._counting()
        position = self._mastership.confirmable(report, counting)
        self.confirmed, self.copies = max(self.confirmed, position), len(counting)
        if self.duties.answers_waits:
            self.acknowledged = self.confirmed if self.settings.fence.is_sync else report.end

    def _counting(self) -> frozenset[in_sync.StoreId]:
        """Return the members that have to acknowledge in this epoch."""
        known = self._view.state if self._view else None
        if self._mastership is None or known is None or known.epoch != self.epoch:
            return frozenset()
        return in_sync.counting_stores(known, self._decisions.may_come) | self._mastership.entering

    # --- requests -----------------------------------------------------------------------------------------------------

    def _requests(self) -> list[Transaction | RevokeLease]:
        view = self._view
        assert view is not None
        if self.state is State.CANDIDATE:
            return self._campaign(view)
        if self.state is State.JOINING and view.master and view.master.member == self.settings.member:
            gives_back = elections.may_give_back(view.master, view.members, self.lease)
            return [RevokeLease(view.master.lease)] if gives_back else []
        if self._mastership is None or self._decisions.waiting or self.state is State.PROMOTING:
            return []
        return self._rule(view)

    def _campaign(self, view: View) -> list[Transaction | RevokeLease]:
        """Return a candidate's requests: the election, or the end of its lease when another member is master again."""
        assert self._report is not None
        if self._decisions.waiting or self.lease is None or not self._report.done:
            return []
        if view.master is not None:
            return [RevokeLease(one.master.lease) for one in self._decisions.unresolved[:1] if one.master]
        candidate, config = self._candidate, self.settings.config
        own = view.members.get(candidate.member)
        is_compared = config.mode == "sync" or (own is not None and own.end == self._report.end)  # by the others, too
        if not is_compared or self._now_s < self._since_s + elections.delay_s(candidate, config, view):
            return []
        new = elections.elected(candidate, config, view.state) if view.state else elections.bootstrapped(candidate)
        held = MasterRecord(member=candidate.member, epoch=new.epoch, lease=self.lease.number)
        return self._decisions.ask(
            Kind.ELECT if view.state else Kind.BOOTSTRAP, view, state=new, master=held, master_absent=True
        )

    def _rule(self, view: View) -> list[Transaction | RevokeLease]:
        """Return a master's requests: its key, the switch-over, the set."""
        assert self._mastership is not None and self._report is not None and view.state is not None
        if self._decisions.unresolved:
            return self._repeat(self._decisions.unresolved[-1], view)
        if view.master is None and self.lease is not None and self._now_s < self.lease.deadline_s:
            held = MasterRecord(member=self.settings.member, epoch=self.epoch, lease=self.lease.number)
            return self._decisions.ask(Kind.PUT_BACK, view, master=held, master_absent=True)
        if self.state is State.SWITCHING_OVER:
            switched = self._mastership.switch_over(view, self._report)
            if switched is None:
                return []
            return self._decisions.ask(Kind.SWITCH_OVER, view, state=switched[0], master=switched[1])
        confirmed, keep_up_s = max(self.confirmed, self._report.confirmed), self.settings.keep_up_s
        excused = able_others(view, self.settings.member) if self._report.fault else frozenset[str]()
        new = self._mastership.change_of_set(self._now_s, view.state, self._report, confirmed, keep_up_s, excused)
        return self._decisions.ask(Kind.CHANGE_SET, view, state=new) if new is not None else []

    def _repeat(self, asked: Transaction, view: View) -> list[Transaction | RevokeLease]:
        """Ask again, until it is known what became of it; a switch-over whose time is over is made impossible.

        The revision is the old one: a decision rests on the `state` that it was made from.
        """
        if asked.kind is Kind.SWITCH_OVER and self._now_s >= self._since_s + SWITCH_OVER_S:
            return self._decisions.ask(Kind.TOUCH, view, state=view.state)
        return self._decisions.ask_again(asked)


_EVENTS: dict[State, Callable[[Member], Event | None]] = {
    State.JOINING: Member._in_joining,
    State.FOLLOWER: Member._in_follower,
    State.IN_SYNC: Member._in_in_sync,
    State.CANDIDATE: Member._in_candidate,
    State.PROMOTING: Member._in_promoting,
    State.MASTER: Member._in_master,
    State.FENCED: Member._in_fenced,
    State.SWITCHING_OVER: Member._in_switching_over,
}
