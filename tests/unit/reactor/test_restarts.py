"""Supervisor: workers that fail, hang or die are replaced within bounds. Toy workers in real processes."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable

import attrs
import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError, ConnectionLost, TransportError
from rocketpy.native.core import lib
from rocketpy.reactor.worker_spec import RestartPolicy, WorkerContext
from tests.support.toy_workers import Journal, Launcher, Run, pid_in, serve


def cannot_boot(context: WorkerContext, journal: Journal) -> None:
    raise ConfigError("port 10911 is taken", key="listenPort")


def cannot_boot_within_nurseries(context: WorkerContext, journal: Journal) -> None:
    async def main() -> None:
        async with trio.open_nursery(), trio.open_nursery():
            cannot_boot(context, journal)

    trio.run(main)


@pytest.mark.parametrize("fail", [cannot_boot, cannot_boot_within_nurseries])
def test_a_worker_that_cannot_boot_stops_the_start_with_one_line(
    launch: Launcher, capfd: pytest.CaptureFixture[str], fail: Callable[[WorkerContext, Journal], None]
) -> None:
    """Fault: A damaged table of offsets made the manager start again and again, with a traceback each time."""
    run = launch({"a": serve, "acceptor": fail})
    assert run.end() == 1
    shown = capfd.readouterr().err
    assert "worker acceptor cannot start: listenPort: port 10911 is taken\n" in shown
    assert "Traceback" not in shown


def lose_a_connection(context: WorkerContext, journal: Journal) -> None:
    async def main() -> None:
        async with trio.open_nursery():
            raise ConnectionLost("the name server closed it")

    if context.block.epoch == 1:
        trio.run(main)
    serve(context, journal)


def test_a_connection_that_is_lost_before_a_worker_is_ready_stops_nothing(launch: Launcher) -> None:
    run = launch({"a": lose_a_connection, "b": serve})
    run.journal.lines_until("all ready")
    os.kill(run.pid, signal.SIGTERM)
    assert run.end() == 0


def crash(context: WorkerContext, journal: Journal) -> None:
    context.report_ready()
    journal.say(f"crash {context.block.epoch}")
    os._exit(3)


def test_restarts_are_bounded_and_wait_longer_each_time(launch: Launcher) -> None:
    run = launch({"a": crash, "b": serve})
    assert run.end() == 1
    told = " ".join(run.journal.rest())
    assert told.count("crash ") == 4  # the first start and three restarts
    assert "a ended with status 3; restarting now" in told
    assert "restarting in 0 ms" in told or "restarting in 1 ms" in told
    assert "a ended with status 3, after 3 restarts in 60 s: stopping" in told


def test_a_worker_without_a_limit_never_stops_the_others(launch: Launcher) -> None:
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


def tell_beat(context: WorkerContext, journal: Journal) -> None:
    journal.say(f"beats each {context.beat_s} s")
    serve(context, journal)


def test_a_worker_without_heartbeat_is_killed_and_replaced(launch: Launcher) -> None:
    clock = SharedClock()
    run = launch({"a": (hang, {"hang_timeout_s": 10.5})}, clock=clock)
    run.journal.lines_until("all ready")
    for _ in range(10):
        clock.turn(run, 1.0)
    clock.set(clock() + 1.0)
    assert run.journal.line() == "log: worker a has not sent a heartbeat for 11.0 s: killing it"
    assert run.journal.line() == "log: worker a was killed by SIGKILL; restarting now"
    assert run.journal.line() == "hangs 2"


@pytest.mark.parametrize(("hang_timeout_s", "beat_s"), [(None, 2.0), (10.0, 2.0), (3.0, 0.6)])
def test_a_worker_without_work_sends_several_heartbeats_before_it_counts_as_hung(
    hang_timeout_s: float | None, beat_s: float, launch: Launcher
) -> None:
    run = launch({"a": (tell_beat, {"hang_timeout_s": hang_timeout_s})})
    assert run.journal.line() == f"beats each {beat_s} s"


def test_what_the_supervisor_slept_itself_counts_against_nobody(launch: Launcher) -> None:
    """SIGSTOP to the whole group, a paused container: who wakes first must not find the others guilty.
    Fault: A process group that had been frozen was killed by its own supervisor when it woke."""
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


def test_a_stop_that_was_frozen_still_has_its_time(launch: Launcher) -> None:
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


def test_a_fork_that_fails_is_tried_again_and_ends_nothing(launch: Launcher) -> None:
    """Fault: A failed fork while a worker was being replaced ended the broker."""
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


def test_a_first_fork_that_fails_delays_the_start(launch: Launcher) -> None:
    run = launch({"a": serve}, fork=FailingFork([errno.EAGAIN], good=0))
    lines = run.journal.lines_until("all ready")
    assert lines[0].startswith("log: cannot start worker a: ")
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def test_a_worker_without_a_descriptor_to_watch_it_is_started_again(launch: Launcher) -> None:
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


def test_a_death_rings_everybody(launch: Launcher) -> None:
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


def test_a_worker_that_waits_for_a_connection_is_started_by_the_first_one(launch: Launcher) -> None:
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


def test_a_stop_while_a_worker_still_waits_for_a_connection(launch: Launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        run = launch({"one": serve, "awaited": (serve, {"starts_on": listener.fileno()})})
        run.journal.lines_until("all ready")
        run.signal(signal.SIGTERM)
        assert run.end() == 0
        assert not any(line.startswith("awaited") for line in run.journal.rest())


def test_a_worker_that_waits_for_a_connection_and_cannot_start_ends_nothing(launch: Launcher) -> None:
    """Fault: Connections that came during a start ended it if the worker that they started had no memory."""

    def refuse(context: WorkerContext, journal: Journal) -> None:
        raise TransportError("no memory")

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        awaited = {"starts_on": listener.fileno(), "restart": RestartPolicy(limit=None, backoff_s=0.01)}
        run = launch({"one": serve, "awaited": (refuse, awaited)})
        lines = run.journal.lines_until("all ready")
        assert any(line.startswith("one serves") for line in lines)
        run.signal(signal.SIGTERM)
        assert run.end() == 0
