"""Runs a scenario file: every point as often as asked for, on a system that runs or on servers of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import attrs

from . import result
from .cluster import Access, BenchFailed, find
from .neighbours import SYSTEMS
from .own_broker import OwnBroker, own_broker
from .result import PointResult, Result, Run, Tick
from .scenario import Point, Scenario

ROCKETMQ = "rocketmq"


class Generator(Protocol):
    """Makes the load of a scenario."""

    @property
    def broker(self) -> OwnBroker | None: ...

    def run(self, scenario: Scenario) -> Run: ...


@attrs.frozen(kw_only=True)
class Plan:
    """The options of a run, independent of its scenario.

    An address (for RocketMQ `access.name_servers`) that is empty asks for servers of our own, below `store`.
    """

    access: Access
    runs: int = 3
    generator: str = "native"
    cluster: str | None = None
    store: Path | None = None
    target: str = ROCKETMQ
    address: str = ""


@contextlib.contextmanager
def place(plan: Plan, scenario: Scenario, tick: Tick) -> Iterator[tuple[Generator, dict[str, Any]]]:
    """Find the system, or start one for this run; yields the generator and the system's description."""
    if plan.target != ROCKETMQ:
        if keys := scenario.needs_own_broker:
            raise BenchFailed(f"the target {plan.target} has no {', '.join(keys)}: leave them out of the scenario")
        system = SYSTEMS[plan.target]
        with system.open(plan.address, plan.store) as (connect, broker):
            from .clients.generator import ClientGenerator, described

            about = asyncio.run(described(connect)) | {"is_own": broker is not None}
            if broker is not None:
                about["version"] = about["version"] or system.version()
                about["settings"] |= system.settings
            yield ClientGenerator(connect, tick, broker), about
        return
    with contextlib.ExitStack() as stack:
        if plan.access.name_servers:
            broker, cluster = None, find(plan.access, plan.cluster)
        else:
            broker, cluster = stack.enter_context(own_broker(scenario, plan.store, plan.access))
        about = cluster.described() | {"is_own": broker is not None}
        if plan.generator == "native":
            from .native import NativeGenerator

            yield NativeGenerator(cluster, tick, broker), about
        else:
            from .clients import rocketmq
            from .clients.generator import ClientGenerator

            yield ClientGenerator(lambda: rocketmq.connect(cluster, scenario.pull_batch_size), tick, broker), about


def run_all(
    points: Sequence[Point],
    plan: Plan,
    watch: Callable[[str], Tick],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Result:
    """Run every point `plan.runs` times. The runs of a point lie far apart: a slow minute of the machine meets one run
    of each point, and not all runs of one.

    Args:
        watch: given a label, returns the place to report progress to.
        around: makes the context of each run, entered before its servers start.
    """
    begun = result.now(), result.machine(plan.store)
    runs: list[list[Run]] = [[] for _ in points]
    target: dict[str, Any] = {}
    for turn in range(plan.runs):
        for index, point in enumerate(points):
            label = " ".join(filter(None, (f"[{turn + 1}/{plan.runs}]", point.scenario.name, point.name)))
            with around(), place(plan, point.scenario, watch(label)) as (generator, about):
                runs[index].append(generator.run(point.scenario))
                target = about
    return result_of(points, runs, begun, target, plan.generator)


def result_of(
    points: Sequence[Point],
    runs: Sequence[list[Run]],
    begun: tuple[str, dict[str, Any]],
    target: dict[str, Any],
    generator: str,
) -> Result:
    """Return the result of runs. `begun`: date and machine before the first one."""
    found = [
        PointResult(name=point.name, scenario=point.scenario.as_keys(), runs=done)
        for point, done in zip(points, runs, strict=True)
    ]
    return Result(
        name=points[0].scenario.name,
        date=begun[0],
        target=target,
        generator=generator,
        rocketpy=result.software(),
        machine=begun[1],
        points=found,
    )
