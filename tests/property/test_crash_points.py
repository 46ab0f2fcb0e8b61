"""A thousand crashes at named points, on a simulated disk; tests/fault/test_crash_points.py looks at ten thousand."""

from __future__ import annotations

from tests.support.crash.launch import first_seed, run_crashes

CRASHES = 1_000


def test_no_crash_breaks_the_store() -> None:
    outcome = run_crashes(first_seed(500_000), CRASHES)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.crashes.total() >= CRASHES
