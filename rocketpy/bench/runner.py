"""Runs a scenario file: every point as often as asked for, on a cluster or on brokers of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from . import result
from .cluster import VERSION, Access, Cluster, find
from .own_broker import OwnBroker, own_broker
from .result import PointResult, Result, Run
from .scenario import Point, Scenario

Watch = Callable[[str, float, int, int], None]  # phase, seconds so far, messages so far, errors so far


class Generator(Protocol):
    """Makes the load of a scenario."""

    name: str

    def run(self, scenario: Scenario) -> Run: ...


@attrs.frozen(kw_only=True)
class Plan:
    """How a scenario is run, independent of what it asks for.

    `access.name_servers` is empty where rocketpy starts brokers of its own, below `store`.
    """

    access: Access
    runs: int = 3
    generator: str = "native"
    cluster: str | None = None
    store: Path | None = None


@attrs.frozen
class Place:
    """The cluster of one run, and the broker if it is our own."""

    cluster: Cluster
    broker: OwnBroker | None

    def described(self) -> dict[str, Any]:
        settings = {name: value for name, value in self.cluster.settings.items() if name != VERSION}
        version = self.cluster.settings.get(VERSION, "")
        addresses = dict(self.cluster.masters)
        own = self.broker is not None
        return {"system": "rocketmq", "version": version, "masters": addresses, "is_own": own, "settings": settings}


@contextlib.contextmanager
def place(plan: Plan, scenario: Scenario) -> Iterator[Place]:
    """Find the cluster, or start a broker for this run."""
    if plan.access.name_servers:
        yield Place(find(plan.access, plan.cluster), None)
        return
    with own_broker(scenario.broker, plan.store, plan.access) as (broker, cluster):
        yield Place(cluster, broker)


def make_generator(plan: Plan, where: Place, watch: Watch) -> Generator:
    from .native import NativeGenerator

    return NativeGenerator(where.cluster, watch, where.broker)


def run_point(plan: Plan, point: Point, watch: Watch) -> tuple[Run, dict[str, Any]]:
    """Return one run of a point, and the description of what it ran against."""
    with place(plan, point.scenario) as where:
        return make_generator(plan, where, watch).run(point.scenario), where.described()


def run_all(points: Sequence[Point], plan: Plan, watch: Callable[[str], Watch]) -> Result:
    """Run every point `plan.runs` times. The runs of a point lie far apart: a slow minute of the machine meets one run
    of each point, and not all runs of one.

    Args:
        watch: given a label, returns the place to report progress to.
    """
    date, machine = result.now(), result.machine()
    runs: list[list[Run]] = [[] for _ in points]
    target: dict[str, Any] = {}
    for turn in range(plan.runs):
        for index, point in enumerate(points):
            label = " ".join(filter(None, (f"[{turn + 1}/{plan.runs}]", point.scenario.name, point.name)))
            run, target = run_point(plan, point, watch(label))
            runs[index].append(run)
    found = [
        PointResult(name=point.name, scenario=point.scenario.as_keys(), runs=done)
        for point, done in zip(points, runs, strict=True)
    ]
    return Result(
        name=points[0].scenario.name,
        date=date,
        target=target,
        generator=plan.generator,
        rocketpy=result.software(),
        machine=machine,
        points=found,
    )
