"""The page of the shipped scenarios is that of the result files beside it."""

from __future__ import annotations

import attrs

from bench import shipped
from rocketpy.bench import scenario
from tests.unit.bench.test_result_files import example


def test_the_page_is_that_of_the_results() -> None:
    """There is a page if there are results."""
    found = shipped.read_results()
    texts = [shipped.PAGE.read_text(encoding="utf-8")] if shipped.PAGE.exists() else []
    assert texts == [shipped.page(found)] * bool(found), "run `python -m bench.shipped --page`"


def test_every_shipped_scenario_but_the_soak_is_run() -> None:
    assert set(shipped.names()) | set(shipped.LEFT_OUT) == scenario.shipped().keys()


def test_a_section_says_what_was_asked_where_and_what_came_of_it() -> None:
    text = shipped.section(attrs.evolve(example(), name="latency"))
    assert text.startswith("## latency\n\nLatency of sends and end to end at a steady 10 000 messages a second")
    for part in ("Measured 2026-01-02", "Machine: cpu", "Scenario: topics 1", "Medians of 3 runs", "| send_p99_us |"):
        assert part in text
    assert text.endswith("- producerRate=100: 2: 3\n- producerRate=200: 2: 3")
