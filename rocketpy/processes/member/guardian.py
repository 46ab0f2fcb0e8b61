"""The guardian: the process of a member that outlives all others. It holds the sockets, and runs two children.

    guardian
      |- coordinator   the lease, etcd, the rules of failover; it says in the member block what is to be
      '- process tree  supervisor and workers of an ordinary broker, as a slave or as the master of one epoch

When the member block wants another role, or the log must be cut, the process tree is stopped and another one is
started: a role never changes inside of a tree. A tree that takes too long is killed; that is as safe as kill -9 of a
broker. A child that dies is replaced. The guardian touches no store and no message, and runs neither threads nor trio,
so that it can fork at any moment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Callable

import attrs

from rocketpy.errors import RocketError
from rocketpy.failover.member_block import MemberOrders
from rocketpy.reactor.process import Identity, forget_handlers, hold_signals, own_standard_streams
from rocketpy.reactor.supervisor import EXIT_CANNOT_BOOT, EXIT_CRASHED, INSIST_AFTER_S, ParentProcess
from rocketpy.reactor.worker_spec import RestartPolicy

from .marks import EXIT_OTHER_EPOCH
from .tree import MemberMemory, Role

logger = logging.getLogger(__name__)

REPLACE_S = 2.0  # for a process tree to stop when another one is to start; then it is killed
LEAVE_S = 3.0  # for the coordinator to hand the group on
STOP_GRACE_S = 5.0  # beyond the supervisor's own bound
LOOK_S = 0.25  # at the member block, if nobody rings
HANGS_S = 5.0  # of a coordinator without a turn; it turns five times a second
BOOT_S = 60.0  # before its first turn
LATE_S = 1.0  # a turn of the guardian that is later means that all processes were paused
CUT_TRIES_MAX = 4  # of one log at one position
CUT_WAIT_S = 5.0  # after the first try; it doubles
CUT_FORGET_S = 600.0
ENDED_IN_ORDER = (0, -signal.SIGTERM)  # the latter while it opened the store: it served nobody yet
LATER = RestartPolicy(limit=None, backoff_max_s=2.0)


@attrs.define(eq=False)
class Child:
    """A child of the guardian, as the guardian sees it. `main` runs in the child and returns the exit status."""

    name: str
    main: Callable[[Role], int]
    keep_fds: tuple[int, ...]
    role: Role = attrs.field(init=False, factory=Role)
    pid: int = attrs.field(init=False, default=0)  # 0: it does not run
    pidfd: int = attrs.field(init=False, default=-1)
    ends_by: float | None = attrs.field(init=False, default=None)  # it was told to end; at this time it is killed
    start_at: float | None = attrs.field(init=False, default=0.0)
    """The time of its next start; None: it runs, or is not wanted any more."""
    deaths: list[float] = attrs.field(init=False, factory=list)  # times within the window of LATER


@attrs.define
class Cuts:
    """The tries to cut a log at one position: one that fails is made again later, and given up if it fails again and
    again.

    The position is asked for again only if the cut has failed: there was no room to keep the log tail aside, or no
    record ends there.
    """

    _position: int = -1
    _tries: int = 0
    _last_s: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """The cut cannot be done: the log has diverged for people to look at."""
        return self._tries >= CUT_TRIES_MAX

    def begin(self, position: int, now_s: float) -> bool:
        """Return True if the log is to be cut at `position` now, and count this try."""
        if position != self._position or now_s >= self._last_s + CUT_FORGET_S:
            self._position, self._tries = position, 0
        if self.is_given_up or (self._tries and now_s < self._last_s + CUT_WAIT_S * 2 ** (self._tries - 1)):
            return False
        self._tries, self._last_s = self._tries + 1, now_s
        return True


@attrs.define(eq=False)
class Guardian:
    """Runs coordinator and process tree until it is told to stop.

    Args:
        bell: an eventfd that the coordinator writes when the role that it wants has changed.
        stop_timeout_s: of the process tree's supervisor.
    """

    memory: MemberMemory
    coordinator: Child
    tree: Child
    bell: int
    stop_timeout_s: float = 10.0
    process: ParentProcess = attrs.field(factory=ParentProcess)
    on_turn: Callable[[float], None] = attrs.field(init=False, default=lambda now_s: None)
    """Called at least once a second, with the time of the clock."""
    _cuts: Cuts = attrs.field(init=False, factory=Cuts)
    _poller: select.poll = attrs.field(init=False, factory=select.poll)
    _signals: tuple[int, int] = attrs.field(init=False, default=(-1, -1))  # wakeup pipe: read, write
    _orders: MemberOrders = attrs.field(init=False, factory=MemberOrders)
    _refused: int = attrs.field(init=False, default=-1)  # the epoch that the process tree cannot serve
    _turned_at: float = attrs.field(init=False, default=float("-inf"))
    _watching_since: float = attrs.field(init=False, default=0.0)  # time before it is no silence of the coordinator
    _stop_asked_at: float | None = attrs.field(init=False, default=None)
    _status: int = attrs.field(init=False, default=0)

    def run(self) -> int:
        """Serve until a signal or an error ends it. Returns: the exit status, 0 after a clean stop."""
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for fd in (self._signals[0], self.bell):
            self._poller.register(fd, select.POLLIN)
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # the wakeup pipe passes it to the loop
        try:
            while not self._has_stopped:
                self._turn()
        finally:
            for child in self._children:
                self._kill(child)
            signal.set_wakeup_fd(-1)
        return self._status

    # --- one turn ---------------------------------------------------------------------------------------------------

    @property
    def _children(self) -> tuple[Child, Child]:
        return self.tree, self.coordinator

    @property
    def _has_stopped(self) -> bool:
        return self._stop_asked_at is not None and not any(child.pid for child in self._children)

    def _turn(self) -> None:
        events = {fd for fd, _ in self._poller.poll(self._wait_ms())}
        if self._signals[0] in events:
            self._take_signals()
        if self.bell in events:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.bell)
        for child in self._children:
            if child.pidfd in events and child.pid:
                self._ended(child)
        now = self.memory.marks.guardian_turned_s = self.process.clock()
        self._excuse_pauses(now)
        self.on_turn(now)
        if self._stop_asked_at is None:
            self._change_role(now)
            self._watch_coordinator(now)
            for child in self._children:
                if child.start_at is not None and child.start_at <= now:
                    self._start(child)
        elif not self.coordinator.pid:
            self._end(self.tree, self.stop_timeout_s + STOP_GRACE_S)
        for child in self._children:
            if child.ends_by is not None and child.pid and child.ends_by <= now:
                self._insist(child)

    def _wait_ms(self) -> int:
        now = self.process.clock()
        times = [at for child in self._children for at in (child.ends_by, child.start_at) if at is not None]
        return max(0, int(min([LOOK_S, *(at - now for at in times)]) * 1000) + 1)

    def _take_signals(self) -> None:
        for number in os.read(self._signals[0], 4096):
            if number == signal.SIGHUP:
                self._signal(self.tree, signal.SIGHUP)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._stop()

    # --- role -------------------------------------------------------------------------------------------------------

    def _wanted(self) -> Role:
        """Return the role that the coordinator wants. Until it knows, a master's tree stays: it serves only if told."""
        found = self.memory.block.orders()
        orders = self._orders = found[0] if found else self._orders
        running = self.tree.role if self.tree.pid else Role()
        if orders.is_master and orders.epoch < 0 and running.is_master:
            return running
        if orders.is_master and orders.epoch >= 0 and orders.epoch != self._refused:
            return Role(is_master=True, epoch=orders.epoch)
        return Role()

    def _change_role(self, now: float) -> None:
        """End a process tree that has another role than is wanted, or whose log must be cut."""
        wanted, tree = self._wanted(), self.tree
        if not wanted.is_master and tree.ends_by is None:
            wanted = attrs.evolve(wanted, cut_at=self._cut_at(now))
        if not tree.pid:
            if wanted.is_master != tree.role.is_master and tree.start_at is not None:
                tree.start_at = now  # a wait after a death in another role is over
            tree.role = wanted
            return
        has_role = (tree.role.is_master, tree.role.epoch) == (wanted.is_master, wanted.epoch)
        if tree.ends_by is None and (not has_role or wanted.cut_at is not None):
            self.memory.marks.is_replaced = True
            tree.role, tree.start_at = wanted, None
            self._end(tree, REPLACE_S)

    def _cut_at(self, now: float) -> int | None:
        """Return the position at which the next process tree has to cut the log; None: no cut, or not now."""
        cut_at = self.memory.block.cut_phy_offset
        if cut_at is None or self.memory.block.is_diverged:
            return None
        if cut_at == self.tree.role.cut_at or self._cuts.begin(cut_at, now):
            return cut_at
        if self._cuts.is_given_up:
            self.memory.block.set_diverged()
            self.process.log(
                "the log cannot be cut at %d, which the master asks for: this member stops following; see why above, "
                "stop it, and let it join with an empty store: rocketpy store set-aside",
                cut_at,
            )
        return None

    # --- the coordinator's turns ------------------------------------------------------------------------------------

    def _excuse_pauses(self, now: float) -> None:
        """Time in which this process did not run either is no silence of the coordinator."""
        if now > self._turned_at + LOOK_S + LATE_S:
            self._watching_since = now
        self._turned_at = now

    def _watch_coordinator(self, now: float) -> None:
        """Kill a coordinator that hangs: its successor gives the lease back, and the group has a master that turns."""
        coordinator, turned_s = self.coordinator, self.memory.marks.coordinator_turned_s
        limit_s = HANGS_S if turned_s else BOOT_S
        if not coordinator.pid or coordinator.ends_by is not None:
            return
        silent_s = now - max(turned_s, self._watching_since)
        if silent_s > limit_s:
            self.process.log("coordinator has made no turn for %.1f s: killing it", silent_s)
            self._watching_since = now  # one kill is enough, but one that has no effect is repeated
            self._signal(coordinator, signal.SIGKILL)

    # --- life and death of a child ------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        child.start_at, child.ends_by = None, None
        if child is self.tree:
            self.memory.block.begin_tree()
            self.memory.marks.is_replaced, self.memory.marks.is_open, self.memory.marks.is_master = (
                False,
                False,
                child.role.is_master,
            )
        else:
            self.memory.marks.coordinator_turned_s, self._watching_since = 0.0, self.process.clock()
        identity = Identity(f"rocketpy: {child.name}", child.keep_fds, prefers_latency=False, ends_on_sigterm=True)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        try:
            with hold_signals():
                pid = self.process.fork()
                if pid == 0:
                    self._become(child, identity, parent)
            child.pid, child.role = pid, attrs.evolve(child.role, cut_at=None)  # a log is cut once
            child.pidfd = os.pidfd_open(pid)
        except OSError as exc:
            self._kill(child)
            self._start_later(child, f"cannot be started: {exc.strerror}")
            return
        self._poller.register(child.pidfd, select.POLLIN)

    def _become(self, child: Child, identity: Identity, parent: int) -> None:
        """Run the child's main in the child; never returns."""
        status = EXIT_CRASHED
        try:
            identity.take(parent)
            forget_handlers(ends_on_sigterm=True)  # until the child has a handler of its own, nothing needs order
            own_standard_streams()
            status = child.main(child.role)
        except RocketError as exc:
            logger.error("process %s cannot start: %s", child.name, exc)
            status = EXIT_CANNOT_BOOT
        except BaseException:
            logger.critical("process %s failed", child.name, exc_info=True)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _ended(self, child: Child) -> None:
        """Reap a child that has ended, and start it again unless the guardian is stopping."""
        _, wait_status = os.waitpid(child.pid, 0)
        self._poller.unregister(child.pidfd)
        os.close(child.pidfd)
        was_told, code = child.ends_by is not None, os.waitstatus_to_exitcode(wait_status)
        child.pid, child.pidfd, child.ends_by = 0, -1, None
        if child is self.tree:
            self.memory.marks.is_open, self.memory.marks.is_master = False, None
        if self._stop_asked_at is not None:
            if child is self.tree and code not in ENDED_IN_ORDER:
                self._status = 1
            return
        if was_told:
            child.start_at = self.process.clock()
        elif code == EXIT_CANNOT_BOOT and not self.memory.marks.told_ready:
            self._status = code
            self._stop()
        elif child is self.tree and code == EXIT_OTHER_EPOCH:
            self._leave_mastership(child)
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            self._start_later(child, how)

    def _leave_mastership(self, tree: Child) -> None:
        """Refuse the wanted epoch: this store has lost bytes of it. The killed coordinator lets the group elect."""
        self.process.log("this store cannot serve epoch %d: leaving the mastership", tree.role.epoch)
        self._refused, tree.role, tree.start_at = tree.role.epoch, Role(), self.process.clock()
        self._signal(self.coordinator, signal.SIGKILL)

    def _start_later(self, child: Child, how: str) -> None:
        now = self.process.clock()
        child.deaths[:] = [at for at in child.deaths if at > now - LATER.window_s]
        delay_s = LATER.delay_s(len(child.deaths), self.process.jitter())
        child.deaths.append(now)
        child.start_at = now + delay_s
        when = "now" if delay_s == 0 else f"in {delay_s * 1000:.0f} ms"
        self.process.log("process %s %s; restarting %s", child.name, how, when)

    def _stop(self) -> None:
        """Hand the group on, then stop the process tree. A second request kills both."""
        now = self.process.clock()
        if self._stop_asked_at is None:
            self._stop_asked_at = now
            self.memory.marks.is_replaced = False
            for child in self._children:
                child.start_at = None
            self._end(self.coordinator, LEAVE_S)
        elif now >= self._stop_asked_at + INSIST_AFTER_S:
            self._status = 1
            for child in self._children:
                self._signal(child, signal.SIGKILL)

    def _end(self, child: Child, within_s: float) -> None:
        """Tell a child to end, once."""
        if child.pid and child.ends_by is None:
            child.ends_by = self.process.clock() + within_s
            self._signal(child, signal.SIGTERM)

    def _insist(self, child: Child) -> None:
        self.process.log("process %s did not end in time: killing it", child.name)
        child.ends_by = float("inf")
        if self._stop_asked_at is not None and child is self.tree:
            self._status = 1
        self._signal(child, signal.SIGKILL)

    def _signal(self, child: Child, number: signal.Signals) -> None:
        if child.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, number)

    def _kill(self, child: Child) -> None:
        if child.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
            child.pid = 0
