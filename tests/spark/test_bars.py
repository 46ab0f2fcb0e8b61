"""`python -m bench.spark_bars` counts what the processes of its trees took."""

from __future__ import annotations

from bench.spark_bar_inputs import cpu_used_s


def test_cpu_of_a_worker_that_ended_is_not_subtracted() -> None:
    """Fault: The least CPU of a row was below zero where PySpark's daemon had ended a worker."""
    assert cpu_used_s({1: 5.0, 2: 9.0}, {1: 6.0, 3: 0.5}) == 1.5
