"""The page of idle clients holds their cost against its bars."""

from __future__ import annotations

import attrs

from bench import idle_clients
from rocketpy.bench.idle import Tally
from tests.unit.bench.test_idle_cost import COST


def test_the_page_has_bars_and_origin() -> None:
    text = idle_clients.page(COST, 0.5)
    assert text.startswith("# Idle clients\n\nWritten by `python -m bench.idle_clients") and "Machine: cpu " in text
    assert "3,000 clients for 60 s, a heartbeat of each every 30 s;\neach 5th is" in text
    assert "| memory of the broker for each client | 10,000 bytes | ≤ 10000 bytes | holds |" in text
    assert "| CPU of the broker | 20 % of a core | ≤ 20 % of a core | holds |" in text
    assert "| heartbeat, p99 | 1.5 ms |  |  |" in text


def test_a_missed_bar_and_a_lost_connection_are_named() -> None:
    found = attrs.evolve(COST, cpu_percent=20.5, tally=Tally(lost=1))
    text = idle_clients.page(found, 0.5)
    assert "| CPU of the broker | 20.5 % of a core | ≤ 20 % of a core | missed |" in text
    assert "| connections lost | 1 | ≤ 0 | missed |" in text
