"""Plots of what jobs measured over time, as PNG files. Nothing is shown, so no display is needed.

Short: it loads matplotlib, which most jobs do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from matplotlib.figure import Figure

from rocketpy.errors import ConfigError

WIDTH_INCHES, PANEL_INCHES, DPI = 8.0, 2.6, 100
POINT_MAX = 60  # lines with fewer points show each of them


@attrs.frozen
class Panel:
    """One diagram: lines by name over a common axis. `unit` is of the values, which begin at 0."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def draw(path: Path, panels: Sequence[Panel], *, axis: str = "seconds") -> Path:
    """Write the panels below each other into one file, which is replaced.

    Raises:
        ConfigError: the file cannot be written.
    """
    figure = Figure(figsize=(WIDTH_INCHES, PANEL_INCHES * len(panels)), layout="constrained")
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(len(panels), 1, number)
        axes.set_title(panel.title, loc="left", fontsize=10)
        axes.set_ylabel(panel.unit)
        for name, points in panel.lines.items():
            marker = "." if len(points) <= POINT_MAX else ""
            axes.plot([x for x, _ in points], [y for _, y in points], label=name, marker=marker, linewidth=1.2)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend(fontsize=8)
        if number == len(panels):
            axes.set_xlabel(axis)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise ConfigError(f"cannot write the plot {path}: {error}") from error
    return path
