"""Histories of three members with faults at random: deaths, pauses, cuts, wrong clocks and leases that end early.

`python -m tests.support.ha.at_random --minutes 60` plays one history after the other, each with a seed of its own, and
reports histories, operations, faults by kind and losses. Root, etcd and a C compiler are needed, as in tests/ha.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import attrs

from .clients import Clients
from .clocks import TurnedClock, built_library
from .faults import Fault, end_a_lease, freeze, isolate, kill, kill_a_worker, turn_the_clock
from .group import LEASE_S, Member, real_group
from .network import network

NAMES = "abc"


@attrs.define(eq=False)
class Report:
    """Of one history, or of many."""

    histories: int = 0
    operations: Counter[str] = attrs.field(factory=Counter)
    faults: Counter[str] = attrs.field(factory=Counter)
    codes: Counter[int] = attrs.field(factory=Counter)
    longest_gap_s: float = 0.0
    failed_seeds: list[int] = attrs.field(factory=list)

    def add(self, other: Report) -> None:
        self.histories += other.histories
        self.operations += other.operations
        self.faults += other.faults
        self.codes += other.codes
        self.longest_gap_s = max(self.longest_gap_s, other.longest_gap_s)

    def __str__(self) -> str:
        return json.dumps(attrs.asdict(self))


def play(directory: Path, library: Path, seed: int, faults_s: float) -> Report:
    """One history: faults of at most one member at a time, in any order; then all is healed.

    Raises:
        AssertionError: a promise is broken.
    """
    choose, report = random.Random(seed), Report(histories=1)
    clocks = {name: TurnedClock(library, directory / f"{name}.clock") for name in NAMES}
    faults: tuple[Fault, ...] = (kill, freeze, isolate, kill_a_worker, end_a_lease, turn_the_clock(clocks))

    def arrange(member: Member) -> None:
        member.prefix = [*member.prefix, *clocks[member.name].prefix]

    with network(*NAMES, "etcd") as made, real_group(directory, NAMES, network=made, arrange=arrange) as group:
        with Clients(group.servers, group.history, seed) as clients:
            until_s = time.monotonic() + faults_s
            while time.monotonic() < until_s:
                name, fault = choose.choice(NAMES), choose.choice(faults)
                heal = fault(group, name, choose)
                report.faults[fault.__name__] += 1
                time.sleep(choose.uniform(0.2, 1.6 * LEASE_S))
                heal()
                time.sleep(choose.uniform(0.0, LEASE_S))
            group.wait_until_healed()
        group.check()
    report.operations = clients.mixed.operations + Counter({"sends": len(group.history.acknowledged)})
    report.codes = Counter(group.history.codes())
    report.longest_gap_s = round(group.history.longest_gap_s(), 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="no history begins later")
    parser.add_argument("--seed", type=int, help="play this one, once")
    parser.add_argument("--faults-s", type=float, default=40.0, help="seconds of faults in each history")
    arguments = parser.parse_args()
    until_s, total = time.monotonic() + 60 * arguments.minutes, Report()
    while time.monotonic() < until_s:
        seed = random.randrange(1 << 30) if arguments.seed is None else arguments.seed
        with tempfile.TemporaryDirectory(prefix="rocketpy-history-") as directory:
            print(f"HA_SEED={seed}", flush=True)
            try:
                total.add(play(Path(directory), built_library(Path(directory)), seed, arguments.faults_s))
            except Exception:
                traceback.print_exc(file=sys.stdout)
                total.histories += 1
                total.failed_seeds.append(seed)
        print(total, flush=True)
        if arguments.seed is not None:
            break
    return 1 if total.failed_seeds else 0


if __name__ == "__main__":
    sys.exit(main())
