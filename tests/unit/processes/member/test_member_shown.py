"""What the coordinator shows of itself: read by another process, and the lease runs down without it."""

from __future__ import annotations

import multiprocessing
import os
import time

from rocketpy.failover.rules.states import State
from rocketpy.processes.member.shown import MemberShown


def test_it_is_shared_with_processes_that_are_forked_later() -> None:
    shown = MemberShown(lambda: 100.0)
    pid = os.fork()
    if pid == 0:
        shown.show(State.MASTER, 7, 2, 104.5)
        os._exit(0)
    os.waitpid(pid, 0)
    seen = shown.read()
    assert (seen.state, seen.epoch, seen.in_sync, seen.changes, seen.lease_s) == ("MASTER", 7, 2, 1, 4.5)


def show_for_ever(shown: MemberShown) -> None:
    while True:
        shown.show(State.MASTER, 7, 2, 104.5)


def test_no_state_is_seen_half_written() -> None:
    """Fault: A scrape in the middle of a write told of epoch 0, no lease, and a member that was joining."""
    shown = MemberShown(lambda: 100.0)
    shown.show(State.MASTER, 7, 2, 104.5)
    writer = multiprocessing.get_context("fork").Process(target=show_for_ever, args=(shown,), daemon=True)
    writer.start()
    try:
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s:
            seen = shown.read()
            assert (seen.state, seen.epoch, seen.in_sync, seen.changes, seen.lease_s) == ("MASTER", 7, 2, 1, 4.5)
    finally:
        writer.kill()
        writer.join()


def test_changes_of_the_state_are_counted_and_a_lease_that_is_over_is_0() -> None:
    shown = MemberShown(lambda: 100.0)
    assert shown.read().state == "JOINING" and shown.read().changes == 0
    for state in (State.JOINING, State.FOLLOWER, State.FOLLOWER, State.IN_SYNC):
        shown.show(state, -1, 0, 99.0)
    assert (shown.read().changes, shown.read().lease_s) == (2, 0.0)


def test_faults_are_shown_beside_the_state() -> None:
    shown = MemberShown(lambda: 100.0)
    assert (shown.read().has_fault, shown.read().faulty) == (False, 0)
    shown.show_faults(True, 2)
    shown.show(State.MASTER, 7, 2, 104.5)
    assert (shown.read().has_fault, shown.read().faulty, shown.read().state) == (True, 2, "MASTER")
