"""The guardian of a member: two toy children in real processes, and a member block that the test gives orders in."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

import attrs
import pytest

from rocketpy.failover.member_block import MemberOrders
from rocketpy.processes.member.guardian import CUT_FORGET_S, HANGS_S, LATE_S, Child, Cuts, Guardian
from rocketpy.processes.member.marks import EXIT_OTHER_EPOCH
from rocketpy.processes.member.tree import MemberMemory, Role
from rocketpy.reactor.process import Identity
from rocketpy.reactor.supervisor import EXIT_CANNOT_BOOT, ParentProcess
from tests.support.toy_workers import Journal
from tests.support.waiting import is_readable

Main = Callable[[Role], int]
Clock = Callable[[], float]
MASTER_3 = MemberOrders(is_master=True, epoch=3)


def expect_the_end() -> None:
    """From now on SIGTERM waits for `wait_for_the_end`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def wait_for_the_end() -> None:
    signal.sigwait({signal.SIGTERM})


@attrs.define(eq=False)
class Toy:
    """A guardian in a process of its own."""

    memory: MemberMemory = attrs.field(factory=MemberMemory)
    journal: Journal = attrs.field(factory=Journal.open)
    bell: int = attrs.field(factory=lambda: os.eventfd(0, os.EFD_NONBLOCK))
    pid: int = 0

    def coordinator(self, _role: Role) -> int:
        expect_the_end()
        self.journal.say(f"coordinator {os.getpid()}")
        wait_for_the_end()
        self.journal.say("coordinator leaves")
        return 0

    def tree(self, role: Role) -> int:
        expect_the_end()
        what = f"master {role.epoch}" if role.is_master else "slave"
        cut = "" if role.cut_at is None else f" cut {role.cut_at}"
        self.memory.marks.told_ready = True
        self.journal.say(f"{what}{cut} {os.getpid()}")
        wait_for_the_end()
        self.journal.say("tree is replaced" if self.memory.marks.is_replaced else "tree leaves")
        return 0

    def say(self, text: str, *values: object) -> None:
        self.journal.say(f"log: {text % values}")

    def start(self, tree: Main | None = None, coordinator: Main | None = None, clock: Clock = time.monotonic) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                keep = (self.journal.write_fd, self.bell)
                status = Guardian(
                    self.memory,
                    Child("coordinator", coordinator or self.coordinator, keep),
                    Child("broker", tree or self.tree, keep),
                    self.bell,
                    process=ParentProcess(clock, lambda: 0.0, self.say),
                ).run()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)

    def give(self, orders: MemberOrders) -> None:
        self.memory.block.give(orders)
        os.eventfd_write(self.bell, 1)

    def started(self) -> dict[str, int]:
        """The next two lines, in any order: what has started, and its pid."""
        lines = [self.journal.line().rpartition(" ") for _ in range(2)]
        return {what: int(pid) for what, _, pid in lines}

    def next(self) -> tuple[str, int]:
        what, _, pid = self.journal.line().rpartition(" ")
        return what, int(pid)

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def toy() -> Iterator[Toy]:
    made = Toy()
    yield made
    if made.pid:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
    os.close(made.bell)


def test_the_coordinator_leaves_before_the_tree_stops(toy: Toy) -> None:
    toy.start()
    assert toy.started().keys() == {"coordinator", "slave"}
    assert toy.stop() == 0
    assert [toy.journal.line(), toy.journal.line()] == ["coordinator leaves", "tree leaves"]


def test_another_role_is_another_tree(toy: Toy) -> None:
    toy.start()
    toy.started()
    toy.give(MASTER_3)
    assert toy.journal.line() == "tree is replaced" and toy.next()[0] == "master 3"
    toy.give(MemberOrders(is_master=True, epoch=4))
    assert toy.journal.line() == "tree is replaced" and toy.next()[0] == "master 4"
    toy.give(MemberOrders())
    assert toy.journal.line() == "tree is replaced" and toy.next()[0] == "slave"
    assert toy.stop() == 0


def test_within_a_role_nothing_is_restarted(toy: Toy) -> None:
    """Not by other orders, and not while a new coordinator does not know yet who is master."""
    toy.give(MASTER_3)
    toy.start()
    toy.started()
    toy.give(attrs.evolve(MASTER_3, takes_sends=True, is_broker_0=True))
    toy.give(attrs.evolve(MASTER_3, epoch=-1))
    toy.give(MASTER_3)
    assert toy.stop() == 0
    assert [toy.journal.line(), toy.journal.line()] == ["coordinator leaves", "tree leaves"]


def test_a_tree_that_was_lost_while_nobody_knows_who_is_master_is_a_slave(toy: Toy) -> None:
    toy.give(MASTER_3)
    toy.start()
    pids = toy.started()
    toy.give(attrs.evolve(MASTER_3, epoch=-1))
    os.kill(pids["master 3"], signal.SIGKILL)
    assert toy.journal.line() == "log: process broker was killed by SIGKILL; restarting now"
    assert toy.next()[0] == "slave"


def test_a_log_that_must_be_cut_is_cut_by_the_next_tree(toy: Toy) -> None:
    toy.start()
    toy.started()
    toy.memory.block.pointer.cut_phy_offset = 700
    assert toy.journal.line() == "tree is replaced"
    what, pid = toy.next()
    assert what == "slave cut 700" and toy.memory.block.cut_phy_offset is None
    os.kill(pid, signal.SIGKILL)
    assert toy.journal.line() == "log: process broker was killed by SIGKILL; restarting now"
    assert toy.next()[0] == "slave", "it is cut once; if that failed it is found again"


def test_a_cut_that_fails_is_tried_again_later_and_given_up() -> None:
    """Fault: An impossible cut of the log was retried without pause or end, each time in a new process tree."""
    cuts, tried = Cuts(), []
    for now_s in range(100):
        if cuts.begin(700, now_s):
            tried.append(now_s)
    assert tried == [0, 5, 15, 35] and cuts.is_given_up
    assert cuts.begin(800, 100.0) and not cuts.is_given_up
    assert not cuts.begin(800, 104.9) and cuts.begin(800, 100.0 + CUT_FORGET_S)


def test_a_log_that_cannot_be_cut_has_diverged(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: A member whose log cannot be cut said so before it had halted."""
    monkeypatch.setattr("rocketpy.processes.member.guardian.CUT_TRIES_MAX", 0)
    toy.start()
    toy.started()
    toy.memory.block.pointer.cut_phy_offset = 700
    assert "cannot be cut at 700" in toy.journal.line() and toy.memory.block.is_diverged


@pytest.mark.parametrize("who", ["coordinator", "slave"])
def test_a_child_that_dies_is_replaced_and_the_other_stays(toy: Toy, who: str) -> None:
    toy.start()
    pids = toy.started()
    os.kill(pids[who], signal.SIGKILL)
    name = "broker" if who == "slave" else who
    assert toy.journal.line() == f"log: process {name} was killed by SIGKILL; restarting now"
    what, pid = toy.next()
    assert what == who and pid not in pids.values()
    assert toy.stop() == 0


def test_a_tree_that_does_not_give_way_is_killed(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(role: Role) -> int:
        expect_the_end()
        toy.journal.say(f"{'master' if role.is_master else 'slave'} {os.getpid()}")
        while True:
            signal.pause()

    monkeypatch.setattr("rocketpy.processes.member.guardian.REPLACE_S", 0.01)
    toy.start(stubborn)
    toy.started()
    toy.give(MASTER_3)
    assert toy.journal.line() == "log: process broker did not end in time: killing it"
    assert toy.next()[0] == "master"


def test_a_store_that_cannot_serve_the_epoch_leaves_the_mastership(toy: Toy) -> None:
    def lost(role: Role) -> int:
        return EXIT_OTHER_EPOCH if role.epoch == 3 else toy.tree(role)

    toy.start(lost)
    toy.started()
    toy.give(MASTER_3)
    lines = [toy.journal.line() for _ in range(5)]
    assert lines[:2] == ["tree is replaced", "log: this store cannot serve epoch 3: leaving the mastership"]
    assert "log: process coordinator was killed by SIGKILL; restarting now" in lines
    assert sorted(line.split()[0] for line in lines[2:]) == ["coordinator", "log:", "slave"]
    toy.give(MemberOrders(is_master=True, epoch=4))
    assert toy.journal.line() == "tree is replaced" and toy.next()[0] == "master 4"


@pytest.mark.parametrize("who", ["tree", "coordinator"])
def test_what_cannot_start_at_all_ends_the_broker(toy: Toy, who: str) -> None:
    def fail(_role: Role) -> int:
        return EXIT_CANNOT_BOOT

    def serve(_role: Role) -> int:
        expect_the_end()
        wait_for_the_end()
        return 0

    toy.start(**{"tree": serve, "coordinator": serve} | {who: fail})  # type: ignore[arg-type]  # two mains
    assert toy.end() == EXIT_CANNOT_BOOT


def test_a_tree_that_does_not_stop_in_order_is_told(toy: Toy) -> None:
    def fail(role: Role) -> int:
        toy.tree(role)
        return 1

    toy.start(fail)
    toy.started()
    assert toy.stop() == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_request_to_end_is_obeyed_from_the_fork_on(toy: Toy, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It may come while the child closes descriptors and sets its handlers. One that got lost costs the whole bound of
    a stop, and ends in a kill.
    Fault: A SIGTERM during the set-up of a member's process was lost, and the stop ended in a kill."""

    class Interrupted(Identity):
        def __init__(self, title: str, keep_fds: Iterable[int], **settings: bool) -> None:
            super().__init__(title, keep_fds, **settings)
            self._is_tree = title.endswith("broker")

        def take(self, parent_pid: int) -> None:
            if self._is_tree and moment == "before":
                os.kill(os.getpid(), signal.SIGTERM)
            super().take(parent_pid)
            if self._is_tree and moment == "after":
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("rocketpy.processes.member.guardian.Identity", Interrupted)
    toy.start()
    lines = {toy.journal.line().partition(" ")[0::2] for _ in range(2)}
    assert ("log:", "process broker was killed by SIGTERM; restarting now") in lines


def test_a_tree_that_still_opens_the_store_needs_no_order(toy: Toy) -> None:
    def opening(_role: Role) -> int:
        toy.journal.say(f"opening {os.getpid()}")
        while True:
            signal.pause()

    toy.start(opening)
    toy.started()
    assert toy.stop() == 0


def test_both_end_with_their_guardian(toy: Toy) -> None:
    toy.start()
    pidfds = [os.pidfd_open(pid) for pid in toy.started().values()]
    os.kill(toy.pid, signal.SIGKILL)
    assert toy.end() == -signal.SIGKILL
    for pidfd in pidfds:
        assert is_readable(pidfd, 20)
        os.close(pidfd)


def test_what_does_not_stop_is_killed(toy: Toy) -> None:
    def stubborn(_role: Role) -> int:
        expect_the_end()
        toy.journal.say(f"stubborn {os.getpid()}")
        while True:
            signal.pause()

    toy.start(stubborn, coordinator=stubborn, clock=iter(range(0, 1_000_000, 2)).__next__)  # type: ignore[arg-type]
    toy.journal.line()
    toy.journal.line()
    os.kill(toy.pid, signal.SIGTERM)
    assert toy.end() == 1


def test_a_coordinator_that_hangs_is_replaced(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has made a turn, and makes no more.
    Fault: A coordinator that hung was never replaced."""
    monkeypatch.setattr("rocketpy.processes.member.guardian.HANGS_S", 0.5)

    def turns_once(role: Role) -> int:
        toy.memory.marks.coordinator_turned_s = time.monotonic()
        return toy.coordinator(role)

    toy.start(coordinator=turns_once)
    started = toy.started()
    assert "coordinator has made no turn for" in toy.journal.line()
    assert "coordinator was killed by SIGKILL" in toy.journal.line()
    who, pid = toy.next()
    assert who == "coordinator" and pid != started["coordinator"]


def test_a_pause_of_all_processes_is_no_hanging_coordinator() -> None:
    now = [100.0]
    killed: list[str] = []
    guardian = Guardian(
        MemberMemory(),
        Child("coordinator", lambda _role: 0, ()),
        Child("supervisor", lambda _role: 0, ()),
        bell=-1,
        process=ParentProcess(lambda: now[0], log=lambda text, *values: killed.append(text % values)),
    )
    guardian.coordinator.pid = 1
    for seconds in (0.25, 60.0, 0.25, HANGS_S - 1.0, LATE_S):
        now[0] += seconds
        guardian._excuse_pauses(now[0])
        guardian.memory.marks.coordinator_turned_s = guardian.memory.marks.coordinator_turned_s or now[0]
        guardian._watch_coordinator(now[0])
        assert not killed
    for _ in range(24):
        now[0] += 0.25
        guardian._excuse_pauses(now[0])
        guardian._watch_coordinator(now[0])
    assert len(killed) == 1 and "coordinator has made no turn" in killed[0]
