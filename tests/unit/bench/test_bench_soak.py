"""The page of a soak: its figures against their bars, and when, where and of which commit it was run."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from bench import soak
from rocketpy.bench import soak as soak_run
from rocketpy.bench.result import Result
from rocketpy.errors import ConfigError
from tests.unit.bench.test_result_files import example

FLAT = {
    "messages_per_s": 4000.0,
    "processes_replaced": 0.0,
    "pss_mib_first": 70.1,
    "pss_mib_last": 70.6,
    "pss_mib_per_hour": 1.25,
    "pss_mib_per_hour_max": 10.0,
    "descriptors_first": 101.0,
    "descriptors_last": 101.0,
    "descriptors_per_hour": 0.0,
    "descriptors_per_hour_max": 12.5,
}


def result_of(figures: dict[str, float], errors: dict[str, int] | None = None) -> Result:
    point = example().points[0]
    run = attrs.evolve(point.runs[0], seconds=1800.0, figures=figures, errors=errors or {})
    return attrs.evolve(example(), name="soak", points=[attrs.evolve(point, name="", runs=[run])])


def test_the_page_names_run_commit_machine_and_bars() -> None:
    text = soak.page(result_of(FLAT))
    assert text.startswith("# A soak\n\nWritten by `python -m bench.soak")
    for part in ("Measured 2026-01-02T03:04:05Z", " at ", "Machine: cpu ", "Scenario: topics 1", "for 30 minutes"):
        assert part in text
    assert "| memory (PSS): growth | 1.25 MiB an hour | ≤ 10 MiB an hour | holds |" in text
    assert "| open descriptors: at the end | 101 |  |  |" in text
    assert "| requests failed | 0 | ≤ 0 | holds |" in text and "| 4,000 /s |" in text
    assert "missed" not in text and "Errors" not in text


@pytest.mark.parametrize(
    ("figures", "errors", "row"),
    [
        ({"pss_mib_per_hour": 10.1}, {}, "| memory (PSS): growth | 10.1 MiB an hour |"),
        ({"descriptors_per_hour": 13.0}, {}, "| open descriptors: growth | 13 an hour |"),
        ({"processes_replaced": 1.0}, {}, "| processes replaced | 1 |"),
        ({}, {"2": 3}, "| requests failed | 3 |"),
    ],
)
def test_a_fault_is_a_missed_bar(figures: dict[str, float], errors: dict[str, int], row: str, tmp_path: Path) -> None:
    found = result_of(FLAT | figures, errors)
    (missed,) = [line for line in soak.page(found).splitlines() if line.endswith("| missed |")]
    assert missed.startswith(row)
    found.write(tmp_path / "soak.json")
    words = [str(tmp_path / "soak.json"), "--docs", str(tmp_path / "soak.md")]
    assert CliRunner().invoke(soak.main, words).exit_code == 0
    assert CliRunner().invoke(soak.main, [*words, "--strict"]).exit_code == 1
    assert (tmp_path / "soak.md").read_text(encoding="utf-8").count(missed) == 1


@pytest.mark.parametrize(("last", "verdict"), [(800.0, "holds"), (700.0, "missed")])
def test_a_rate_that_fell_is_a_missed_bar(last: float, verdict: str) -> None:
    found = result_of(FLAT)
    rows = [
        {"at_s": at, "messages_per_s": 1000.0 if at <= 80 else last, "consumed_per_s": 2000.0}
        for at in map(float, range(1, 101))
    ]
    point = found.points[0]
    run = attrs.evolve(point.runs[0], intervals=rows)
    text = soak.page(attrs.evolve(found, points=[attrs.evolve(point, runs=[run])]))
    assert f"| messages sent: last fifth, as a share of the second | {last / 1000:g} | ≥ 0.8 | {verdict} |" in text
    assert "| messages consumed: last fifth, as a share of the second | 1 | ≥ 0.8 | holds |" in text


def test_growth_within_the_noise_of_a_sample_is_within_the_bar() -> None:
    """Fault: The page of a short soak missed a bar that `rocketpy bench soak` let pass."""
    times = [float(at) for at in range(0, 60, 5)]
    samples = [soak_run.Sample(at, 60 + at / 60, 100, frozenset({1})) for at in times]
    assert soak_run.faults(samples) == []
    text = soak.page(result_of(FLAT | soak_run.figures(samples)))
    assert "| memory (PSS): growth | 60 MiB an hour | ≤ 270 MiB an hour | holds |" in text
    assert "missed" not in text


def test_a_soak_without_a_slope_has_no_page() -> None:
    with pytest.raises(ConfigError, match="no pss_mib_per_hour: run a longer soak"):
        soak.page(result_of({"messages_per_s": 4000.0}))
