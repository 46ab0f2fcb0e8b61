"""`python -m bench.spark_bars` counts what the processes of its trees took."""

from __future__ import annotations

from bench.spark_bar_inputs import taken_s


def test_a_worker_that_ended_takes_nothing_back() -> None:
    """Fault: The least CPU of a row was below zero where PySpark's daemon had ended a worker."""
    assert taken_s({1: 5.0, 2: 9.0}, {1: 6.0, 3: 0.5}) == 1.5
