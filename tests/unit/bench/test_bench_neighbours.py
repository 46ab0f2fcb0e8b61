"""bench.neighbours: its scenarios, the order of turns, and the page that tells what was compared."""

from __future__ import annotations

import re

import attrs
import pytest

from bench import neighbours
from bench.neighbours import SYSTEMS, Found, Measured
from rocketpy import __version__
from rocketpy.bench.proc import TICKS_PER_S
from rocketpy.bench.result import Run
from rocketpy.bench.scenario import Point
from tests.support.rules import ROOT

ABOUT = {
    "rocketmq": {"version": __version__, "settings": {"flushDiskType": "ASYNC_FLUSH"}},
    "nats": {"version": "2.15.2", "settings": {"storage": "file", "client": "nats-py 2.16.0"}},
    "kafka": {"version": "4.3.1", "settings": {"acks": "all", "client": "aiokafka 0.14.0"}},
}


def run_of(figure: float, **errors: int) -> Run:
    return Run(seconds=1.0, figures={"messages_per_s": figure}, errors=errors, intervals=[], histograms={})


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The runs that are asked for; each gives its number as its figure."""
    asked: list[tuple[str, str]] = []

    def run_once(point: Point, target: str) -> tuple[dict[str, object], Run]:
        asked.append((point.scenario.name, target))
        return ABOUT[target], run_of(len(asked))

    monkeypatch.setattr(neighbours, "run_once", run_once)
    return asked


def measure(runs: int = 2) -> Found:
    return neighbours.take_turns(neighbours.points(1000, 0.1, is_quick=False), tuple(SYSTEMS), runs)


def test_scenarios_are_the_shipped_ones_with_a_rate_that_clients_keep() -> None:
    latency, throughput = (point.scenario for point in neighbours.points(700, 0.5, is_quick=False))
    assert (latency.name, latency.producer_rate, latency.partitions_per_topic) == ("latency", 700, 16)
    assert (throughput.name, throughput.producer_rate, throughput.producers_per_topic) == ("throughput", 0, 64)
    assert {one.test_duration_minutes for one in (latency, throughput)} == {0.5}
    assert [point.scenario.test_duration_minutes for point in neighbours.points(1, None, is_quick=False)] == [1, 0.25]
    assert all(point.scenario.test_duration_minutes < 0.1 for point in neighbours.points(700, None, is_quick=True))


def test_each_turn_begins_with_another_system(order: list[tuple[str, str]]) -> None:
    measure()
    assert [target for name, target in order if name == "latency"] == [*SYSTEMS, "nats", "kafka", "rocketmq"]


def test_the_page_says_what_was_compared(order: list[tuple[str, str]]) -> None:
    text = neighbours.page(measure(), 2)
    for target, name in SYSTEMS.items():
        assert re.search(rf"^\| {name} \| {ABOUT[target]['version']} \|", text, re.MULTILINE)
        assert all(part in text for part in neighbours.ACKNOWLEDGES[target])
    assert "| figure | rocketpy | NATS JetStream | Kafka |" in text
    assert "| messages_per_s | 5 (1 to 9) | 4.5 (2 to 7) | 5.5 (3 to 8) |" in text
    assert "The shipped file asks for 10,000 messages a second" in text
    assert "aiokafka 0.14.0" in text and "client=" not in text
    assert re.search(r"other programs of the machine and its host took [\d.]+ of \d+ cores", " ".join(text.split()))


@pytest.mark.parametrize(("others", "is_warned"), [(0.05, False), (1.5, True)])
def test_a_disturbed_run_ranks_no_system(order: list[tuple[str, str]], others: float, is_warned: bool) -> None:
    text = neighbours.page(attrs.evolve(measure(), others=[others, others]), 2)
    assert ("rank no system" in " ".join(text.split())) == is_warned


def test_errors_are_on_the_page() -> None:
    (point, _) = neighbours.points(1000, None, is_quick=False)
    measured = Measured(point, {"nats": [run_of(1.0), run_of(2.0, TimeoutError=3)]})
    found = Found([measured], {"nats": ABOUT["nats"]}, others=[0.5])
    assert found.has_errors and "- NATS JetStream: TimeoutError: 3" in neighbours.page(found, 2)
    assert not attrs.evolve(found, measured=[Measured(point, {"nats": [run_of(1.0)]})]).has_errors


def test_idle_time_is_not_that_of_programs() -> None:
    stat = "cpu  100 20 30 4000 500 6 7 8 9 0\ncpu0 50 10 15 2000 250 3 3 4 5 0\n"
    assert neighbours.busy_s(stat) * TICKS_PER_S == pytest.approx(100 + 20 + 30 + 6 + 7 + 8)


def test_the_settings_named_are_those_of_the_servers() -> None:
    text = (ROOT / "docs/run/configuration.md").read_text(encoding="utf-8")
    assert "`flushIntervalCommitLog`★=`500` ms" in text and "every 500 ms" in neighbours.ACKNOWLEDGES["rocketmq"][1]
