"""Results as Markdown: where they come from, the figures of each point, and what a comparison found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .compare import Change
from .result import PointResult, Result

PAGE_WIDTH = 120
UNITS = {"_per_s": "/s", "_us": " µs", "_mib": " MiB", "_s": " s"}


def number(value: float | None) -> str:
    """Return three significant figures at least, thousands apart."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(headings), " | ".join("---" for _ in headings), *(" | ".join(cells) for cells in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def origin(result: Result) -> str:
    """Return a paragraph that says when, on what, and with what a result was made."""
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items() if value != "")
    target = result.target
    settings = ", ".join(f"{name}={value}" for name, value in target.get("settings", {}).items())
    commit = f" at {result.rocketpy['commit']}" if result.rocketpy.get("commit") else ""
    text = (
        f"Measured {result.date} by rocketpy bench {result.rocketpy['version']}{commit}, generator {result.generator}, "
        f"against {target['system']} {target['version']} ({settings}). Machine: {machine}."
    )
    return textwrap.fill(text, PAGE_WIDTH, break_on_hyphens=False, break_long_words=False)


def _range(values: Sequence[float]) -> str:
    return f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""


def figures(points: Sequence[PointResult]) -> str:
    """Return a table: a row for each figure, a column for each point; medians of the runs with their range."""
    metrics = list(dict.fromkeys(metric for point in points for metric in point.metrics))
    headings = ("figure", *(point.name or "median of the runs" for point in points))
    rows = (
        (metric, *(number(point.median(metric)) + _range(point.values(metric)) for point in points))
        for metric in metrics
    )
    return table(headings, rows)


def keys(points: Sequence[PointResult]) -> str:
    """Return the keys of the scenario that have one value at all points."""
    first = points[0].scenario
    same = {name: value for name, value in first.items() if all(one.scenario.get(name) == value for one in points)}
    text = ", ".join(
        f"{name} {value}" for name, value in same.items() if value not in ("", 0, False, {}) and name != "name"
    )
    return textwrap.fill(f"Scenario: {text}.", PAGE_WIDTH, break_on_hyphens=False)


def errors(points: Sequence[PointResult]) -> str:
    """Return a line for each point with errors; empty: there were none."""
    lines = []
    for point in points:
        found: dict[str, int] = {}
        for run in point.runs:
            for name, count in run.errors.items():
                found[name] = found.get(name, 0) + count
        if found:
            counted = ", ".join(f"{name}: {count}" for name, count in sorted(found.items()))
            lines.append(f"- {point.name or 'all runs'}: {counted}")
    return "\n".join(lines)


def page(result: Result, plots: Sequence[str] = ()) -> str:
    """Return the Markdown page of a result. `plots`: file names of its pictures."""
    runs = max(len(point.runs) for point in result.points)
    parts = [
        f"# {result.name}",
        origin(result),
        keys(result.points),
        f"Medians of {runs} run(s), least and largest in brackets.",
    ]
    parts.append(figures(result.points))
    if found := errors(result.points):
        parts.append(f"Errors, by response code or kind:\n\n{found}")
    parts += [f"![{name}]({name})" for name in plots]
    return "\n\n".join(parts) + "\n"


def comparison(changes: Sequence[Change], differences: Sequence[str]) -> str:
    """Return what a comparison found as Markdown: first what differs besides the software, then the figures."""
    rows = (
        (
            change.point or "-",
            change.metric,
            number(change.before),
            number(change.after),
            f"{change.ratio:.3f}",
            f"{change.low:.3f} to {change.high:.3f}" if change.low else "unknown",
            change.verdict,
        )
        for change in changes
    )
    lines = [f"- {line}" for line in differences]
    found = table(("point", "figure", "before", "after", "ratio", "95 % interval", "verdict"), rows)
    return "\n".join([*lines, "", found] if lines else [found])
