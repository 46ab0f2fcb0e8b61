"""How bench.replication separates the cost of a slave, and checks its bars."""

from __future__ import annotations

import attrs
import pytest

from bench.replication import (
    ALONE,
    FOLLOWED,
    SYNC_64X1,
    SYNC_64X64,
    Cpu,
    Figures,
    cost_percent,
    figures_of,
    mb_per_s,
    rows,
    slave_rows,
)
from rocketpy.bench.load import Latency, Result


def result(messages: int, seconds: float) -> Result:
    latency = Latency(messages, 1000.0, 2000.0, 4000.0, 5000.0, 6000.0)
    per_s = messages / seconds
    return Result(seconds, messages, 0, per_s, per_s, latency, None, 0.0, {}, 0.0, 0.5)


def test_the_cpu_time_of_the_slave_is_no_cost() -> None:
    """Alone the master uses both cores; beside a slave that takes a quarter, what is left."""
    alone = figures_of(result(4000, 2.0), Cpu(0, 0, 0), Cpu(4.0, 0, 4.0))
    fair = figures_of(result(3000, 2.0), Cpu(0, 0, 0), Cpu(3.0, 1.0, 4.0))
    assert cost_percent([alone], fair) == 0.0
    slower = figures_of(result(2700, 2.0), Cpu(0, 0, 0), Cpu(3.0, 1.0, 4.0))
    assert cost_percent([alone], slower) == 10.0


def test_cpu_time_that_other_programs_take_is_no_cost() -> None:
    alone = figures_of(result(4000, 2.0), Cpu(0, 0, 0), Cpu(4.0, 0, 4.0))
    beside_others = figures_of(result(1000, 2.0), Cpu(0, 0, 0), Cpu(1.0, 1.0, 2.0))
    assert cost_percent([alone], beside_others) == 0.0


def test_time_that_the_master_waits_is_a_cost() -> None:
    alone = figures_of(result(4000, 2.0), Cpu(0, 0, 0), Cpu(4.0, 0, 4.0))
    idle = figures_of(result(1500, 2.0), Cpu(0, 0, 0), Cpu(1.5, 1.0, 4.0))
    assert cost_percent([alone], idle) == 50.0


def test_bars_are_checked_against_medians() -> None:
    one = Figures(1000.0, 100.0, 400.0, 1.0, 1.0, 10.0, 1000.0, {})

    def runs(*times: float) -> list[Figures]:
        return [attrs.evolve(one, messages_per_s=1000 * factor, p99_us=400 / factor) for factor in times]

    found = {("java", name): runs(1, 1, 1) for name in (SYNC_64X1, SYNC_64X64, ALONE, FOLLOWED)}
    found |= {("rocketpy", name): runs(1.9, 2.1, 9) for name in (SYNC_64X1, ALONE, FOLLOWED)}
    found["rocketpy", SYNC_64X64] = runs(1, 1.9, 9)
    assert [line[:2] + line[-1:] for line in rows(found) if line[-1]] == [
        (SYNC_64X1, "messages_per_s", "holds"),
        (SYNC_64X1, "p99_us", "holds"),
        (SYNC_64X64, "messages_per_s", "missed"),
    ]


@pytest.mark.parametrize(
    ("caught_up", "raw", "holds"), [(1100.0, 2000.0, "holds"), (900.0, 2000.0, "missed"), (600.0, 500.0, "holds")]
)
def test_catching_up_is_as_fast_as_the_bar_or_the_disk(caught_up: float, raw: float, holds: str) -> None:
    costs = {"rocketpy": [5.0, 11.0, 9.0], "java": [1.0]}
    copies = {"rocketpy": [(caught_up, raw)], "java": [(100.0, raw)]}
    cost, catch_up, _ = slave_rows(costs, copies)
    assert (cost[2], cost[-1], catch_up[-1]) == ("9", "holds", holds)


def test_a_rate_counts_from_the_first_bytes_that_were_seen() -> None:
    assert mb_per_s([(10.0, 50_000_000), (10.5, 400_000_000), (11.0, 1_050_000_000)]) == 1000.0
