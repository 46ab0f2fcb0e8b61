"""Supervisor: workers live, die, are replaced within bounds, and stop in order. Toy workers in real processes."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError
from rocketpy.native.core import lib
from rocketpy.reactor.ring import STOP_INTAKE, WorkerBlock
from rocketpy.reactor.supervisor import Supervisor
from rocketpy.reactor.worker_spec import RestartPolicy, WorkerContext, WorkerSpec
from tests.support.waiting import is_readable

Main = Callable[[WorkerContext], None]
QUICK = RestartPolicy(limit=3, backoff_s=0.001)


@attrs.define
class Journal:
    """A pipe into which everyone writes lines; whole lines arrive whole."""

    read_fd: int
    write_fd: int
    _rest: bytes = b""
    _lines: list[str] = attrs.field(factory=list)

    @classmethod
    def open(cls) -> Journal:
        return cls(*os.pipe())

    def say(self, line: str) -> None:
        os.write(self.write_fd, line.encode() + b"\n")

    def line(self) -> str:
        """The next line; fails when none comes."""
        while not self._lines:
            assert is_readable(self.read_fd, 20), "nothing was said"
            *whole, self._rest = (self._rest + os.read(self.read_fd, 65536)).split(b"\n")
            self._lines += [one.decode() for one in whole]
        return self._lines.pop(0)

    def lines_until(self, last: str) -> list[str]:
        found = [self.line()]
        while found[-1] != last:
            found.append(self.line())
        return found

    def rest(self) -> list[str]:
        """What is left once everybody has gone."""
        os.close(self.write_fd)
        while data := os.read(self.read_fd, 65536):
            self._rest += data
        os.close(self.read_fd)
        return [*self._lines, *self._rest.decode().split()]


@attrs.define
class Run:
    journal: Journal
    pid: int
    blocks: dict[str, WorkerBlock]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


KINDS = pytest.mark.parametrize("is_simple", [False, True], ids=["python", "simple"])


@pytest.fixture
def launch() -> Iterator[Callable[..., Run]]:
    """Run a supervisor over {name: main or (main, spec fields)} in a child of its own."""
    runs: list[Run] = []

    def start(mains: dict[str, Main | tuple[Main, dict[str, object]]], **settings: object) -> Run:
        journal = Journal.open()
        blocks = {name: WorkerBlock(name, index) for index, name in enumerate(mains)}
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                specs = []
                for name, entry in mains.items():
                    main, fields = entry if isinstance(entry, tuple) else (entry, {})
                    fields = {"restart": QUICK, "keep_fds": (), **fields}
                    fields["keep_fds"] = (journal.write_fd, *fields["keep_fds"])
                    specs.append(
                        WorkerSpec(name=name, role=name, block=blocks[name], main=Journaled(main, journal), **fields)
                    )
                supervisor = Supervisor(
                    specs,
                    on_ready=lambda: journal.say("all ready"),
                    on_reload=lambda: journal.say("reload"),
                    log=lambda line: journal.say(f"log: {line}"),
                    jitter=lambda: 0.0,
                    **settings,
                )
                status = supervisor.run()
            finally:
                sys.stderr.flush()
                os._exit(status)
        runs.append(Run(journal, pid, blocks))
        return runs[-1]

    yield start
    for run in runs:
        if run.pid:
            os.kill(run.pid, signal.SIGKILL)
            os.waitpid(run.pid, 0)
        for block in run.blocks.values():
            os.close(block.doorbell)


@attrs.frozen
class Journaled:
    """A toy main, given the journal to speak into."""

    main: Callable[..., None]
    journal: Journal

    def __call__(self, context: WorkerContext) -> None:
        self.main(context, self.journal)


def serve(context: WorkerContext, journal: Journal) -> None:
    """Ready, then wait for the order to leave."""
    journal.say(f"{context.name} serves {context.block.epoch} {os.getpid()}")
    context.report_ready()
    while context.block.stop != lib.RP_STOP_LEAVE:
        context.block.beat(time.monotonic_ns())
        lib.rp_worker_sleep(context.block.pointer, 1_000_000_000)
    journal.say(f"{context.name} leaves")


def pid_in(line: str) -> int:
    return int(line.split()[-1])


@KINDS
def test_a_worker_has_its_title_and_no_descriptor_but_its_own(launch: Callable[..., Run], is_simple: bool) -> None:
    given, foreign = os.pipe()

    def tell(context: WorkerContext, journal: Journal) -> None:
        title = Path("/proc/self/cmdline").read_bytes().strip(b"\0").decode()
        name = Path("/proc/self/comm").read_text().strip()
        is_open = [Path(f"/proc/self/fd/{fd}").exists() for fd in (0, 1, 2, given, foreign)]
        journal.say(f"{title}, {name}, {is_open}")
        serve(context, journal)

    run = launch({"codec-0": (tell, {"is_simple": is_simple, "keep_fds": (given,)})})
    line = run.journal.line()
    assert "rocketpy: codec 0".startswith(line.split(",")[0])  # cut where our command line is shorter
    assert line.endswith(", codec 0, [True, True, True, True, False]")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    os.close(given)
    os.close(foreign)


@KINDS
def test_workers_end_with_their_supervisor(launch: Callable[..., Run], is_simple: bool) -> None:
    run = launch({"a": (serve, {"is_simple": is_simple})})
    pidfd = os.pidfd_open(pid_in(run.journal.line()))
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    assert is_readable(pidfd, 20)
    os.close(pidfd)


@KINDS
def test_a_main_that_raises_shows_where_and_is_replaced(
    launch: Callable[..., Run], is_simple: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail_at_first(context: WorkerContext, journal: Journal) -> None:
        if context.block.epoch == 1:
            raise ZeroDivisionError("here")
        serve(context, journal)

    run = launch({"a": (fail_at_first, {"is_simple": is_simple})})
    assert run.journal.line() == "log: worker a ended with status 70; restarting now"
    assert run.journal.line().startswith("a serves 2 ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert "ZeroDivisionError: here" in capfd.readouterr().err


@KINDS
def test_ready_is_told_once_when_all_are(launch: Callable[..., Run], is_simple: bool) -> None:
    run = launch({"a": (serve, {"is_simple": is_simple}), "b": serve})
    lines = run.journal.lines_until("all ready")
    assert sorted(line.split()[0] for line in lines) == ["a", "all", "b"]
    os.kill(pid_in(next(line for line in lines if line.startswith("a "))), signal.SIGKILL)
    assert run.journal.line() == "log: worker a was killed by SIGKILL; restarting now"
    assert run.journal.line().startswith("a serves 2 ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert "all ready" not in run.journal.rest()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_stop_phase_by_phase_and_answer_until_the_end(launch: Callable[..., Run], number: int) -> None:
    run = launch(
        {
            "selector": (serve, {"quiet_phase": 0, "stop_phase": 30}),
            "store": (serve, {"stop_phase": 20}),
            "codec": (serve, {"stop_phase": 10}),
            "acceptor": (serve, {"stop_phase": 0}),
        }
    )
    run.journal.lines_until("all ready")
    run.signal(number)
    assert run.end() == 0
    told = run.journal.rest()
    leaving = [told[i] for i in range(len(told) - 1) if told[i + 1] == "leaves"]
    assert leaving == ["acceptor", "codec", "store", "selector"]


def test_a_worker_with_a_quiet_phase_is_told_before_it_has_to_leave(launch: Callable[..., Run]) -> None:
    is_quiet, tell = os.pipe()

    def quiet(context: WorkerContext, journal: Journal) -> None:
        context.report_ready()
        while context.block.stop != STOP_INTAKE:
            lib.rp_worker_sleep(context.block.pointer, 1_000_000_000)
        os.write(tell, b"q")
        serve(context, journal)

    def leave_after_it(context: WorkerContext, journal: Journal) -> None:
        context.report_ready()
        assert os.read(is_quiet, 1) == b"q"

    run = launch(
        {
            "selector": (quiet, {"quiet_phase": 0, "stop_phase": 30, "keep_fds": (tell,)}),
            "codec": (leave_after_it, {"stop_phase": 10, "keep_fds": (is_quiet,)}),
        }
    )
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert run.journal.rest()[-2:] == ["selector", "leaves"]
    os.close(is_quiet)
    os.close(tell)


def stay(context: WorkerContext, journal: Journal) -> None:
    context.report_ready()
    while True:
        context.block.beat(time.monotonic_ns())
        select.select([], [], [], 0.5)


def test_who_does_not_stop_in_time_is_killed_and_the_others_still_have_theirs(launch: Callable[..., Run]) -> None:
    run = launch({"stubborn": (stay, {"stop_phase": 0}), "store": (serve, {"stop_phase": 1})}, stop_timeout_s=0.05)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "log: worker stubborn did not stop in time: killing it"
    assert run.journal.line() == "store leaves"
    assert run.end() == 1, "it may not have saved what it had"


def test_a_second_signal_does_not_wait(launch: Callable[..., Run]) -> None:
    run = launch({"stubborn": stay}, stop_timeout_s=3600.0, insist_after_s=0.0)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGINT)
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "log: worker stubborn did not stop in time: killing it"
    assert run.end() == 1


def test_the_same_request_twice_is_one(launch: Callable[..., Run]) -> None:
    """`timeout` signals its child and then the child's group."""
    may_leave, let = os.pipe()

    def leave_when_let(context: WorkerContext, journal: Journal) -> None:
        serve(context, journal)
        assert os.read(may_leave, 1) == b"!"

    run = launch({"slow": (leave_when_let, {"keep_fds": (may_leave,)})}, insist_after_s=3600.0)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "slow leaves"
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGHUP)
    assert run.journal.line() == "reload"  # so the other has been taken too, in order or before
    os.write(let, b"!")
    assert run.end() == 0
    assert "killing" not in " ".join(run.journal.rest())
    os.close(may_leave)
    os.close(let)


@KINDS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_whole_group_is_for_the_supervisor_alone(
    launch: Callable[..., Run], number: int, is_simple: bool
) -> None:
    kind = {"is_simple": is_simple}
    run = launch({"selector": (serve, {"stop_phase": 30} | kind), "store": (serve, {"stop_phase": 20} | kind)})
    lines = run.journal.lines_until("all ready")
    for line in lines[:-1]:
        os.kill(pid_in(line), number)
    os.kill(run.pid, number)
    if number == signal.SIGHUP:
        assert run.journal.line() == "reload"
        run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert run.journal.rest() == ["store", "leaves", "selector", "leaves"]


def test_a_child_that_has_no_handlers_yet_tells_the_parent_nothing(launch: Callable[..., Run]) -> None:
    """Right after the fork it has its parent's handlers, which write to the parent's pipe."""

    def fork_and_signal() -> int:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGHUP)
        return pid

    run = launch({"a": serve}, fork=fork_and_signal)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert run.journal.rest() == ["a", "leaves"]  # and no "reload"


def test_hangup_calls_the_hook_and_nothing_else(launch: Callable[..., Run]) -> None:
    run = launch({"a": serve})
    run.journal.lines_until("all ready")
    run.signal(signal.SIGHUP)
    assert run.journal.line() == "reload"
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def cannot_boot(context: WorkerContext, journal: Journal) -> None:
    raise ConfigError("port 10911 is taken", key="listenPort")


def test_a_worker_that_cannot_boot_stops_the_start_with_one_line(
    launch: Callable[..., Run], capfd: pytest.CaptureFixture[str]
) -> None:
    run = launch({"a": serve, "acceptor": cannot_boot})
    assert run.end() == 1
    shown = capfd.readouterr().err
    assert "rocketpy: worker acceptor cannot start: listenPort: port 10911 is taken\n" in shown
    assert "Traceback" not in shown


def crash(context: WorkerContext, journal: Journal) -> None:
    context.report_ready()
    journal.say(f"crash {context.block.epoch}")
    os._exit(3)


def test_restarts_are_bounded_and_wait_longer_each_time(launch: Callable[..., Run]) -> None:
    run = launch({"a": crash, "b": serve})
    assert run.end() == 1
    told = " ".join(run.journal.rest())
    assert told.count("crash ") == 4  # the first start and three restarts
    assert "a ended with status 3; restarting now" in told
    assert "restarting in 0 ms" in told or "restarting in 1 ms" in told
    assert "a ended with status 3, after 3 restarts in 60 s: stopping" in told


def test_a_worker_without_a_limit_never_stops_the_others(launch: Callable[..., Run]) -> None:
    endless = {"restart": RestartPolicy(limit=None, backoff_s=0.001, backoff_max_s=0.001)}
    run = launch({"a": (crash, endless), "b": serve})
    run.journal.lines_until("crash 7")  # QUICK gives up after three restarts
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 0


class SharedClock:
    """Seconds, from the real time on; moved by the test alone, read by the supervisor in its process."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)
        self.set(time.monotonic())

    def __call__(self) -> float:
        return float(struct.unpack("d", self._shared[:8])[0])

    def set(self, seconds: float) -> None:
        self._shared[:8] = struct.pack("d", seconds)

    def turn(self, run: Run, seconds: float) -> None:
        """Time passes, the supervisor has had a turn, and what it did in it can be seen."""
        self.set(self() + seconds)
        for _ in range(2):  # the first answer comes in the middle of a turn
            run.signal(signal.SIGHUP)
            run.journal.lines_until("reload")


def hang(context: WorkerContext, journal: Journal) -> None:
    journal.say(f"hangs {context.block.epoch}")
    context.report_ready()
    signal.pause()


def test_a_worker_without_heartbeat_is_killed_and_replaced(launch: Callable[..., Run]) -> None:
    clock = SharedClock()
    run = launch({"a": (hang, {"hang_timeout_s": 10.5})}, clock=clock)
    run.journal.lines_until("all ready")
    for _ in range(10):
        clock.turn(run, 1.0)
    clock.set(clock() + 1.0)
    assert run.journal.line() == "log: worker a has not sent a heartbeat for 11.0 s: killing it"
    assert run.journal.line() == "log: worker a was killed by SIGKILL; restarting now"
    assert run.journal.line() == "hangs 2"


def test_what_the_supervisor_slept_itself_counts_against_nobody(launch: Callable[..., Run]) -> None:
    """SIGSTOP to the whole group, a paused container: who wakes first must not find the others guilty."""
    clock = SharedClock()
    run = launch({"a": (hang, {"hang_timeout_s": 10.5})}, clock=clock)
    run.journal.lines_until("all ready")
    clock.turn(run, 1.0)
    clock.set(clock() + 3600.0)
    assert (
        run.journal.line()
        == "log: paused for 3599.0 s (stopped, frozen or short of CPU): missed heartbeats are excused"
    )
    for _ in range(10):  # a whole grace from then on
        clock.turn(run, 1.0)
    clock.set(clock() + 1.0)
    assert run.journal.line() == "log: worker a has not sent a heartbeat for 11.0 s: killing it"


def test_a_stop_that_was_frozen_still_has_its_time(launch: Callable[..., Run]) -> None:
    clock = SharedClock()
    may_leave, let = os.pipe()

    def leave_when_let(context: WorkerContext, journal: Journal) -> None:
        serve(context, journal)
        assert os.read(may_leave, 1) == b"!"

    run = launch({"slow": (leave_when_let, {"keep_fds": (may_leave,)})}, clock=clock, stop_timeout_s=10.0)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "slow leaves"
    clock.set(clock() + 3600.0)
    assert run.journal.line().startswith("log: paused for 3599.0 s")
    os.write(let, b"!")
    assert run.end() == 0
    assert run.journal.rest() == []
    os.close(may_leave)
    os.close(let)


@attrs.define
class FailingFork:
    """fork() that fails some times after the first ones have worked; counts in the supervisor's process."""

    errors: list[int]
    good: int = 1

    def __call__(self) -> int:
        self.good -= 1
        if self.good < 0 and self.errors:
            raise OSError(self.errors[0], os.strerror(self.errors.pop(0)))
        return os.fork()


def test_a_fork_that_fails_is_tried_again_and_ends_nothing(launch: Callable[..., Run]) -> None:
    errors = [errno.EAGAIN, errno.ENOMEM] * 3  # more often than restarts are allowed
    run = launch({"a": serve}, fork=FailingFork(list(errors)))
    lines = run.journal.lines_until("all ready")
    os.kill(pid_in(lines[0]), signal.SIGKILL)
    assert run.journal.line() == "log: worker a was killed by SIGKILL; restarting now"
    for number in errors:
        assert run.journal.line().startswith(
            f"log: cannot start worker a: fork: {os.strerror(number)}; trying again in "
        )
    assert run.journal.line().startswith("a serves ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def test_a_first_fork_that_fails_delays_the_start(launch: Callable[..., Run]) -> None:
    run = launch({"a": serve}, fork=FailingFork([errno.EAGAIN], good=0))
    lines = run.journal.lines_until("all ready")
    assert lines[0].startswith("log: cannot start worker a: ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def test_a_worker_without_a_descriptor_to_watch_it_is_started_again(launch: Callable[..., Run]) -> None:
    """pidfd_open finds no descriptor: the child that runs already must not live on unwatched."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def fork_without_descriptors() -> int:
        low = not forks
        forks.append(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        pid = os.fork()
        if pid == 0 and low:
            signal.pause()
        if low:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        return pid

    forks: list[int] = []
    run = launch({"a": serve}, fork=fork_without_descriptors)
    lines = run.journal.lines_until("all ready")
    assert lines[0].startswith(f"log: cannot start worker a: fork: {os.strerror(errno.EMFILE)}; ")
    assert lines[1].startswith("a serves 2 ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def test_a_death_rings_everybody(launch: Callable[..., Run]) -> None:
    """What the dead had published without ringing must not lie there."""

    def wait_for_ring(context: WorkerContext, journal: Journal) -> None:
        lib.rp_worker_prepare_sleep(context.block.pointer)
        journal.say("waits")
        context.report_ready()
        lib.rp_worker_sleep(context.block.pointer, -1)
        journal.say("rung")
        serve(context, journal)

    run = launch({"waiter": (wait_for_ring, {"hang_timeout_s": None}), "victim": serve})
    lines = run.journal.lines_until("all ready")
    assert "waits" in lines
    os.kill(pid_in(next(line for line in lines if line.startswith("victim"))), signal.SIGKILL)
    assert "rung" in run.journal.lines_until("rung")


def test_restart_waits_double_up_to_a_bound_with_jitter() -> None:
    policy = RestartPolicy(backoff_s=0.1, backoff_max_s=1.0)
    assert [policy.delay_s(n, 1.0) for n in range(6)] == pytest.approx([0, 0.1, 0.2, 0.4, 0.8, 1.0])
    assert policy.delay_s(3, 0.0) == pytest.approx(0.2)


def test_a_worker_that_waits_for_a_connection_is_started_by_the_first_one(launch: Callable[..., Run]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def accept(context: WorkerContext, journal: Journal) -> None:
        with listener.accept()[0]:
            serve(context, journal)

    awaited = (accept, {"starts_on": listener.fileno(), "keep_fds": (listener.fileno(),)})
    run = launch({"one": serve, "awaited": awaited})
    assert {run.journal.line().split()[0], run.journal.line()} == {"one", "all ready"}
    with socket.create_connection(listener.getsockname()):
        first = run.journal.line()
        assert first.startswith("awaited serves 1 ")
        os.kill(pid_in(first), signal.SIGKILL)  # it is replaced like any other
        assert "worker awaited was killed by SIGKILL" in run.journal.line()
        with socket.create_connection(listener.getsockname()):
            assert run.journal.line().startswith("awaited serves 2 ")
            run.signal(signal.SIGTERM)
            assert run.end() == 0
    listener.close()


def test_a_stop_while_a_worker_still_waits_for_a_connection(launch: Callable[..., Run]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = launch({"one": serve, "awaited": (serve, {"starts_on": listener.fileno()})})
        run.journal.lines_until("all ready")
        run.signal(signal.SIGTERM)
        assert run.end() == 0
        assert not any(line.startswith("awaited") for line in run.journal.rest())
