"""Histories of simulated groups: no promise is broken, whatever fails. `make test-property` plays a thousand."""

from __future__ import annotations

import pytest

from tests.support.budget import budget
from tests.support.failover.histories import play

COUNT = budget(5, 100)  # of histories with one of these first seeds
PARTS = [("sync", first) for first in range(0, 700, 100)] + [("async", first) for first in range(0, 300, 100)]


@pytest.mark.parametrize(("mode", "first"), PARTS)
def test_no_history_breaks_a_promise(mode: str, first: int) -> None:
    """Holds: replication, a slave takes over."""
    results = [play(seed, mode) for seed in range(first, first + COUNT)]
    assert sum(one.promotions for one in results) > 1.5 * COUNT, "too little happens to say anything"
    assert sum(one.acknowledgements for one in results) > 100 * COUNT
    assert sum(one.is_whole for one in results) > 0.9 * COUNT - 1
