"""The broker as its coordinator sees it: the member block, the control block, the table of slaves, the epoch file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import attrs

from rocketpy.failover.etcd.gateway import EtcdStatus
from rocketpy.failover.member_block import NO_DEADLINE_NS, Following, MemberOrders
from rocketpy.failover.rules.epochs import EpochList, EpochsInvalid
from rocketpy.failover.rules.fences import FOR_EVER_S
from rocketpy.failover.rules.member import SERVING
from rocketpy.failover.rules.records import MemberRecord
from rocketpy.failover.rules.requests import Orders, Report
from rocketpy.failover.rules.states import State
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.control_block import ControlView
from rocketpy.store.files import StorePaths

from .health import Health
from .tree import MemberMemory

FOLLOWING = frozenset({State.FOLLOWER, State.IN_SYNC})


@attrs.frozen(kw_only=True)
class CoordinatorView:
    """The knowledge of the coordinator at one moment."""

    registered: Mapping[str, MemberRecord] = attrs.field(factory=dict)  # the members that etcd has, by name
    etcd: EtcdStatus = attrs.field(factory=EtcdStatus)  # as it was seen last
    lease_ends_s: float = 0.0  # CLOCK_BOOTTIME, as far as is known; 0: there is no lease


@attrs.define(eq=False)
class SharedBroker:
    """A MemberBroker (rocketpy/failover/etcd/coordinator.py) in shared memory. Made when the store was opened once.

    While a process tree opens the store the report is that of the tree before, and nothing is done.

    Args:
        paths: of the store of the process tree.
        ring: wakes the guardian.
        view: of the coordinator, which is made after this.
    """

    memory: MemberMemory
    paths: StorePaths
    ring: Callable[[], None]
    is_sync_flush: bool = False
    view: Callable[[], CoordinatorView] = CoordinatorView
    _control: ControlView | None = attrs.field(init=False, default=None)  # of the tree that runs
    _end: int = attrs.field(init=False, default=0)
    _confirmed: int = attrs.field(init=False, default=0)
    _version: int = attrs.field(init=False, default=0)  # of the orders that hold
    _incarnation: str = attrs.field(init=False, default="")
    _epochs: EpochList | None = attrs.field(init=False, default=None)  # None: damaged
    _epochs_version: int = attrs.field(init=False, default=-1)
    _epoch: int = attrs.field(init=False, default=-1)  # that this member serves
    _followed: Following | None = attrs.field(init=False, default=None)  # the master that was followed last
    _known: dict[str, MemberRecord] = attrs.field(init=False, factory=dict)  # as they were registered last
    _health: Health = attrs.field(init=False)
    _fault: str = attrs.field(init=False, default="")  # of the last report

    def __attrs_post_init__(self) -> None:
        self._health = Health(self.memory.block, self.memory.marks, self.is_sync_flush)

    # --- report -----------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the state of the store and of replication.

        `done` is read first: sends that are stored between the two reads are below `end` then. A switch-over hands
        over to a member that has everything below it. The tree that has done it must be the one whose end is read.
        """
        block, own = self.memory.block, self.memory.block.own
        is_done = self._is_done()
        is_done = self._read_positions() and is_done
        self._incarnation = own.incarnation if own else self._incarnation
        opened = block.opened_epoch
        self._read_epochs()
        self._fault = self._health.fault(None if self._control is None else self._control.header)
        return Report(
            incarnation=self._incarnation,
            epochs=self._epochs or EpochList(),
            damaged=self._epochs is None,
            confirmed=block.confirmed(self._confirmed),
            end=self._end,
            done=is_done,
            opened=opened,
            newest_epoch_seen=block.newest_epoch_seen,
            diverged=block.is_diverged,
            acks=self.memory.slaves.acknowledged(),
            wall_ms=time.time_ns() // 1_000_000,
            fault=self._fault,
            is_open=self._control is not None,
        )

    def _read_positions(self) -> bool:
        """Read the ends of the log. Returns: False: no store is open; the last ends stay."""
        if not self.memory.marks.is_open:
            if self._control is not None:
                self._control.close()
                self._control = None
            return False
        if self._control is None:
            self._control = ControlView(self.paths.control)
        self._end = int(self._control.header.published_phy_offset)
        self._confirmed = int(self._control.header.confirmed_phy_offset)
        return True

    def _is_done(self) -> bool:
        """Return True if the work that the orders end has ended: a slave tree's stream, or a master tree's sends."""
        is_master = self.memory.marks.is_master
        if is_master is None or not self.memory.marks.is_open:
            return False
        reported = self.memory.block.sends_refused if is_master else self.memory.block.stream_stopped
        return reported == self._version

    def _read_epochs(self) -> None:
        version = self.memory.block.epochs_version
        if version == self._epochs_version:
            return
        try:
            self._epochs = EpochFile(self.paths.root).read()
        except EpochsInvalid:
            self._epochs = None
        self._epochs_version = version

    # --- orders -----------------------------------------------------------------------------------------------------

    def apply(self, orders: Orders) -> None:
        self.memory.marks.coordinator_turned_s = time.monotonic()
        following, self._epoch = self._following(orders.following), orders.epoch
        self._followed = following or self._followed
        known = self.memory.block.orders()
        before = known[0] if known else MemberOrders()  # this process alone changes them
        given = MemberOrders(
            is_master=orders.state in SERVING or (before.is_master and orders.state not in FOLLOWING),
            epoch=orders.epoch,
            takes_sends=orders.duties.takes_sends,
            keeps_sends=orders.duties.keeps_sends,
            pauses_intake=orders.is_next_master,
            answers_waits=orders.duties.answers_waits,
            sends_stream=orders.duties.sends_stream,
            is_broker_0=orders.duties.is_broker_0,
            following=following,
            counting=orders.counting,
            unclean_epoch=orders.unclean,
        )
        until_ns = _deadline_ns(orders.deadline_s)
        if until_ns < self.memory.block.deadline_ns:
            self.memory.block.deadline_ns = until_ns
        self._version = self.memory.block.give(given)
        self.memory.block.deadline_ns = until_ns
        if (given.is_master, given.epoch) != (before.is_master, before.epoch):
            self.ring()
        shown, view = self.memory.shown, self.view()
        shown.show(orders.state, orders.epoch, len(orders.counting), view.lease_ends_s)
        shown.show_etcd(bool(view.etcd.alarms), view.etcd.db_bytes)
        shown.show_faults(bool(self._fault), sum(bool(each.fault) for each in view.registered.values()))

    def replaced(self) -> Following | None:
        """While this member serves: the master that it followed before, if that may not know that it was replaced."""
        before = self._followed
        if before is None or self._epoch < 0 or before.member in self.view().registered:
            return None
        ack = self.memory.slaves.acknowledged().get(before.member)
        return None if ack is not None and ack.epoch == self._epoch else before

    def refute_epoch(self, seen: int, newest: int) -> None:
        self.memory.block.refute_epoch(seen, newest)

    def _following(self, following: tuple[str, int] | None) -> Following | None:
        """Add the addresses of the master to follow; None if they are not known yet."""
        if following is None:
            return None
        member, epoch = following
        self._known.update(self.view().registered)
        record = self._known.get(member)
        if record is None:
            return None
        return Following(member=member, epoch=epoch, ha_address=record.ha_address, address=record.address)


def _deadline_ns(deadline_s: float) -> int:
    if deadline_s == FOR_EVER_S:
        return NO_DEADLINE_NS
    return max(0, int(deadline_s * 1e9)) if deadline_s > 0 else 0
