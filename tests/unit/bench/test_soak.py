"""A soak fails for what grows beyond its limit, and for nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rocketpy.bench.soak import Sample, faults, figures, summary

PIDS = frozenset({1, 2, 3})
HOUR = [float(at) for at in range(0, 3600, 5)]


def samples(
    pss_mib: Callable[[float], float] = lambda _: 60.0,
    descriptors: Callable[[float], float] = lambda _: 100.0,
    times: list[float] = HOUR,
) -> list[Sample]:
    return [Sample(at, pss_mib(at), int(descriptors(at)), PIDS) for at in times]


def test_flat_resources_pass_with_their_noise() -> None:
    assert faults(samples(lambda at: 60 + math.sin(at), lambda at: 100 + at % 3)) == []


def test_what_fills_in_the_first_fifth_is_no_growth() -> None:
    assert faults(samples(lambda at: min(60.0, at / 10))) == []


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        (samples(lambda at: 60 + at / 3600 * 20), "pss_mib grows by 20.0 an hour, allowed are 10"),
        (samples(descriptors=lambda at: 100 + at / 60), "descriptors grows by 60.0 an hour, allowed are 10"),
    ],
)
def test_growth_beyond_the_limit_is_named(grown: list[Sample], expected: str) -> None:
    assert faults(grown) == [expected]


def test_growth_within_the_limit_passes() -> None:
    assert faults(samples(lambda at: 60 + at / 3600 * 9)) == []


def test_the_noise_of_a_short_run_is_no_growth() -> None:
    """One MiB in a minute would be 60 an hour."""
    assert faults(samples(lambda at: 60 + at / 60, times=[float(at) for at in range(0, 60, 5)])) == []


def test_a_process_that_was_replaced_is_a_fault() -> None:
    found = samples()
    found[-1] = Sample(found[-1].at_s, 60.0, 100, frozenset({1, 2, 4}))
    assert faults(found) == ["1 processes of the broker ended: its log says why they were replaced"]


def test_a_process_that_was_replaced_in_the_first_fifth_is_a_fault() -> None:
    """Fault: A soak whose broker lost a worker within the first six minutes of thirty reported no replaced process."""
    found = samples()
    found[0] = Sample(found[0].at_s, 60.0, 100, frozenset({1, 2, 7}))
    assert faults(found) == ["1 processes of the broker ended: its log says why they were replaced"]
    assert figures(found)["processes_replaced"] == 1


def test_too_few_samples_are_no_success() -> None:
    assert "too few" in faults(samples()[:4])[0] and "too few" in faults([])[0]


def test_the_summary_has_first_last_and_slope() -> None:
    assert summary(samples(lambda at: 60 + at / 3600))[0] == "pss_mib: 60.2 to 60.9986, +1.0 an hour"


def test_a_result_has_first_last_and_slope() -> None:
    found = figures(samples(lambda at: 60 + at / 3600))
    assert found["processes_replaced"] == 0 and found["pss_mib_first"] == 60.2
    assert found["pss_mib_per_hour"] == 1.0 and found["descriptors_last"] == 100
    assert figures(samples()[:4]) == {}, "too few to see a slope"
