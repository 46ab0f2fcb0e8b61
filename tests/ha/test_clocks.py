"""Members whose clocks are wrong: a synchronous group loses nothing, whatever its clocks do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.clients import Clients
from tests.support.ha.clocks import TurnedClock
from tests.support.ha.faults import cut
from tests.support.ha.group import LEASE_S, Member, real_group
from tests.support.ha.needs import needs_compiler, needs_network
from tests.support.ha.network import network

pytestmark = needs_compiler
CLOCKS = ("CLOCK_MONOTONIC", "CLOCK_BOOTTIME", "CLOCK_REALTIME")
SHOW = f"""
import sys, time
for _ in sys.stdin:
    print(*(time.clock_gettime(getattr(time, name)) for name in {CLOCKS}), flush=True)
    time.sleep(0.001)
"""
FAR_S, CLOSE_S = 100_000.0, 1_000.0
HOUR_S = 3600.0

Turn = Callable[[TurnedClock], None]
TURNS: dict[str, Turn] = {
    "slow": lambda clock: clock.run_at(0.9),
    "fast": lambda clock: clock.run_at(1.1),
    "set back": lambda clock: clock.step(wall_s=-HOUR_S),
    "slept": lambda clock: clock.step(boot_s=10 * LEASE_S, wall_s=HOUR_S),
}


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> Iterator[TurnedClock]:
    made = TurnedClock(library, tmp_path / "clock")
    yield made
    made.close()


def shown(program: subprocess.Popen[str]) -> list[float]:
    """How far the clocks of the program are ahead of those of this process."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    there = [float(text) for text in program.stdout.readline().split()]
    return [at - time.clock_gettime(getattr(time, name)) for at, name in zip(there, CLOCKS, strict=True)]


def test_clocks_can_be_turned(clock: TurnedClock) -> None:
    words = [*clock.prefix, sys.executable, "-c", SHOW]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        expected = [0.0, 0.0, 0.0]
        assert shown(program) == pytest.approx(expected, abs=CLOSE_S)
        for change, moved in (
            ({"all_s": FAR_S}, (1, 1, 1)),
            ({"boot_s": FAR_S}, (0, 1, 0)),
            ({"wall_s": -FAR_S}, (0, 0, -1)),
            ({"all_s": -FAR_S}, (-1, -1, -1)),
        ):
            clock.step(**change)
            expected = [each + by * FAR_S for each, by in zip(expected, moved, strict=True)]
            assert shown(program) == pytest.approx(expected, abs=CLOSE_S)
        clock.run_at(11.0)
        before = shown(program)[0]
        time.sleep(0.1)
        gained_s = shown(program)[0] - before
        assert gained_s >= 1.0, "ten seconds in each second"
        clock.run_at(1.0)
        stopped = shown(program)[0]
        assert shown(program)[0] == pytest.approx(stopped, abs=1.0)
        assert program.stdin is not None
        program.stdin.close()


@needs_network
@pytest.mark.parametrize("turn", TURNS)
def test_a_member_with_a_wrong_clock(tmp_path: Path, clock: TurnedClock, seed: int, turn: str) -> None:
    """It is master and loses etcd, so that its lease ends by another clock than in etcd; then it is slave, and has to
    take over."""

    def arrange(member: Member) -> None:
        if member.name == "a":
            member.prefix = [*member.prefix, *clock.prefix]

    with network("a", "b", "etcd") as made, real_group(tmp_path, network=made, arrange=arrange) as group:
        with Clients(group.servers, group.history, seed):
            if group.wait_for_master() != "a":
                group.switch_over("a")
                group.wait_for_master({"a"})
            group.history.happened(f"clocks of a: {turn}")
            TURNS[turn](clock)
            time.sleep(LEASE_S)  # within a lease a jump may fence a, or put b out of the in-sync set
            group.wait_until_healed()
            join = cut(group, "a", "etcd")
            group.wait_for_lone_master("b")
            join()
            group.wait_until_healed()
            group.history.happened("kill -9 of all of b")
            group.members["b"].kill_all()
            group.wait_for_lone_master("a")
            group.members["b"].begin()
            group.wait_until_healed()
        group.check()


def test_a_clock_that_is_turned_all_the_time(tmp_path: Path, clock: TurnedClock, seed: int) -> None:
    """Of the master, of which then the coordinator stands still: no renewal, whatever its clock says of the lease."""

    def arrange(member: Member) -> None:
        if member.name == "a":
            member.prefix = [*member.prefix, *clock.prefix]

    with real_group(tmp_path, arrange=arrange) as group:
        with Clients(group.servers, group.history, seed):
            for rate, jump_s in ((0.9, -HOUR_S), (1.1, HOUR_S), (0.9, 0.0)):
                group.wait_for_master()
                group.history.happened(
                    f"clocks of a run at {rate}; CLOCK_BOOTTIME and the wall clock jump by {jump_s} s"
                )
                clock.run_at(rate)
                clock.step(boot_s=jump_s, wall_s=-jump_s)
                group.wait_until_healed()
        group.check()
