"""Result files: what is written is read again, and pages and plots are made of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench import report as ours
from rocketpy.bench import plots, report, result
from rocketpy.bench.load import HdrHistogram
from rocketpy.bench.result import LATENCY_MAX_NS, PointResult, Result, Run
from rocketpy.errors import ConfigError


def example() -> Result:
    histogram = HdrHistogram(1, LATENCY_MAX_NS, 3)
    for value in range(1000, 100_000, 100):
        histogram.record_value(value)
    runs = [
        Run(
            seconds=2.0,
            figures={"messages_per_s": 100.0 * factor, "send_p99_us": 50.0},
            errors={"2": 3} if factor == 2 else {},
            intervals=[{"at_s": 1.0, "messages_per_s": 90.0}, {"at_s": 2.0, "messages_per_s": 110.0}],
            histograms={"send": histogram.encode().decode()},
        )
        for factor in (1, 2, 4)
    ]
    scenario = {"name": "example", "topics": 1, "messageSize": 1024, "producerRate": 0, "broker": {}}
    return Result(
        name="example",
        date="2026-01-02T03:04:05Z",
        target={"system": "rocketmq", "version": "V4_9_7", "settings": {"flushDiskType": "ASYNC_FLUSH"}},
        generator="native",
        rocketpy=result.software(),
        machine=result.machine(),
        points=[
            PointResult(name=f"producerRate={rate}", scenario=scenario | {"producerRate": rate}, runs=runs[at:])
            for at, rate in enumerate((100, 200))
        ],
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = example()
    written.write(tmp_path / "a.json")
    assert result.read(tmp_path / "a.json") == written
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == result.SCHEMA


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "no result file"),
        ("[]", "its schema is none"),
        ('{"schema": 99}', "its schema is 99"),
        ('{"schema": 1, "points": [{}]}', "incomplete"),
    ],
)
def test_other_files_are_refused_with_their_name(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError, match=f"a.json.*{expected}"):
        result.read(tmp_path / "a.json")


def test_the_page_says_where_the_figures_come_from() -> None:
    text = report.page(example())
    for part in ("2026-01-02T03:04:05Z", "flushDiskType=ASYNC_FLUSH", "generator native", "messageSize 1024", "cores "):
        assert part in text.replace("\n", " ")
    assert "| messages_per_s | 200 (100 to 400) | 300 (200 to 400) |" in text
    assert "- producerRate=200: 2: 3" in text
    assert "producerRate" not in text.partition("Scenario:")[2].partition("\n\n")[0], "it differs between the points"


def test_the_plots_are_the_same_for_the_same_result(tmp_path: Path) -> None:
    names = plots.write(example(), tmp_path, "a")
    assert names == ["a-rate.svg", "a-latency.svg", "a-sweep.svg"]
    first = {name: (tmp_path / name).read_bytes() for name in names}
    plots.write(example(), tmp_path, "a")
    assert {name: (tmp_path / name).read_bytes() for name in names} == first
    assert all((tmp_path / name).with_suffix(".png").read_bytes().startswith(b"\x89PNG") for name in names)
    assert b"producerRate=200 run 1" in first["a-rate.svg"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (12.345, "12.3"), (999.4, "999"), (999.98, "1,000"), (-1234.5, "-1,234")],
)
def test_a_number_has_three_figures_and_no_exponent(value: float | None, text: str) -> None:
    assert report.number(value) == ours.number(value) == text


def test_a_commit_is_dirty_when_more_than_results_has_changed(tmp_path: Path) -> None:
    """Measurements write their pages one after the other, and all of them name the commit that they measured."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    code, page = tmp_path / "code.py", tmp_path / "bench/results/figures.json"
    page.parent.mkdir(parents=True)
    assert result.commit_of(tmp_path) == ""
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        code.touch()
        page.touch()
        (tmp_path / "README.md").touch()
        subprocess.run([*git, *arguments], check=True)
    page.write_text("figures")
    (tmp_path / "README.md").write_text("the same figures")
    clean = result.commit_of(tmp_path)
    assert clean and not clean.endswith("-dirty")
    code.write_text("changed")
    assert result.commit_of(tmp_path) == f"{clean}-dirty"
