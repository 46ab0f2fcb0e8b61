"""Medians, ratios and bars: as a table on the terminal, as JSON, and as a page of bench/results."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
from rich.table import Table

from rocketpy.bench.result import commit_of, first_line

from .brokers import JAVA_VERSION, ROOT
from .scenarios import Bar, Scenario
from .turn import Measurement


@attrs.frozen
class Line:
    """One metric of one scenario: the medians of both, their ratio, and its bar if it has one."""

    scenario: str
    metric: str
    rocketpy: float | None
    java: float | None
    bar: Bar | None
    errors: str

    @property
    def ratio(self) -> float | None:
        return self.rocketpy / self.java if self.rocketpy is not None and self.java else None

    @property
    def holds(self) -> bool | None:
        """None: no bar, or not measured."""
        if self.bar is None:
            return None
        value = self.ratio if self.bar.is_ratio else self.rocketpy
        return None if value is None else self.bar.holds(value)


@attrs.frozen
class Row:
    """A figure and its bar."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    is_least: bool = False  # the bar is the least that the figure may be, not the most

    @property
    def holds(self) -> bool:
        return self.bar is None or (self.value >= self.bar if self.is_least else self.value <= self.bar)

    @property
    def cells(self) -> tuple[str, ...]:
        bar = "" if self.bar is None else f"{'≥' if self.is_least else '≤'} {self.bar:g} {self.unit}".rstrip()
        value = f"{number(self.value)} {self.unit}".rstrip()
        return self.what, value, bar, ("holds" if self.holds else "missed") if bar else ""


def median(measurements: Sequence[Measurement], scenario: str, metric: str, target: str) -> float | None:
    values = [
        one.figures[metric]
        for one in measurements
        if one.scenario == scenario and one.target == target and metric in one.figures
    ]
    return statistics.median(values) if values else None


def median_of(runs: Sequence[object], field: str) -> float:
    """Return the median of a field of several runs."""
    return statistics.median(float(getattr(run, field)) for run in runs)


def errors_of(measurements: Sequence[Measurement], scenario: str) -> str:
    """List the error replies of all turns, as `target code:count`; `short`: a pull got fewer messages than it could."""
    return ", ".join(
        f"{one.target} {name}:{count}"
        for one in measurements
        if one.scenario == scenario
        for name, count in one.errors.items()
    )


def lines(measurements: Sequence[Measurement], scenarios: Sequence[Scenario]) -> Iterator[Line]:
    for scenario in scenarios:
        bars = {bar.metric: bar for bar in scenario.bars}
        for metric in scenario.metrics:
            yield Line(
                scenario.name,
                metric,
                median(measurements, scenario.name, metric, "rocketpy"),
                median(measurements, scenario.name, metric, "java"),
                bars.get(metric),
                errors_of(measurements, scenario.name),
            )


def number(value: float | None) -> str:
    """Three significant figures at least, thousands apart."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def verdict(line: Line) -> str:
    return {None: "", True: "pass", False: "FAIL"}[line.holds]


def row(line: Line) -> tuple[str, ...]:
    return (
        line.scenario,
        line.metric,
        number(line.rocketpy),
        number(line.java),
        number(line.ratio),
        str(line.bar) if line.bar else "",
        verdict(line),
        line.errors,
    )


def latency_rows(measurements: Sequence[Measurement], scenarios: Sequence[Scenario]) -> Iterator[tuple[str, ...]]:
    """Scenario, target and percentiles of every scenario with requests."""
    for scenario in scenarios:
        for target in ("rocketpy", "java"):
            found = [median(measurements, scenario.name, f"{name}_us", target) for name in PERCENTILES]
            if found[0] is not None:
                yield scenario.name, target, *map(number, found)


PAGE_WIDTH = 120  # columns of a page
PERCENTILES = ("p50", "p90", "p99", "p999", "max")
HEADINGS = ("scenario", "metric", "rocketpy", "Java", "ratio", "bar", "holds", "errors")
LATENCY_HEADINGS = ("scenario", "target", "p50", "p90", "p99", "p99.9", "max µs")
STYLES = {None: "", True: "green", False: "bold red"}


def tables(measurements: Sequence[Measurement], scenarios: Sequence[Scenario]) -> list[Table]:
    summary = Table(*HEADINGS, title="rocketpy and the Java broker, medians")
    for line in lines(measurements, scenarios):
        summary.add_row(*row(line), style=STYLES[line.holds])
    latency = Table(*LATENCY_HEADINGS, title="latency of a request")
    for cells in latency_rows(measurements, scenarios):
        latency.add_row(*cells)
    return [summary, latency]


def machine() -> dict[str, str | int]:
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "")
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": first_line(["java", "-version"]),
        "rocketmq": JAVA_VERSION,
        "rocketpy": commit_of(ROOT),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def write_json(
    path: Path, measurements: Sequence[Measurement], scenarios: Sequence[Scenario], command: str, settings: object
) -> None:
    document = {
        "command": command,
        "settings": settings,
        "machine": machine(),
        "summary": [
            attrs.asdict(line, recurse=False) | {"bar": str(line.bar or ""), "ratio": line.ratio, "holds": line.holds}
            for line in lines(measurements, scenarios)
        ],
        "measurements": [attrs.asdict(one) for one in measurements],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def markdown_table(headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    text = [" | ".join(headings), " | ".join("---" for _ in headings), *(" | ".join(cells) for cells in rows)]
    return "\n".join(f"| {line} |" for line in text)


def command_of(module: str) -> str:
    """Return the command that runs now, of the benchmark `module`."""
    return shlex.join(["python", "-m", module, *sys.argv[1:]])


def page_head(title: str, module: str) -> str:
    """Return the head of a page of bench/results: title, command, machine. A sentence about the run follows."""
    return f"""# {title}

Written by `{command_of(module)}` ([bench/README.md](../README.md)).

{machine_line()}"""


def machine_line() -> str:
    """Return a sentence about this machine, in lines of a page."""
    about = ", ".join(f"{name} {value}" for name, value in machine().items() if value)
    return textwrap.fill(f"Machine: {about}.", PAGE_WIDTH, break_on_hyphens=False)


def write_markdown(path: Path, measurements: Sequence[Measurement], scenarios: Sequence[Scenario], repeat: int) -> None:
    path.write_text(
        f"""{page_head("rocketpy and the Java broker", "bench.compare")}
The load generator shares the cores. Both brokers flush asynchronously; Java has a heap of 1 GB. Medians of {repeat}
turn(s); the ratio is rocketpy's figure divided by Java's.

{markdown_table(HEADINGS, (row(line) for line in lines(measurements, scenarios)))}

Latency of a request in microseconds, from when it was due:

{markdown_table(LATENCY_HEADINGS, latency_rows(measurements, scenarios))}
"""
    )
