"""A soak fails for what grows beyond its limit, and for nothing else."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import pytest

from rocketpy.bench.result import Figures
from rocketpy.bench.soak import Sample, fallen_rates, faults, figures, kept_rates, summary

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


def rows(rate: Callable[[float], float] = lambda _: 1000.0, seconds: int = 1800) -> list[Figures]:
    return [
        {"at_s": at + 0.01, "messages_per_s": rate(at), "consumed_per_s": 2 * rate(at)} for at in range(1, seconds + 1)
    ]


def test_a_steady_rate_passes_with_its_pauses() -> None:
    assert fallen_rates(rows()) == []
    assert fallen_rates(rows(lambda at: 1000 + 300 * math.sin(at))) == []
    assert fallen_rates(rows(lambda at: 0.0 if at == 29 else 1000.0, seconds=30)) == [], "a pause of a second"


def test_a_rate_of_the_first_fifth_does_not_count() -> None:
    assert fallen_rates(rows(lambda at: 5000.0 if at < 360 else 1000.0)) == []
    assert fallen_rates(rows(lambda at: 0.0 if at < 360 else 1000.0)) == []


def test_a_rate_that_falls_is_named() -> None:
    """Fault: A soak whose broker served ever fewer messages a second passed."""
    found = rows(lambda at: 1000 - at / 1800 * 500)
    assert kept_rates(found)["messages_per_s"] == pytest.approx(0.55 / 0.85, rel=0.01)
    assert fallen_rates(found) == [
        f"{name} of the last fifth is 64.7% of that of the second fifth, allowed are 80%"
        for name in ("messages_per_s", "consumed_per_s")
    ]
    (line,) = fallen_rates([row | {"messages_per_s": 1000.0} for row in found])
    assert line.startswith("consumed_per_s of the last fifth is 64.7%")


def test_the_bound_of_a_rate() -> None:
    assert fallen_rates(rows(lambda at: 1000.0 if at <= 1440 else 800.0)) == []
    assert len(fallen_rates(rows(lambda at: 1000.0 if at <= 1440 else 799.0))) == 2


def test_a_run_without_rows_or_without_messages_has_no_rate() -> None:
    assert kept_rates([]) == {} and kept_rates(rows(seconds=1)) == {} and kept_rates(rows(lambda _: 0.0)) == {}


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


def test_without_the_extra_the_command_names_it() -> None:
    """Fault: `rocketpy bench` of a plain installation ended with a traceback."""
    without = "import sys; sys.modules['hdrh'] = None; from rocketpy.cli.bench import bench; "
    run = without + "bench(['soak', '--minutes', '0.5'])"
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == 'rocketpy: hdrhistogram is not installed: pip install "rocketpy-mq[bench]"'
    assert "Traceback" not in ended.stderr
