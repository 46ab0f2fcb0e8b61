"""A comparison tells changes from noise by the variation between runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from rocketpy.bench.compare import changes, differences, interval
from rocketpy.bench.report import comparison
from rocketpy.bench.result import PointResult, Result, Run
from rocketpy.cli.command_line import cli
from rocketpy.errors import ConfigError

STEADY = (100.0, 101.0, 99.0)


def run(value: float, *, metric: str = "messages_per_s", seconds: int = 0) -> Run:
    rows = [{"at_s": at, metric: value * (1 + 0.01 * (at % 3 - 1))} for at in range(1, seconds + 1)]
    return Run(seconds=10.0, figures={metric: value}, errors={}, intervals=rows, histograms={})


def result(values: tuple[float, ...], *, metric: str = "messages_per_s", seconds: int = 0, **given: Any) -> Result:
    scenario = {"name": "s", "topics": 1, "broker": {}} | given
    runs = [run(value, metric=metric, seconds=seconds) for value in values]
    return Result(
        name="s",
        date="2026-01-01T00:00:00Z",
        target={"system": "rocketmq", "version": "V4_9_7", "settings": {}},
        generator="native",
        rocketpy={"version": "0", "commit": ""},
        machine={"cpu": "c", "cores": 2, "memory_gib": 4, "kernel": "k"},
        points=[PointResult(name="p", scenario=scenario, runs=runs)],
    )


def verdict(before: tuple[float, ...], after: tuple[float, ...], metric: str = "messages_per_s") -> str:
    (change,) = changes(result(before, metric=metric), result(after, metric=metric))
    return change.verdict


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ((120.0, 121.0, 119.0), "better"),
        ((80.0, 81.0, 79.0), "worse"),
        ((100.5, 101.5, 99.5), "same"),
        ((103.0, 104.0, 102.0), "same"),  # beyond noise, below the threshold
        ((70.0, 100.0, 130.0), "unclear"),  # within its own noise
        ((80.0,), "unclear"),  # one run says nothing of others
    ],
)
def test_a_rate_that_changes(after: tuple[float, ...], expected: str) -> None:
    assert verdict(STEADY, after) == expected


def test_a_latency_that_rises_is_worse() -> None:
    assert verdict(STEADY, (120.0, 121.0, 119.0), "send_p99_us") == "worse"


def test_a_rate_that_falls_to_zero_is_worse() -> None:
    """Fault: A throughput of zero was left out of a comparison, which then found no regression."""
    assert verdict(STEADY, (0.0, 0.0, 0.0)) == "worse"
    assert verdict((0.0, 0.0, 0.0), STEADY) == "better"
    assert verdict(STEADY, (100.0, 0.0, 101.0)) == "unclear"


def test_errors_where_there_were_none_are_worse() -> None:
    """Fault: Requests that failed were not compared."""
    before, after = result(STEADY), result(STEADY)
    after.points[0].runs[:] = [attrs.evolve(each, errors={"2": 5}) for each in after.points[0].runs]
    found = {change.metric: (change.before, change.after, change.verdict) for change in changes(before, after)}
    assert found == {"messages_per_s": (100.0, 100.0, "same"), "errors_per_s": (0.0, 0.5, "worse")}
    found = {change.metric: (change.before, change.after, change.verdict) for change in changes(after, before)}
    assert found["errors_per_s"] == (0.5, 0.0, "better")


def test_noisy_runs_hide_what_steady_ones_show() -> None:
    """Also where the medians are the same as in the steady ones."""
    assert verdict((60.0, 100.0, 140.0), (72.0, 120.0, 168.0)) == "unclear"


def test_the_interval_is_welchs() -> None:
    """By hand: logs of (1, e) and (e, e^2): difference 1, variances 1/2 each, two degrees of freedom."""
    low, high = interval((1.0, math.e), (math.e, math.e**2))
    reach = 4.303 * math.sqrt(0.5)
    assert (math.log(low), math.log(high)) == pytest.approx((1 - reach, 1 + reach))


def test_the_seconds_of_single_runs_are_cut_into_blocks_and_the_comparison_says_so() -> None:
    before, after = result((100.0,), seconds=30), result((80.0,), seconds=30)
    (change,) = changes(before, after)
    assert change.verdict == "worse"
    assert any("the variation between runs is unknown" in line for line in differences(before, after))


def test_other_loads_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="the loads differ in topics"):
        list(changes(result(STEADY), result(STEADY, topics=2)))


def test_other_settings_of_the_broker_are_compared_and_named() -> None:
    before, after = result(STEADY), result(STEADY, broker={"flushDiskType": "SYNC_FLUSH"})
    assert [change.verdict for change in changes(before, after)] == ["same"]
    (line,) = differences(before, after)
    assert "SYNC_FLUSH" in line


def test_results_without_a_common_point_are_refused() -> None:
    after = result(STEADY)
    after.points[0] = PointResult(name="q", scenario={}, runs=after.points[0].runs)
    with pytest.raises(ConfigError, match="no point in common"):
        list(changes(result(STEADY), after))


def test_a_page_shows_ratio_interval_and_verdict() -> None:
    found = list(changes(result(STEADY), result((120.0, 121.0, 119.0))))
    (row,) = comparison(found, []).splitlines()[2:]
    assert row.startswith("| p | messages_per_s | 100 | 120 | 1.200 | 1.1") and row.endswith("| better |")


@pytest.mark.parametrize(("option", "status"), [((), 0), (("--fail-on-regression",), 1)])
def test_the_command_fails_when_asked_to(tmp_path: Path, option: tuple[str, ...], status: int) -> None:
    result(STEADY).write(tmp_path / "a.json")
    result((80.0, 81.0, 79.0)).write(tmp_path / "b.json")
    words = ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *option]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == status
    assert "| worse |" in done.output and "0 better, 1 worse, 0 same, 0 unclear" in done.output


def status_of(tmp_path: Path, before: Result, after: Result) -> tuple[int, str]:
    """Compare as CI does."""
    before.write(tmp_path / "a.json")
    after.write(tmp_path / "b.json")
    words = ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--fail-on-regression"]
    done = CliRunner().invoke(cli, words)
    return done.exit_code, done.output


def test_a_lost_point_fails(tmp_path: Path) -> None:
    """Fault: A point that the second result lacked was passed over."""
    before = result(STEADY)
    before.points.append(attrs.evolve(before.points[0], name="q"))
    status, output = status_of(tmp_path, before, result(STEADY))
    assert status == 1 and "- point q: not measured after" in output
    assert status_of(tmp_path, result(STEADY), before)[0] == 0, "a new point is no regression"


def test_a_comparison_that_tells_nothing_fails(tmp_path: Path) -> None:
    """Fault: Results with one run each, whose figures were all unclear, never failed."""
    status, output = status_of(tmp_path, result((100.0,)), result((10.0,)))
    assert status == 1 and "1 unclear" in output and "use --runs 3 or more" in output


def test_the_command_names_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert done.exit_code == 1 and "a.json: no result file" in done.output and done.output.count("\n") == 1
