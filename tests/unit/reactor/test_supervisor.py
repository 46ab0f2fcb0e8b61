"""Supervisor: workers live, die, are replaced within bounds, and stop in order. Toy workers in real processes."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError
from rocketpy.native.core import lib
from rocketpy.reactor.ring import STOP_INTAKE, WorkerBlock
from rocketpy.reactor.supervisor import Supervisor
from rocketpy.reactor.worker_spec import RestartPolicy, WorkerContext, WorkerSpec

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
            assert select.select([self.read_fd], [], [], 20)[0], "nothing was said"
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
                        WorkerSpec(
                            name=name, role=name, block=blocks[name], main=Journaled(main, journal), **fields
                        )
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


def test_ready_is_told_once_when_all_are(launch: Callable[..., Run]) -> None:
    run = launch({"a": serve, "b": serve})
    lines = run.journal.lines_until("all ready")
    assert sorted(line.split()[0] for line in lines) == ["a", "all", "b"]
    os.kill(pid_in(next(line for line in lines if line.startswith("a "))), signal.SIGKILL)
    assert run.journal.line() == "log: a was killed by SIGKILL; restarted at once"
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
    assert run.journal.line() == "log: stubborn did not stop in time: killed"
    assert run.journal.line() == "store leaves"
    assert run.end() == 0


def test_a_second_signal_does_not_wait(launch: Callable[..., Run]) -> None:
    run = launch({"stubborn": stay}, stop_timeout_s=3600.0)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGINT)
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "log: stubborn did not stop in time: killed"
    assert run.end() == 0


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
    assert "rocketpy: acceptor cannot start: listenPort: port 10911 is taken\n" in shown
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
    assert "a ended with status 3; restarted at once" in told
    assert "restarted in 0 ms" in told or "restarted in 1 ms" in told
    assert "a ended with status 3, after 3 restarts in 60 s: stopping" in told


def hang(context: WorkerContext, journal: Journal) -> None:
    context.report_ready()
    journal.say(f"hangs {context.block.epoch}")
    if context.block.epoch == 1:
        context.block.beat(time.monotonic_ns() - 60_000_000_000)
        signal.pause()
    serve(context, journal)


def test_a_worker_without_heartbeat_is_killed_and_replaced(launch: Callable[..., Run]) -> None:
    run = launch({"a": (hang, {"hang_timeout_s": 30.0})})
    lines = [run.journal.line()]
    while not lines[-1].startswith("hangs 2"):
        lines.append(run.journal.line())
    assert any(line.startswith("log: a has not moved for 6") for line in lines)
    assert "log: a was killed by SIGKILL; restarted at once" in lines


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
