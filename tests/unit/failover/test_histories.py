"""A thousand histories of simulated groups: no promise is broken, whatever fails."""

from __future__ import annotations

import pytest

from tests.support.failover.histories import play

PARTS = [("sync", first) for first in range(0, 700, 100)] + [("async", first) for first in range(0, 300, 100)]


@pytest.mark.parametrize(("mode", "first"), PARTS)
def test_a_hundred_histories(mode: str, first: int) -> None:
    results = [play(seed, mode) for seed in range(first, first + 100)]
    assert sum(one.promotions for one in results) > 150, "too little happens to say anything"
    assert sum(one.acknowledgements for one in results) > 10_000
    assert sum(one.is_whole for one in results) > 90
