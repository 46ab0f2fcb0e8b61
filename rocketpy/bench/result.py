"""Results: a JSON file per scenario with everything that it takes to believe the figures, or to measure them again.

schema       version of this layout
name, date   of the scenario; start of the run
target       system, version, addresses, and the settings it had
generator    what made the load: `native` (the C driver) or `client` (the Python client of the target)
rocketpy     version and commit of the benchmark
machine      processor, cores, memory, kernel, Python, load average before the run
points       of the sweep: name, scenario with all its keys, and its runs
runs         figures, errors, one row per second (`intervals`), HDR histograms in nanoseconds (`histograms`:
             compressed V2, base64, as the viewers of HdrHistogram read them)
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from rocketpy import __version__
from rocketpy.atomic_file import write_atomically
from rocketpy.errors import ConfigError
from rocketpy.file_systems import file_system_of

SCHEMA = 1
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "p9999": 99.99, "max": 100}
LATENCY_MAX_NS = 60 * 1_000_000_000  # of histograms
ERRORS = "errors_per_s"  # of a comparison: requests that failed
Figures = dict[str, float]
Tick = Callable[[str, float, int, int], None]  # phase, seconds so far, messages so far, errors so far


@attrs.frozen(kw_only=True)
class Run:
    """One run of one point."""

    seconds: float
    figures: Figures
    errors: dict[str, int]
    intervals: list[Figures]
    histograms: dict[str, str]


@attrs.frozen(kw_only=True)
class PointResult:
    """All runs of one point."""

    name: str
    scenario: dict[str, Any]
    runs: list[Run]

    def values(self, metric: str) -> list[float]:
        """Return the figure of each run that has it."""
        return [run.figures[metric] for run in self.runs if metric in run.figures]

    def median(self, metric: str) -> float | None:
        values = self.values(metric)
        return statistics.median(values) if values else None

    @property
    def metrics(self) -> list[str]:
        """List the names of the figures, in the order in which the runs have them."""
        return list(dict.fromkeys(name for run in self.runs for name in run.figures))


@attrs.frozen(kw_only=True)
class Result:
    """All points of one scenario file."""

    name: str
    date: str
    target: dict[str, Any]
    generator: str
    rocketpy: dict[str, str]
    machine: dict[str, Any]
    points: list[PointResult]

    def write(self, path: Path) -> None:
        """Replace the file `path`."""
        text = json.dumps({"schema": SCHEMA, **attrs.asdict(self)}, indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode(), keep_old=False)


def check_place(path: Path) -> None:
    """Raise ConfigError: no result can be written to `path`. Before a run, which may take hours."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written: {path.parent} is no directory that this user may write to")


def read(path: Path) -> Result:
    """Return the result in a file. Raises: ConfigError: it holds none that this version can read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: no result file that can be read ({error})") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema", "none") if isinstance(content, dict) else "none"
        raise ConfigError(f"{path}: its schema is {found}, this version of rocketpy bench reads {SCHEMA}")
    try:
        points = [
            PointResult(**{**point, "runs": [Run(**run) for run in point["runs"]]}) for point in content.pop("points")
        ]
        del content["schema"]
        return Result(points=points, **content)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path}: the result file is incomplete: {error}") from error


def latency_figures(histogram: Any, prefix: str, percentiles: Sequence[str]) -> Figures:
    """Return percentiles of an HdrHistogram of nanoseconds, in microseconds, by metric; none of an empty one."""
    if not histogram.get_total_count():
        return {}
    return {
        f"{prefix}_{name}_us": round(histogram.get_value_at_percentile(PERCENTILES[name]) / 1000, 1)
        for name in percentiles
    }


def is_better_high(metric: str) -> bool:
    """Return True if more of it is better: of rates, not of latencies, memory and CPU."""
    return metric.endswith("_per_s") and metric != ERRORS


def first_line(command: list[str]) -> str:
    """Return the first line that a command prints; "" if it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter((done.stdout or done.stderr).splitlines()), "")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, with `-dirty` if more than pages and results of measurements differs from it;
    empty for a directory that is none, as an installed wheel."""
    if not (root / ".git").exists():
        return ""
    git, code = ["git", "-C", str(root)], (".", ":!bench/results", ":!docs", ":!*.md")
    changed = first_line([*git, "status", "--porcelain", "--untracked-files=no", "--", *code])
    return first_line([*git, "describe", "--always"]) + ("-dirty" if changed else "")


def software() -> dict[str, str]:
    """Return version and commit."""
    return {"version": __version__, "commit": commit_of(Path(__file__).resolve().parents[2])}


def machine(store: Path | None = None) -> dict[str, Any]:
    """Return what figures depend on beside the software that is measured.

    Args:
        store: where brokers of our own have their stores; None: in the directory for temporary files.
    """
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "file_system": file_system_of(store or Path(tempfile.gettempdir())),
        "max_map_count": int(Path("/proc/sys/vm/max_map_count").read_text()),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }
