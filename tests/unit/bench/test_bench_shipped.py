"""The page of the shipped scenarios is that of the result files beside it."""

from __future__ import annotations

import re

import attrs
import pytest

from bench import shipped
from rocketpy.bench import scenario
from rocketpy.bench.result import PointResult, Result
from tests.support.rules import hold
from tests.unit.bench.test_result_files import example

COMMIT = re.compile(r"[0-9a-f]{7,}(-dirty)?")


def result_of(name: str, figures: dict[str, dict[str, float]]) -> Result:
    """A result with one run: `figures` by point."""
    run = example().points[0].runs[0]
    points = [
        PointResult(name=point, scenario={"name": name}, runs=[attrs.evolve(run, figures=values)])
        for point, values in figures.items()
    ]
    return attrs.evolve(example(), name=name, points=points)


def test_each_shipped_scenario_has_a_result_of_a_commit() -> None:
    results = shipped.read_results()
    assert [found.name for found in results] == shipped.names(), "run `python -m bench.shipped --only NAME`"
    hold((found.name for found in results if not COMMIT.fullmatch(found.rocketpy["commit"])), "measure in a checkout")


def test_the_page_is_that_of_the_results() -> None:
    written = shipped.page(shipped.read_results())
    assert shipped.PAGE.read_text(encoding="utf-8") == written, "run `python -m bench.shipped --page`"


def test_every_shipped_scenario_but_the_soak_is_run() -> None:
    assert set(shipped.names()) | set(shipped.LEFT_OUT) == scenario.shipped().keys()


def test_a_section_says_what_was_asked_where_and_what_came_of_it() -> None:
    text = shipped.section(attrs.evolve(example(), name="latency"))
    assert text.startswith("## latency\n\nLatency of sends and end to end at a steady 10 000 messages a second")
    for part in ("Measured 2026-01-02", "Machine: cpu", "Scenario: topics 1", "Medians of 3 runs", "| send_p99_us |"):
        assert part in text
    assert text.endswith("- producerRate=100: 2: 3\n- producerRate=200: 2: 3")


@pytest.mark.parametrize(("reads", "cells"), [(8000.0, "8,000 /s | ≥ 8000 /s | holds"), (7999.4, "| missed")])
def test_random_cold_reads_have_a_bar(reads: float, cells: str) -> None:
    figures = {"default properties": {"reads_per_s": 1.0}, "dataReadAheadEnable=false": {"reads_per_s": reads}}
    text = shipped.section(result_of("cold-reads", figures))
    assert "| random cold reads of 4 KiB, dataReadAheadEnable=false | " in text and cells in text


@pytest.mark.parametrize(
    ("synchronous", "cells"), [(900.0, "| 10 % | ≤ 10 % | holds |"), (880.0, "| 12 % | ≤ 10 % | missed |")]
)
def test_a_synchronous_double_write_is_judged_by_an_asynchronous_one(synchronous: float, cells: str) -> None:
    rates = {"brokerRole=ASYNC_MASTER": 1000.0, "brokerRole=SYNC_MASTER": synchronous}
    found = result_of("replicated", {point: {"messages_per_s": rate} for point, rate in rates.items()})
    assert f"| cost of synchronous double writes {cells}" in shipped.section(found)


def test_a_result_without_the_figure_of_its_bar_is_an_error() -> None:
    with pytest.raises(LookupError, match="no messages_per_s at the point 'brokerRole=SYNC_MASTER'"):
        shipped.section(result_of("replicated", {"brokerRole=ASYNC_MASTER": {"messages_per_s": 1.0}}))
    assert shipped.BARS.keys() <= set(shipped.names())
