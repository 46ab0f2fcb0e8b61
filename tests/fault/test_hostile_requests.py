"""Thousands of hostile requests, another few each day: whatever a stranger sends, broker and name server go on.

ROCKETPY_SEED repeats a run; the seed is part of every message.
"""

from __future__ import annotations

import os
import random

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.hostile_run import run_hostile_requests

NEW = "new"  # in each run another seed, chosen in the test: all workers have to collect the same tests


@pytest.mark.parametrize("seed", [1, NEW])
def test_thousands_of_hostile_requests(seed: int | str) -> None:
    chosen = int(os.environ.get("ROCKETPY_SEED") or random.randrange(1 << 32)) if seed == NEW else int(seed)
    run_hostile_requests(chosen, 4_000, 12)
