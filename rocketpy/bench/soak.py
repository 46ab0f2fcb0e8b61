"""A soak: a steady load for a long time, while memory, descriptors, processes and rate of a broker must stay.

Memory and descriptors are sampled every few seconds; a line is fitted to the samples after the first fifth, in which
tables fill. A resource grows if its line rises faster than its limit, and by more than the noise of one sample.
Processes must stay from the first sample on. A rate falls if its last fifth is far below its second fifth.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import attrs

from . import proc, result
from .cluster import Access
from .own_broker import OwnBroker
from .result import Figures, Result, Tick
from .runner import Plan, place, result_of
from .scenario import Point

SAMPLE_EVERY_S = 5.0
WARM_UP_SHARE = 0.2
SAMPLES_MIN = 5
RATES = ("messages_per_s", "consumed_per_s")
RATE_KEPT_MIN = 0.8  # in the last fifth, of the rate in the second one; a pause of a second or two is no fall


@attrs.frozen
class Limit:
    """A resource may grow by `per_hour`; less than `noise` in the whole run is no growth."""

    per_hour: float
    noise: float

    def slope_max(self, hours: float) -> float:
        """Return the steepest slope, per hour, that is no growth in a run of so many hours."""
        return max(self.per_hour, self.noise / hours)


LIMITS = {"pss_mib": Limit(per_hour=10.0, noise=3.0), "descriptors": Limit(per_hour=10.0, noise=5.0)}


@attrs.frozen
class Sample:
    """The resources of a broker at a time."""

    at_s: float
    pss_mib: float
    descriptors: int
    pids: frozenset[int]


def descriptors(pid: int) -> int:
    """Return the number of open files of a process; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


def take(broker: OwnBroker, at_s: float) -> Sample:
    pids = frozenset(proc.tree(broker.process.pid))
    return Sample(at_s, broker.pss_mib(), sum(map(descriptors, pids)), pids)


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    return [one for one in samples if one.at_s >= samples[-1].at_s * WARM_UP_SHARE]


def slope_per_hour(samples: Sequence[Sample], resource: str) -> float:
    """Return the slope of the line through the samples (least squares)."""
    times, values = [one.at_s for one in samples], [float(getattr(one, resource)) for one in samples]
    return statistics.linear_regression(times, values).slope * 3600


def hours_of(samples: Sequence[Sample]) -> float:
    return (samples[-1].at_s - samples[0].at_s) / 3600


def faults(samples: Sequence[Sample]) -> list[str]:
    """Return what did not stay as it was, as lines; none: all did."""
    found = []
    counted = after_warm_up(samples) if samples else []
    if len(counted) < SAMPLES_MIN:
        return [f"{len(counted)} samples are too few to see a slope: let it run longer"]
    for resource, limit in LIMITS.items():
        slope, allowed = slope_per_hour(counted, resource), limit.slope_max(hours_of(counted))
        if slope > allowed:
            found.append(f"{resource} grows by {slope:.1f} an hour, allowed are {allowed:g}")
    gone = replaced(samples)
    if gone:
        found.append(f"{gone} processes of the broker ended: its log says why they were replaced")
    return found


def kept_rates(rows: Sequence[Figures]) -> dict[str, float]:
    """Return each rate of the last fifth of a run as a share of that of its second fifth.

    Args:
        rows: the intervals of the run; a rate that is 0 in the second fifth is left out.
    """
    end_s = rows[-1]["at_s"] if rows else 0.0
    early = [row for row in rows if end_s * WARM_UP_SHARE < row["at_s"] <= end_s * 2 * WARM_UP_SHARE]
    late = [row for row in rows if row["at_s"] > end_s * (1 - WARM_UP_SHARE)]
    if not early:
        return {}
    before, after = ({name: statistics.fmean(row[name] for row in part) for name in RATES} for part in (early, late))
    return {name: after[name] / before[name] for name in RATES if before[name]}


def fallen_rates(rows: Sequence[Figures]) -> list[str]:
    """Return a line for each rate that fell in the course of a run; none: all were kept."""
    return [
        f"{name} of the last fifth is {share:.1%} of that of the second fifth, allowed are {RATE_KEPT_MIN:.0%}"
        for name, share in kept_rates(rows).items()
        if share < RATE_KEPT_MIN
    ]


def replaced(samples: Sequence[Sample]) -> int:
    """Return how many processes of the first sample had ended at the last one."""
    return len(samples[0].pids - samples[-1].pids)


def figures(samples: Sequence[Sample]) -> Figures:
    """Return first, last and slope of each resource for a result."""
    counted = after_warm_up(samples) if samples else []
    if len(counted) < SAMPLES_MIN:
        return {}
    found: Figures = {"processes_replaced": replaced(samples)}
    for resource, limit in LIMITS.items():
        found[f"{resource}_per_hour_max"] = round(limit.slope_max(hours_of(counted)), 2)
        found[f"{resource}_first"] = getattr(counted[0], resource)
        found[f"{resource}_last"] = getattr(counted[-1], resource)
        found[f"{resource}_per_hour"] = round(slope_per_hour(counted, resource), 2)
    return found


def summary(samples: Sequence[Sample]) -> list[str]:
    """Return a line for each resource: first, last, slope."""
    counted = after_warm_up(samples)
    return [
        f"{resource}: {getattr(counted[0], resource):g} to {getattr(counted[-1], resource):g}, "
        f"{slope_per_hour(counted, resource):+.1f} an hour"
        for resource in LIMITS
    ]


def soak(point: Point, store: Path | None, tick: Tick) -> tuple[Result, list[Sample]]:
    """Run a scenario on a broker of its own; returns the result and the samples.

    Raises:
        BenchFailed: the load could not go on.
    """
    samples: list[Sample] = []
    brokers: list[OwnBroker] = []

    def watch(phase: str, at_s: float, messages: int, errors: int) -> None:
        if phase == "measure" and (not samples or at_s >= samples[-1].at_s + SAMPLE_EVERY_S):
            samples.append(take(brokers[0], at_s))
        tick(phase, at_s, messages, errors)

    plan, begun = Plan(access=Access(""), store=store), (result.now(), result.machine(store))
    with place(plan, point.scenario, watch) as (generator, about):
        assert generator.broker is not None  # the plan names no cluster
        brokers.append(generator.broker)
        run = generator.run(point.scenario)
        run.figures.update(figures(samples))
        return result_of([point], [[run]], begun, about, plan.generator), samples
