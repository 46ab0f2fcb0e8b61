"""How bench.catch_up says what each worker pays."""

from __future__ import annotations

import os
import time

from bench.catch_up import costs_per_gb
from rocketpy.bench import proc


def test_costs_are_of_the_bytes_that_were_copied() -> None:
    before = {"slave send": 1.0, "slave store": 3.0}
    after = {"slave send": 2.5, "slave store": 3.001, "slave replicator": 0.5}
    assert costs_per_gb(before, after, 2_000_000_000) == {"slave replicator": 0.25, "slave send": 0.75}


def test_a_process_is_charged_for_itself_alone() -> None:
    begin = proc.own_cpu_s(os.getpid())
    while time.process_time() < begin + 0.1:
        pass
    own, tree = proc.own_cpu_s(os.getpid()), proc.cpu_s([os.getpid()])
    assert begin < own <= tree + 2 / proc.TICKS_PER_S  # which rounds user and system time down to a tick each
    assert proc.own_cpu_s(2**22 + 1) == 0.0  # no such process
