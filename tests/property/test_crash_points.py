"""Crashes at named points, on a simulated disk: 1 000 in `make test-property`, 10 000 in `make test-crashes`."""

from __future__ import annotations

import pytest

from tests.support.budget import budget
from tests.support.crash.launch import first_seed, run_crashes

pytestmark = pytest.mark.long  # compiles a core of its own
CRASHES = budget(20, 1_000)


def test_no_crash_breaks_the_store() -> None:
    """Holds: store, recovery after the death of broker, machine or files."""
    outcome = run_crashes(first_seed(500_000), CRASHES)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.crashes.total() >= CRASHES
