"""The coordinator's tasks: it keeps the lease, reads etcd, and lets the member decide. One member of one group.

    lease     renews it six times in its life, and registers the member with it
    read      once a second, and when the watch says that something has changed
    decide    five times a second, more often while the role changes, and when there is news:
              report -> step -> orders -> requests

A failed call is counted and tried again; no error of etcd ends a task. While etcd is away the member goes on with its
last view, until its lease is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
import trio

from rocketpy.errors import RocketError
from rocketpy.failover.rules import elections
from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import TEXT_MAX, GroupConfig, MemberRecord
from rocketpy.failover.rules.requests import Orders, Outcome, Report, RevokeLease, Transaction, View
from rocketpy.failover.rules.settings import Settings, differences, overruled
from rocketpy.failover.rules.states import DUTIES, EXPLANATIONS, Change, Event, State
from rocketpy.faults import Faults, first_of

from .gateway import EtcdUnavailable
from .group_keys import GroupKeys
from .upkeep import LOOK_S, Upkeep

TURN_S, QUICK_TURN_S = 0.2, 0.02
CHANGING = frozenset({State.CANDIDATE, State.PROMOTING, State.SWITCHING_OVER})  # the broker's next step is awaited
READ_S = 1.0
RETRY_S = 0.2
RENEWALS = 6  # in the life of a lease
END_S = 300.0  # between two registrations of a log that grows
LEAVE_TIMEOUT_S = 1.0
DRAIN_TIMEOUT_S, DRAIN_LOOK_S = 1.0, 0.02
_log = logging.getLogger(__name__)


def boot_clock() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def text_of(group: BaseException) -> str:
    """Return the text of the first fault of a group."""
    fault = first_of(group)
    return f"{type(fault).__name__}: {fault}"


@attrs.frozen(kw_only=True)
class Place:
    """The addresses of this member: `address` of the broker, `ha_address` of its HA port, and its brokerId as a
    slave."""

    address: str
    ha_address: str
    broker_id: int


class MemberBroker(Protocol):
    """The broker of a member, as its coordinator sees it. No call may wait."""

    def report(self) -> Report:
        """Return the state of the broker now. Its positions may be older than the moment, never newer."""
        ...

    def apply(self, orders: Orders) -> None:
        """Begin to carry out orders.

        Three things are done when it returns, because the next transaction rests on them: `counting` holds for every
        position that is confirmed from now on, `deadline_s` for every answer, and sends are refused if the duties say
        so. A stream that must end may take longer, and so may the sends of a master that hands over, which takes what
        it has read: `done` of the report says when both have ended.
        """
        ...

    def refute_epoch(self, seen: int, newest: int) -> None:
        """Forget that a peer has named epoch `seen`: etcd, asked afterwards, knows none above `newest`.

        From now on `newest_epoch_seen` of the report is `newest`, unless it has changed meanwhile.
        """
        ...


class Coordinator:
    """The coordinator of one member. `run` needs a gateway that is open as long as it runs."""

    def __init__(
        self,
        settings: Settings,
        place: Place,
        keys: GroupKeys,
        broker: MemberBroker,
        *,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.member = Member(settings)
        self.faults = Faults(name="failover")
        self.upkeep = Upkeep(keys.gateway, settings.keep_history_s)
        self._settings, self._place, self._keys, self._broker = settings, place, keys, broker
        self._clock = clock
        self._news = trio.Event()  # something to decide on
        self._changed = trio.Event()  # something to read
        self._doubted = trio.Event()  # whether the lease and what is registered with it still hold
        self._renewed = trio.Event()  # the lease: what is registered with it may have changed
        self._registered: MemberRecord | None = None
        self._revoking: set[int] = set()
        self._is_short = False  # of members in sync: messages are refused
        self._last_fault = self._told_fault = ""
        self._end_told_s = 0.0
        self._is_vacant = True  # there is no master
        self._group: GroupConfig | None = None  # what etcd has

    def wake(self) -> None:
        """Something in the report has changed that should not wait for the next turn."""
        self._news.set()

    async def run(self) -> None:
        """Run until cancelled; then refuse sends and revoke the lease, so that another member may serve."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._lease)
                nursery.start_soon(self._registrations)
                nursery.start_soon(self._watch)
                nursery.start_soon(self._read)
                nursery.start_soon(self._keep_up)
                nursery.start_soon(self._decide, nursery)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True):
            if self.member.state is State.MASTER:
                with trio.move_on_after(DRAIN_TIMEOUT_S):
                    await self._drain()
            self._broker.apply(Orders(state=State.JOINING, duties=DUTIES[State.JOINING]))
            if self.member.lease is not None:
                with trio.move_on_after(LEAVE_TIMEOUT_S):
                    await self._tried("leave", self._revoke, self.member.lease.number)

    async def _drain(self) -> None:
        """Refuse sends, and wait until all who follow have the rest: else a message may be left behind that waits for
        them, or that an asynchronous group has acknowledged already."""
        self._broker.apply(attrs.evolve(self.member.orders, duties=DUTIES[State.SWITCHING_OVER]))
        while True:
            report = self._broker.report()
            acks = [ack for ack in report.acks.values() if ack.epoch == self.member.epoch]
            if report.done and all(ack.position >= report.end for ack in acks):
                return
            await trio.sleep(DRAIN_LOOK_S)

    # --- etcd ---------------------------------------------------------------------------------------------------------

    async def _tried(self, name: str, act: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Call etcd. A failure is one line in the log, without a traceback."""
        try:
            await act(*arguments)
        except* (RocketError, OSError) as group:
            self.faults.report(name, text_of(group))

    async def _lease(self) -> None:
        while True:
            await self._tried("lease", self._keep_lease)
            with trio.move_on_after(self._settings.lease_s / RENEWALS if self.member.lease else RETRY_S):
                await self._doubted.wait()
            self._doubted = trio.Event()

    async def _keep_lease(self) -> None:
        """Get a lease or renew it."""
        self._keys.check()
        sent_s, known = self._clock(), self.member.lease
        if known is None:
            number, granted_s = await self._keys.gateway.grant(round(self._settings.lease_s))
        else:
            number, granted_s = known.number, await self._keys.gateway.keep_alive(known.number)
            if granted_s == 0:
                await self._revoke(number)  # only its answer says for certain that the lease has ended
                return await self._keep_lease()
        if known is self.member.lease:  # otherwise it was revoked in the meantime
            self.member.lease = Lease(number, sent_s, granted_s)
            self._news.set()
            self._renewed.set()

    async def _registrations(self) -> None:
        """Register again when something about the member has changed: beside the renewals, which wait for nothing."""
        while True:
            await self._renewed.wait()
            self._renewed = trio.Event()
            if self.member.lease is not None:
                await self._tried("registration", self._register, self.member.lease.number)

    async def _register(self, lease: int) -> None:
        report = self._broker.report()
        record = MemberRecord(
            address=self._place.address,
            ha_address=self._place.ha_address,
            broker_id=self._place.broker_id,
            incarnation=report.incarnation,
            epoch=report.epochs.last,
            end=self._end(report),
            lease=lease,
            flush=self._settings.config.flush,
            fault=self._fault(report)[:TEXT_MAX],
        )
        if record != self._registered:
            if await self._is_name_taken():
                self._registered = None
                return
            await self._keys.register(self._settings.member, record)
            self._registered = record

    def _end(self, report: Report) -> int:
        """Return the end of the log for the order of candidates. Each value is a revision of etcd, so one that only
        grows is registered now and then."""
        known, now_s = self._registered, self._clock()
        compares = self._is_vacant or self.member.state in (State.JOINING, State.CANDIDATE)
        if known is not None and not compares and now_s < self._end_told_s + END_S:
            return known.end
        self._end_told_s = now_s
        return report.end

    def _fault(self, report: Report) -> str:
        """Return the reason why this member cannot be master, for the others and for operators; empty: it can."""
        halted = "it has halted; its log says why" if self.member.state is State.HALTED else ""
        if not self.member.fault.is_told:
            return halted
        self._last_fault = report.fault or self._last_fault  # it may be away for a moment
        return self._last_fault

    async def _is_name_taken(self) -> bool:
        """Return True if another broker has this member's name: if haMember was copied, this broker would take the
        other's lease for its own last process's, and end it. A machine that is gone is registered until its lease has
        ended."""
        name, place = self._settings.member, self._place
        if self._registered is None:
            self._learn(await self._keys.read())
        found = self.member.registered.get(name)
        if found is None or (found.address, found.ha_address) == (place.address, place.ha_address):
            return False
        self.faults.report(
            "registration",
            f"member {name} is registered by the broker at {found.address}, and this one is at {place.address}: it "
            "waits for the lease of that one to end; if both run, set haMember to another name on one of them",
        )
        return True

    async def _revoke(self, lease: int) -> None:
        await self._keys.gateway.revoke(lease)
        self.member.lease_gone(lease)
        self._registered = None
        self._news.set()

    async def _watch(self) -> None:
        while True:
            await self._tried("watch", self._watch_once)
            await trio.sleep(RETRY_S)

    async def _watch_once(self) -> None:
        view = await self._keys.read()
        self._learn(view)
        # Not the bound method of one event: _read replaces it.
        await self._keys.gateway.watch(self._keys.prefix, view.revision + 1, lambda: self._changed.set())

    async def _read(self) -> None:
        while True:
            await self._tried("read", self._read_once)
            with trio.move_on_after(READ_S):
                await self._changed.wait()
            self._changed = trio.Event()

    async def _keep_up(self) -> None:
        while True:
            await self._tried("upkeep of etcd", self._look_at_etcd)
            await trio.sleep(LOOK_S)

    async def _look_at_etcd(self) -> None:
        await self.upkeep.look(self._clock(), is_master=self.member.state is State.MASTER)

    async def _read_once(self) -> None:
        seen = self._broker.report().newest_epoch_seen
        view = await self._keys.read()
        if view.config is None:
            view = await self._keys.configure(self._settings.config)
        if view.state is not None and seen > view.state.epoch:  # each epoch is in etcd before anybody can name it
            self._broker.refute_epoch(seen, view.state.epoch)
            self.faults.report("a peer", f"it named epoch {seen}, but the newest in etcd is {view.state.epoch}")
        self._learn(view)

    def _learn(self, view: View) -> None:
        self.member.learn(view)
        self._take_group(view.config)
        self._news.set()
        if view.master is None and not self._is_vacant:
            self._doubted.set()  # register the end of the log as it is now: candidates are compared by it
        self._is_vacant = view.master is None
        if self._registered is not None and self._settings.member not in view.members:
            self._doubted.set()  # the lease seems to have ended early: put the keys back sooner than others campaign

    def _take_group(self, group: GroupConfig | None) -> None:
        """Take the settings on which the group agrees; log once where the file of this broker differs."""
        if group is None or group == self._group:
            return
        self._group = group
        if found := overruled(self._settings.config, group):
            _log.warning("failover: %s: that of the group counts; correct the file of this broker", found)

    # --- deciding -----------------------------------------------------------------------------------------------------

    async def _decide(self, nursery: trio.Nursery) -> None:
        while True:
            report = self._broker.report()
            requests = self.member.step(self._clock(), report)
            self._broker.apply(self.member.orders)
            for change in self.member.changes_taken():
                self.tell(change)
            self._tell_if_short()
            self._tell_fault(self._fault(report))
            for request in requests:
                self._ask(nursery, request)
            if self.member.hint.is_open:
                self._changed.set()
            with trio.move_on_after(QUICK_TURN_S if self.member.state in CHANGING else TURN_S):
                await self._news.wait()
            self._news = trio.Event()

    def tell(self, change: Change) -> None:
        """Log a change of role: it is rare, and the first thing that an operator looks for."""
        epoch = f" of epoch {change.epoch}" if change.epoch >= 0 else ""
        before, after, why = change.before.name, change.after.name, EXPLANATIONS[change.event]
        if change.event is Event.MISCONFIGURED and self._group is not None:
            found = differences(self._settings.config, self._group, self._settings.member)
            why = f"{why}: {found or 'the epoch file is damaged'}"
        _log.warning("failover: %s is %s%s, was %s: %s", self._settings.member, after, epoch, before, why)
        if change.after is State.PROMOTING:
            self._tell_of_longer_logs(change.epoch)
        if change.after is State.CANDIDATE:
            self._doubted.set()  # register the end of the log as it is now: candidates are compared by it

    def _tell_of_longer_logs(self, new_epoch: int) -> None:
        """Tell of brokers outside of the group that may have messages which the group has lost, when this member
        becomes its master."""
        if self._group is None:
            return
        report = self._broker.report()
        epoch = max((each.number for each in report.epochs.entries if each.number < new_epoch), default=-1)
        text = (
            "failover: %s is elected with a log that ends at %d in epoch %d, and the log of %s, which is not in "
            "haMembers, ends at %d in epoch %d: it may have messages that this group has lost. Keep its store; "
            "rocketpy pipeline replay sends them again"
        )
        longer = elections.longer_outside(self._group, self.member.registered, epoch=epoch, end=report.end)
        for name, record in longer.items():
            _log.warning(text, self._settings.member, report.end, epoch, name, record.end, record.epoch)

    def _tell_if_short(self) -> None:
        """Tell when messages are refused because too few members are in sync, and when they are taken again."""
        in_sync, least = self.member.in_sync_count, self.member.settings.in_sync_min
        is_short = self.member.state is State.MASTER and not self.member.settings.may_store(in_sync)
        if is_short and not self._is_short:
            text = "failover: %d members are in sync, minInSyncReplicas is %d: messages are refused; start the others"
            _log.warning(text, in_sync, least)
        elif self._is_short and not is_short:
            _log.warning("failover: messages are not refused for minInSyncReplicas any more: %d are in sync", in_sync)
        self._is_short = is_short

    def _tell_fault(self, fault: str) -> None:
        """Log a fault that lasts, and that it is over; let the group know soon."""
        if bool(fault) == bool(self._told_fault):
            return
        if fault:
            _log.warning("failover: %s cannot serve as master: %s", self._settings.member, fault)
        else:
            _log.warning("failover: %s can serve as master again", self._settings.member)
        self._told_fault = fault
        self._doubted.set()

    def _ask(self, nursery: trio.Nursery, request: Transaction | RevokeLease) -> None:
        if isinstance(request, Transaction):
            nursery.start_soon(self._tried, request.kind.value, self._carry_out, request)
        elif request.lease not in self._revoking:
            self._revoking.add(request.lease)
            nursery.start_soon(self._tried, "revoke", self._end_lease, request.lease)

    async def _end_lease(self, lease: int) -> None:
        try:
            await self._revoke(lease)
        finally:
            self._revoking.discard(lease)
        self._learn(await self._keys.read())

    async def _carry_out(self, asked: Transaction) -> None:
        """Ask etcd, and hand its answer on; without one after a pause, because it is asked again at once then."""
        outcome, view = Outcome.UNKNOWN, None
        try:
            outcome, view = await self._keys.decide(asked)
        finally:
            if view is not None:
                self.member.learn(view)
            else:
                self._changed.set()
                await trio.sleep(RETRY_S)
            self.member.answered(asked.number, outcome)
            self._news.set()
        if outcome is Outcome.UNKNOWN:
            raise EtcdUnavailable("no answer to a transaction; it is asked again until its outcome is known")
