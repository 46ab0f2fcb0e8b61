"""Supervisor: workers start, live, and stop in order. Toy workers in real processes."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import lib
from rocketpy.reactor import supervisor
from rocketpy.reactor.ring import STOP_INTAKE
from rocketpy.reactor.worker_spec import EXIT_REOPEN, WorkerContext
from tests.support.toy_workers import Journal, Launcher, pid_in, serve
from tests.support.waiting import is_readable

KINDS = pytest.mark.parametrize("is_simple", [False, True], ids=["python", "simple"])


@KINDS
def test_a_worker_has_its_title_and_no_descriptor_but_its_own(launch: Launcher, is_simple: bool) -> None:
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
def test_workers_end_with_their_supervisor(launch: Launcher, is_simple: bool) -> None:
    run = launch({"a": (serve, {"is_simple": is_simple})})
    pidfd = os.pidfd_open(pid_in(run.journal.line()))
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    assert is_readable(pidfd, 20)
    os.close(pidfd)


@KINDS
def test_a_main_that_raises_shows_where_and_is_replaced(
    launch: Launcher, is_simple: bool, capfd: pytest.CaptureFixture[str]
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
def test_ready_is_told_once_when_all_are(launch: Launcher, is_simple: bool) -> None:
    """Holds: cluster, order of a start."""
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
def test_workers_stop_phase_by_phase_and_answer_until_the_end(launch: Launcher, number: int) -> None:
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


def test_a_worker_with_a_quiet_phase_is_told_before_it_has_to_leave(launch: Launcher) -> None:
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


def test_who_does_not_stop_in_time_is_killed_and_the_others_still_have_theirs(launch: Launcher) -> None:
    """Fault: A stop that had to kill a worker ended with status 0 and marked the store as closed in order."""
    run = launch({"stubborn": (stay, {"stop_phase": 0}), "store": (serve, {"stop_phase": 1})}, stop_timeout_s=0.05)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "log: worker stubborn did not stop in time: killing it"
    assert run.journal.line() == "store leaves"
    assert run.end() == 1, "it may not have saved what it had"


def test_a_second_signal_does_not_wait(launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "INSIST_AFTER_S", 0.0)
    run = launch({"stubborn": stay}, stop_timeout_s=3600.0)
    run.journal.lines_until("all ready")
    run.signal(signal.SIGINT)
    run.signal(signal.SIGTERM)
    assert run.journal.line() == "log: worker stubborn did not stop in time: killing it"
    assert run.end() == 1


def test_the_same_request_twice_is_one(launch: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` signals its child and then the child's group.
    Fault: A stop signal sent twice in a moment, as by `timeout`, made the stop a hard one."""
    monkeypatch.setattr(supervisor, "INSIST_AFTER_S", 3600.0)
    may_leave, let = os.pipe()

    def leave_when_let(context: WorkerContext, journal: Journal) -> None:
        serve(context, journal)
        assert os.read(may_leave, 1) == b"!"

    run = launch({"slow": (leave_when_let, {"keep_fds": (may_leave,)})})
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
    launch: Launcher, number: int, is_simple: bool
) -> None:
    """Fault: SIGTERM to the whole process group ended the workers that an orderly stop needs."""
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


def test_a_child_that_has_no_handlers_yet_tells_the_parent_nothing(launch: Launcher) -> None:
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


def test_hangup_calls_the_hook_and_nothing_else(launch: Launcher) -> None:
    run = launch({"a": serve})
    run.journal.lines_until("all ready")
    run.signal(signal.SIGHUP)
    assert run.journal.line() == "reload"
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def reopen(context: WorkerContext, journal: Journal) -> int:
    context.report_ready()
    return EXIT_REOPEN


@KINDS
def test_a_worker_that_needs_the_store_opened_anew_stops_all_in_order(launch: Launcher, is_simple: bool) -> None:
    run = launch({"a": serve, "b": (reopen, {"is_simple": is_simple})})
    assert run.end() == EXIT_REOPEN
    lines = run.journal.rest()
    assert lines[-2:] == ["a", "leaves"] and "restarting" not in lines


def test_a_stop_counts_more_than_a_store_to_be_opened_anew(launch: Launcher) -> None:
    may_leave, leave = os.pipe()

    def leave_late(context: WorkerContext, journal: Journal) -> None:
        serve(context, journal)
        os.read(may_leave, 1)

    run = launch({"a": (leave_late, {"keep_fds": (may_leave,)}), "b": reopen})
    assert run.journal.lines_until("a leaves")
    run.signal(signal.SIGTERM)
    run.signal(signal.SIGHUP)
    assert run.journal.line() == "reload", "it has read both signals"
    os.write(leave, b"x")
    assert run.end() == 0
    os.close(may_leave)
    os.close(leave)
