"""Tells what changed between two results from what is noise.

The runs of a point are its samples: seconds of one run resemble each other more than those of another run do. Of the
logarithms of their figures the 95 % interval of the difference of two means is taken (Welch): the machine's own
variation is in it. A figure has changed if that interval leaves out "no change", and the change is at least as large as
a threshold below which nobody would care.

A result with one run says nothing about the variation between runs. Its seconds are cut into blocks instead, and every
verdict says so.

Zero has no logarithm: a rate that is zero in all runs of one side alone, or errors that are, has changed as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import attrs

from rocketpy.errors import ConfigError

from .result import ERRORS, PointResult, Result, is_better_high

# Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1 on. Above 15 the last one counts: an interval is
# then up to 9 % too wide.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
BLOCKS = 5  # of a single run
THRESHOLD = 0.05
VERDICTS = ("better", "worse", "same", "unclear")
COMPARED = ("_per_s", "_us", "_s", "_mib")
SETTING_NAMES = ("cpu", "cores", "memory_gib", "kernel")


@attrs.frozen
class Change:
    """A figure of a point in two results: medians, their ratio with its 95 % interval, and the verdict."""

    point: str
    metric: str
    before: float
    after: float
    low: float  # of the ratio
    high: float
    verdict: str  # better, worse, same, unclear

    @property
    def ratio(self) -> float:
        return self.after / self.before if self.before else math.inf


def samples(point: PointResult, metric: str) -> list[float]:
    """Return the figure of each run, or of each block of seconds if there is only one run."""
    if metric == ERRORS:
        return [sum(run.errors.values()) / run.seconds for run in point.runs]
    values = point.values(metric)
    if len(values) != 1:
        return values
    rows = [row[metric] for row in point.runs[0].intervals if row.get(metric)]
    size = len(rows) // BLOCKS
    if not size:
        return values
    return [statistics.median(rows[at * size : (at + 1) * size]) for at in range(BLOCKS)]


def interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of two geometric means; (0, inf) if a side has a single sample."""
    logs = [[math.log(value) for value in side] for side in (before, after)]
    if min(len(side) for side in logs) < 2:
        return 0.0, math.inf
    parts = [statistics.variance(side) / len(side) for side in logs]
    difference, variance = statistics.fmean(logs[1]) - statistics.fmean(logs[0]), sum(parts)
    if variance == 0:
        return math.exp(difference), math.exp(difference)
    freedom = variance**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, logs, strict=True))
    quantile = T_95[min(int(freedom), len(T_95)) - 1]
    reach = quantile * math.sqrt(variance)
    return math.exp(difference - reach), math.exp(difference + reach)


def verdict(metric: str, ratio: float, low: float, high: float, threshold: float) -> str:
    """Return `better` or `worse` for a change beyond noise and threshold, `same` if the interval shows that any change
    is below the threshold, else `unclear`."""
    rises = low > 1 and ratio >= 1 + threshold
    falls = high < 1 and ratio <= 1 / (1 + threshold)
    if rises or falls:
        return _moved(metric, rises)
    if low > 1 or high < 1 or (low > 1 / (1 + threshold) and high < 1 + threshold):
        return "same"
    return "unclear"


def verdict_of_zeros(metric: str, before: Sequence[float], after: Sequence[float]) -> str:
    """Return the verdict where samples are zero: `unclear`, unless those of one side all are, and none of the other."""
    rises, falls = max(before) <= 0 < min(after), max(after) <= 0 < min(before)
    return _moved(metric, rises) if rises or falls else "unclear"


def _moved(metric: str, rises: bool) -> str:
    return "better" if rises == is_better_high(metric) else "worse"


def changes(before: Result, after: Result, threshold: float = THRESHOLD) -> Iterator[Change]:
    """Yield the figures that both results have, point by point.

    Raises:
        ConfigError: they have no point in common, or a point was measured with other keys.
    """
    points = {point.name: point for point in before.points}
    common = [(points[point.name], point) for point in after.points if point.name in points]
    if not common:
        raise ConfigError(f"the results of {before.name} and {after.name} have no point in common")
    for old, new in common:
        _check_same_scenario(old, new)
        for metric in (*new.metrics, ERRORS):
            first, second = samples(old, metric), samples(new, metric)
            if metric.endswith(COMPARED) and first and second:
                yield from _change(new.name, metric, first, second, threshold)


def _change(
    point: str, metric: str, first: Sequence[float], second: Sequence[float], threshold: float
) -> Iterator[Change]:
    before, after = statistics.median(first), statistics.median(second)
    if min(*first, *second) > 0:
        low, high = interval(first, second)
        yield Change(point, metric, before, after, low, high, verdict(metric, after / before, low, high, threshold))
    elif metric.endswith("_per_s") and max(*first, *second) > 0:  # a latency of zero is none
        yield Change(point, metric, before, after, 0.0, math.inf, verdict_of_zeros(metric, first, second))


def lost_points(before: Result, after: Result) -> list[str]:
    """List the points that the second result lacks."""
    found = {point.name for point in after.points}
    return [point.name for point in before.points if point.name not in found]


def _check_same_scenario(old: PointResult, new: PointResult) -> None:
    ignored = {"name", "testDurationMinutes", "warmupDurationMinutes", "broker"}
    names = old.scenario.keys() | new.scenario.keys()
    differ = sorted(name for name in names - ignored if old.scenario.get(name) != new.scenario.get(name))
    if differ:
        raise ConfigError(
            f"point {new.name or new.scenario.get('name')}: the loads differ in {', '.join(differ)}; "
            "run the same scenario twice"
        )


def differences(before: Result, after: Result) -> list[str]:
    """Return the circumstances in which the results differ, as lines: machine, generator, target, single runs."""
    found = [
        f"{name}: {before.machine.get(name)} before, {after.machine.get(name)} after"
        for name in SETTING_NAMES
        if before.machine.get(name) != after.machine.get(name)
    ]
    if before.generator != after.generator:
        found.append(f"generator: {before.generator} before, {after.generator} after")
    for name in ("system", "version", "settings"):
        if before.target.get(name) != after.target.get(name):
            found.append(f"target {name}: {before.target.get(name)} before, {after.target.get(name)} after")
    brokers = [[point.scenario.get("broker") for point in one.points] for one in (before, after)]
    if brokers[0] != brokers[1]:
        found.append(f"broker settings: {brokers[0]} before, {brokers[1]} after")
    found += [f"point {name}: not measured after" for name in lost_points(before, after)]
    if any(len(point.runs) == 1 for one in (before, after) for point in one.points):
        found.append("a point with one run: the variation between runs is unknown, use --runs 3 or more")
    return found
