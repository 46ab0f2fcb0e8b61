"""The supervisor: forks the workers, watches them, replaces dead ones, and stops them in order.

It touches no message, and runs neither threads nor trio, so that it can fork at any moment. All modules are imported
before, so a new worker serves within milliseconds.

    handlers enqueue, the loop acts:   signal -> wakeup pipe -> poll -> order
                                       death  -> pidfd       -> poll -> restart, at once or after a jittered wait
    one turn:                          deaths, signals, due restarts, heartbeats, readiness, the stop's next phase

Time in which this process itself was paused does not count as silence of a worker: see `_discount_lateness`.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import attrs

from rocketpy.errors import ConfigError, RocketError, StoreError
from rocketpy.faults import first_of

from .process import (
    Identity,
    expect_frames,
    forget_handlers,
    has_computed,
    hold_signals,
    own_standard_streams,
    processor_times,
)
from .ring import STOP_INTAKE, STOP_LEAVE
from .worker_spec import EXIT_REOPEN, WorkerContext, WorkerSpec

logger = logging.getLogger(__name__)

EXIT_CANNOT_BOOT = 78  # EX_CONFIG: its one-line reason is in the log
EXIT_CRASHED = 70  # EX_SOFTWARE: a traceback is
OWN_FAULTS = frozenset({-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE, EXIT_CRASHED})
FAULT_DELAY_MAX_S = 0.5  # longest wait before a restart after a crash by a request
HEARTBEAT_CHECK_S = 1.0
LATE_S = 1.0  # a turn later than this means that all processes were paused
INSIST_AFTER_S = 1.0  # a second signal within it is the same request: `timeout`, `make` pass on what the group got
PHASE_GRACE_S = 1.0  # minimum time of each stop phase, even after the stop's deadline


@attrs.frozen
class ParentProcess:
    """The process in which children are watched: its clock and chance, its log, and its way to fork."""

    clock: Callable[[], float] = time.monotonic  # the clock of heartbeats
    jitter: Callable[[], float] = random.random  # of waits before a restart
    log: Callable[..., None] = logger.warning  # a text, and its values
    fork: Callable[[], int] = os.fork


@attrs.define(eq=False)
class _Child:
    """A worker as the supervisor sees it."""

    spec: WorkerSpec
    identity: Identity
    context: WorkerContext
    pid: int = attrs.field(init=False, default=0)  # 0: not running
    pidfd: int = attrs.field(init=False, default=-1)
    restart_at: float | None = attrs.field(init=False, default=None)
    restarts: list[float] = attrs.field(init=False, factory=list)  # times within the window
    faults: list[float] = attrs.field(init=False, factory=list)  # times within the window of crashes by a request
    is_hung: bool = attrs.field(init=False, default=False)
    is_looping: bool = attrs.field(init=False, default=False)  # it is hung, and computes
    times: tuple[int, int] | None = attrs.field(init=False, default=None)  # that it had run after half of its silence
    failed_forks: int = attrs.field(init=False, default=0)  # in a row


@attrs.define(eq=False)
class Supervisor:
    """Runs the workers of `specs` until it is stopped.

    Args:
        specs: in the order in which they are started.
        on_ready: called once, when every worker serves. on_reload: called on SIGHUP.
        on_turn: called HEARTBEAT_CHECK_S after the last time or sooner, with the names of workers that do not run.
        stop_timeout_s: for a clean stop; workers that take longer are killed.
    """

    specs: Sequence[WorkerSpec]
    stop_timeout_s: float = 10.0
    on_ready: Callable[[], None] = lambda: None
    on_reload: Callable[[], None] = lambda: None
    on_turn: Callable[[Sequence[str]], None] = lambda absent: None
    process: ParentProcess = ParentProcess()
    _children: dict[int, _Child] = attrs.field(init=False, factory=dict)  # by pidfd
    _all: list[_Child] = attrs.field(init=False, factory=list)
    _waiting: dict[int, _Child] = attrs.field(init=False, factory=dict)  # by the socket that starts them
    _poller: select.poll = attrs.field(init=False, factory=select.poll)
    _signals: tuple[int, int] = attrs.field(init=False, default=(-1, -1))  # wakeup pipe: read, write
    _news: int = attrs.field(init=False, default=-1)  # eventfd: a worker has become ready
    _ready_told: bool = attrs.field(init=False, default=False)
    _stopping: bool = attrs.field(init=False, default=False)
    _stop_asked_at: float = attrs.field(init=False, default=0.0)
    _turned_at: float = attrs.field(init=False, default=0.0)
    _watching_since: float = attrs.field(init=False, default=0.0)  # time before it does not count as silence
    _deadline: float = attrs.field(init=False, default=0.0)
    _phase_deadline: float = attrs.field(init=False, default=0.0)
    _phases: list[int] = attrs.field(init=False, factory=list)
    _exit_status: int = attrs.field(init=False, default=0)
    _reopens: bool = attrs.field(init=False, default=False)

    def run(self) -> int:
        """Start all workers, supervise them, stop them. Returns: the exit status: 1 if a worker failed too often or
        did not stop in time, else 0, or EXIT_REOPEN if a worker asked for that and nobody for a stop."""
        assert threading.active_count() == 1, "forking a process with threads is not safe"
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(self._signals[0], select.POLLIN)
        self._poller.register(self._news, select.POLLIN)
        self._listen_to_signals()
        self._all += [self._child(spec) for spec in self.specs]
        try:
            self._start([child for child in self._all if not self._awaits_connection(child)])
            self._turned_at = self.process.clock()
            while self._children or not self._stopping:
                self._turn()
        finally:
            self._kill_all()
        return self._exit_status or (EXIT_REOPEN if self._reopens else 0)

    def request_stop(self) -> None:
        """Begin an orderly stop, as SIGTERM does. A second request kills the workers that are left."""
        now = self.process.clock()
        if self._stopping:
            if now >= self._stop_asked_at + INSIST_AFTER_S:
                self._deadline = self._phase_deadline = now
            return
        self._stopping = True
        self._stop_asked_at = now
        self._deadline = now + self.stop_timeout_s
        phases = {phase for child in self._all for phase in (child.spec.stop_phase, child.spec.quiet_phase)}
        self._phases = sorted(phase for phase in phases if phase is not None)
        self._begin_phase(now)

    # -- one turn

    def _turn(self) -> None:
        events = self._poller.poll(self._wait_ms())
        now = self.process.clock()  # one time for the whole turn
        self._discount_lateness(now)
        for fd, _ in events:
            if fd == self._signals[0]:
                self._take_signals()
            elif fd == self._news:
                os.eventfd_read(self._news)
            elif fd in self._children:
                self._child_ended(self._children[fd])
            elif fd in self._waiting:
                self._start_awaited(fd)
        if self._stopping:
            self._go_on_stopping(now)
            return
        for child in self._all:
            if child.restart_at is not None and child.restart_at <= now:
                self._start([child])
                self._wake_all()
        self._kill_hung(now)
        self.on_turn([child.spec.name for child in self._all if not child.pid])
        if not self._ready_told and all(
            child.spec.block.is_ready or child.spec.starts_on is not None for child in self._all
        ):
            self._ready_told = True
            self.on_ready()

    def _discount_lateness(self, now: float) -> None:
        """Turns come every HEARTBEAT_CHECK_S or sooner. If one is late, all processes were paused: extend every
        deadline."""
        late_s = now - self._turned_at - HEARTBEAT_CHECK_S
        self._turned_at = now
        if late_s <= LATE_S:
            return
        self.process.log("paused for %.1f s (stopped, frozen or short of CPU): missed heartbeats are excused", late_s)
        self._watching_since = now
        self._deadline += late_s
        self._phase_deadline += late_s

    def _wait_ms(self) -> int:
        now = self.process.clock()
        waits = [HEARTBEAT_CHECK_S, *([self._phase_deadline - now] if self._stopping else [])]
        waits += [child.restart_at - now for child in self._all if child.restart_at is not None]
        return max(0, int(min(waits) * 1000) + 1)

    # -- signals

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # the wakeup pipe passes it to the loop

    def _take_signals(self) -> None:
        for number in os.read(self._signals[0], 4096):
            if number == signal.SIGHUP:
                self.on_reload()
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._reopens = False
                self.request_stop()

    # -- life and death of a worker

    def _start_awaited(self, fd: int) -> None:
        """The first connection waits for this worker, which accepts it and all others."""
        self._poller.unregister(fd)
        child = self._waiting.pop(fd)
        if not self._stopping:
            self._start([child])

    def _awaits_connection(self, child: _Child) -> bool:
        if (fd := child.spec.starts_on) is not None:
            self._waiting[fd] = child
            self._poller.register(fd, select.POLLIN)
        return fd in self._waiting

    def _child(self, spec: WorkerSpec) -> _Child:
        doorbells = [other.block.doorbell for other in self.specs]
        identity = Identity(spec.title, [self._news, *doorbells, *spec.keep_fds], prefers_latency=spec.prefers_latency)
        context = WorkerContext(spec.name, spec.block, lambda: self._tell_ready(spec), spec.beat_s)
        return _Child(spec, identity, context)

    def _start(self, children: Sequence[_Child]) -> None:
        for child in children:
            child.restart_at = None
            child.spec.block.begin(int(self.process.clock() * 1e9))
        sys.stdout.flush()
        sys.stderr.flush()
        for child in children:
            outcome = self._fork(child)
            if isinstance(outcome, OSError):
                self._try_later(child, 0, outcome)
            else:
                self._watch(child, outcome)

    def _fork(self, child: _Child) -> int | OSError:
        """Fork a worker. In the child it never returns. Returns: the process id, or the error."""
        try:
            if child.spec.is_simple:
                pid = child.identity.fork()
                if pid == 0:
                    self._become(child)
                return pid
            parent = os.getpid()
            with hold_signals():  # until the child has its own handlers: ours would write to our pipe
                pid = self.process.fork()
                if pid == 0:
                    self._become(child, parent)
            return pid
        except OSError as exc:
            return exc

    def _watch(self, child: _Child, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as exc:
            self._try_later(child, pid, exc)
            return
        child.pid, child.pidfd, child.failed_forks = pid, pidfd, 0
        self._children[pidfd] = child
        self._poller.register(pidfd, select.POLLIN)

    def _try_later(self, child: _Child, pid: int, why: OSError) -> None:
        """Plan another try: fork or pidfd_open failed, for lack of processes, memory or descriptors. Others go on."""
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        child.failed_forks += 1
        delay_s = child.spec.restart.delay_s(child.failed_forks, self.process.jitter())
        child.restart_at = self.process.clock() + delay_s
        self.process.log(
            "cannot start worker %s: fork: %s; trying again in %.0f ms (limits: `ulimit -u`, pids.max and memory.max "
            "of the cgroup)",
            *(child.spec.name, why.strerror, delay_s * 1000),
        )

    def _become(self, child: _Child, parent: int | None = None) -> None:
        """Run the worker, in the child; never returns. With `parent` the child is made ready for Python first."""
        status, spec = EXIT_CRASHED, child.spec
        try:
            if parent is not None:
                child.identity.take(parent)
                forget_handlers()
                own_standard_streams()
            status = spec.main(child.context) or 0
        except BaseException as exc:
            own_standard_streams()
            reason = first_of(exc)  # trio puts what leaves a nursery into a group; a lost connection in it may pass
            expected = RocketError if reason is exc else (ConfigError, StoreError)
            if isinstance(reason, expected) and not spec.block.is_ready:
                logger.error("worker %s cannot start: %s", spec.name, reason)
                status = EXIT_CANNOT_BOOT
            else:
                logger.critical("worker %s failed", spec.name, exc_info=True)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _tell_ready(self, spec: WorkerSpec) -> None:
        expect_frames()
        spec.block.mark_ready()
        os.eventfd_write(self._news, 1)

    def _child_ended(self, child: _Child) -> None:
        """A worker has ended: reap it, and replace it unless we are stopping."""
        _, wait_status = os.waitpid(child.pid, 0)
        self._poller.unregister(child.pidfd)
        del self._children[child.pidfd]
        os.close(child.pidfd)
        was_ready = child.spec.block.is_ready
        child.pid, child.pidfd = 0, -1
        if self._stopping:
            return
        code = os.waitstatus_to_exitcode(wait_status)
        if code == EXIT_REOPEN:
            self._reopens = True
            return self.request_stop()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        is_needed = child.spec.starts_on is None
        if is_needed and not self._ready_told and not was_ready and code == EXIT_CANNOT_BOOT:
            self._give_up()
            return
        now = self.process.clock()
        policy = child.spec.restart
        has_crashed = child.is_looping or code in OWN_FAULTS
        child.spec.block.note_crash(has_crashed)
        suspect = child.spec.block.serving if has_crashed or child.is_hung else 0
        child.is_hung = child.is_looping = False
        deaths = child.faults if suspect else child.restarts
        deaths[:] = [at for at in deaths if at > now - policy.window_s]
        if not suspect and policy.limit is not None and len(deaths) >= policy.limit:
            dead = child.spec.name, how, len(deaths), policy.window_s
            self.process.log("worker %s %s, after %d restarts in %g s: stopping", *dead)
            self._give_up()
            return
        delay_s = policy.delay_s(len(deaths), self.process.jitter())
        deaths.append(now)
        if suspect:  # a client can repeat it: such crashes never end the broker (crashed_request.py)
            child.spec.block.suspect = suspect
            how += f" while it served a request of connection {suspect:x}"
            delay_s = min(delay_s, FAULT_DELAY_MAX_S)
        when = "now" if delay_s == 0 else f"in {delay_s * 1000:.0f} ms"
        self.process.log("worker %s %s; restarting %s", child.spec.name, how, when)
        if delay_s == 0:
            self._start([child])
        else:
            child.restart_at = now + delay_s
        self._wake_all()

    def _wake_all(self) -> None:
        """Wake all workers: a dead one may have written without ringing, and all must notice the new process."""
        for child in self._all:
            child.spec.block.wake(force=True)

    def _give_up(self) -> None:
        self._exit_status = 1
        self.request_stop()

    def _kill_hung(self, now: float) -> None:
        for child in self._all:
            limit_s = child.spec.hang_timeout_s
            if child.pid == 0 or limit_s is None:
                continue
            silent_s = now - max(child.spec.block.heartbeat_ns / 1e9, self._watching_since)
            if silent_s <= limit_s / 2:
                child.times = None
            elif child.times is None:
                child.times = processor_times(child.pid)
            if silent_s > limit_s:
                self.process.log("worker %s has not sent a heartbeat for %.1f s: killing it", child.spec.name, silent_s)
                child.is_hung = True
                child.is_looping = child.times is not None and has_computed(child.pid, child.times)
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                child.spec.block.beat(int(now * 1e9))  # one kill is enough

    def _kill_all(self) -> None:
        for child in self._all:
            if child.pid:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                os.waitpid(child.pid, 0)
        signal.set_wakeup_fd(-1)

    # -- the stop, phase by phase

    def _begin_phase(self, now: float) -> None:
        phase = self._phases[0]
        self._phase_deadline = max(self._deadline, now + PHASE_GRACE_S)
        for child in self._all:
            child.restart_at = None
            if child.spec.stop_phase == phase:
                child.spec.block.order(STOP_LEAVE)
            elif child.spec.quiet_phase == phase:
                child.spec.block.order(STOP_INTAKE)

    def _go_on_stopping(self, now: float) -> None:
        while self._phases:
            leaving = [child for child in self._all if child.spec.stop_phase == self._phases[0] and child.pid]
            if leaving and now < self._phase_deadline:
                return
            for child in leaving:
                self.process.log("worker %s did not stop in time: killing it", child.spec.name)
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                self._exit_status = 1
            if leaving:
                self._phase_deadline = now + PHASE_GRACE_S
                return
            del self._phases[0]
            if self._phases:
                self._begin_phase(now)
