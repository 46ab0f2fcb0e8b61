"""Plots of a result, SVG and PNG: rate over time, latency by percentile, and latency over the load of a sweep.

matplotlib comes with the extra `bench` and is imported here alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketpy.errors import ConfigError

from .result import PointResult, Result

FORMATS = ("svg", "png")
SIZE_INCHES = (8, 4.5)
PERCENTILES = (0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100)
NEEDED = 'plots need matplotlib: pip install "rocketpy-mq[bench]"'


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(NEEDED) from error
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "rocketpy"  # the same result gives the same file
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    from matplotlib import pyplot

    return pyplot


def write(result: Result, directory: Path, stem: str) -> list[str]:
    """Write all plots of a result; returns the names of the SVG files.

    Raises:
        ConfigError: matplotlib is missing.
    """
    pyplot = _pyplot()
    drawings: dict[str, Callable[[Any, Result], bool]] = {
        "rate": _rate,
        "latency": _latency,
        "sweep": _sweep,
    }
    written = []
    for name, draw in drawings.items():
        figure, axes = pyplot.subplots(figsize=SIZE_INCHES, layout="constrained")
        if draw(axes, result):
            axes.grid(visible=True, alpha=0.3)
            axes.set_title(f"{result.name}: {result.target['system']} {result.target['version']}, {result.date[:10]}")
            for suffix in FORMATS:
                metadata = {"Date": None} if suffix == "svg" else None
                figure.savefig(directory / f"{stem}-{name}.{suffix}", metadata=metadata)
            written.append(f"{stem}-{name}.svg")
        pyplot.close(figure)
    return written


def _label(point: PointResult, number: int) -> str:
    return f"{point.name} run {number + 1}".strip()


def _rate(axes: Any, result: Result) -> bool:
    for point in result.points:
        for number, run in enumerate(point.runs):
            times = [row["at_s"] for row in run.intervals]
            axes.plot(times, [row["messages_per_s"] for row in run.intervals], label=_label(point, number))
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages/s")
    axes.set_ylim(bottom=0)
    return _legend(axes)


def _latency(axes: Any, result: Result) -> bool:
    """Plot latency by percentile, of the first run of each point, as HdrHistogram's viewers draw it."""
    from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # hdrhistogram ships no types

    for point in result.points:
        for kind, encoded in point.runs[0].histograms.items():
            histogram = HdrHistogram.decode(encoded)
            total = histogram.get_total_count()
            shown = [percent for percent in PERCENTILES if percent == 100 or total * (100 - percent) >= 100]
            places = [-math.log10(1 - min(percent / 100, 1 - 1 / max(total, 10))) for percent in shown]
            values = [histogram.get_value_at_percentile(percent) / 1e6 for percent in shown]
            axes.plot(places, values, marker=".", label=f"{kind} {point.name}".strip())
    axes.set_xticks(range(6), ["0", "90", "99", "99.9", "99.99", "99.999"])
    axes.set_xlabel("percentile")
    axes.set_ylabel("latency, ms")
    axes.set_yscale("log")
    return _legend(axes)


def _sweep(axes: Any, result: Result) -> bool:
    """Plot p99 over the rate: where it rises is what the system can take."""
    if len(result.points) < 2:
        return False
    for metric in ("send_p99_us", "end_to_end_p99_us", "read_p99_us"):
        pairs = [
            (rate, latency / 1000)
            for point in result.points
            if (rate := point.median("messages_per_s") or point.median("reads_per_s"))
            and (latency := point.median(metric)) is not None
        ]
        if len(pairs) > 1:
            axes.plot(*zip(*sorted(pairs), strict=True), marker="o", label=metric.removesuffix("_us"))
    axes.set_xlabel("messages/s")
    axes.set_ylabel("p99, ms")
    axes.set_yscale("log")
    return _legend(axes)


def _legend(axes: Any) -> bool:
    """Draw the legend; returns False if there is nothing to see."""
    if not axes.lines:
        return False
    axes.legend(fontsize="small")
    return True
