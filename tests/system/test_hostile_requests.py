"""Hundreds of hostile requests of every code, at broker and name server: afterwards both serve, no worker was
replaced, no fault was caught, memory is back. `make test-fault` sends thousands."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.budget import budget
from tests.support.hostile_run import run_hostile_requests

SEED = 20261122


def test_some_hundred_hostile_requests() -> None:
    """Fault: A configuration update with a body of 16 MB blocked the manager or the name server for up to 16 s.
    Fault: A header of 16 MB with a million fields blocked the manager's loop for seconds."""
    run_hostile_requests(SEED, budget(100, 600), budget(1, 3))
