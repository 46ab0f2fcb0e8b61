"""`python -m bench.neighbours`: rocketpy, NATS JetStream and Kafka under the same load, in turn, on this machine.

The load comes from the Python client of each system, as `rocketpy bench run --generator client` makes it: the shipped
scenarios `latency`, at a rate that each client can keep, and `throughput`. Each run has a server of its own with an
empty store on loopback. `make bench-neighbours` installs the servers and the clients before.
"""

from __future__ import annotations

import os
import statistics
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy import __version__
from rocketpy.bench import report, runner, scenario
from rocketpy.bench.cluster import Access
from rocketpy.bench.proc import TICKS_PER_S
from rocketpy.bench.result import PointResult, Run
from rocketpy.bench.runner import ROCKETMQ, Plan
from rocketpy.bench.scenario import Point
from rocketpy.errors import RocketError

from .report import page_head

SYSTEMS = {ROCKETMQ: "rocketpy", "nats": "NATS JetStream", "kafka": "Kafka"}  # target of `rocketpy bench`, and its name
SCENARIOS = ("latency", "throughput")
WARM_UP_MINUTES = 0.2  # a JVM has to compile first
OTHERS_MAX = 0.2  # cores of other programs above which figures rank no system
ACKNOWLEDGES = {  # what is done when a send is acknowledged, and the first sync after that; with default settings
    ROCKETMQ: ("the record is in the mapped CommitLog, in the page cache", "every 500 ms (`flushIntervalCommitLog`)"),
    "nats": ("the record is written to the file of the stream, in the page cache", "every 2 minutes (`sync_interval`)"),
    "kafka": (
        "the record is written to the log of its only replica (`acks=all`), in the page cache",
        "when the segment is full (`log.flush.interval.messages` unset)",
    ),
}
LIMITS = """- No system syncs a message before it acknowledges: a loss of power can take acknowledged messages of each.
- One node, no replica, no TLS, no accounts, one size of messages. Clusters may compare otherwise.
- The clients are Python, in one process that shares the cores with the server. Where `generator_cores` is near 1, the
  client is the limit: `messages_per_s` then compares clients. `broker_cpu_us`, processor time of the server for each
  message, compares servers.
- aiokafka sends messages that wait together as one batch; rocketpy's client and nats-py make a request of each.
- Partitions are queues in rocketpy, subjects of one stream in NATS, and partitions in Kafka.
- rocketpy's and Kafka's consumers commit offsets; NATS's consumers acknowledge nothing.
- `broker_pss_mib` has the heap of Kafka's start script, 1 GiB, as far as the JVM has touched it; no mapped files of
  stores."""


@attrs.define
class Measured:
    """The runs of a scenario."""

    point: Point
    runs: dict[str, list[Run]] = attrs.field(factory=dict)  # by target

    @property
    def columns(self) -> list[PointResult]:
        """Return the runs of each system as a column of a table."""
        keys = self.point.scenario.as_keys()
        return [PointResult(name=SYSTEMS[target], scenario=keys, runs=runs) for target, runs in self.runs.items()]


@attrs.define
class Found:
    """All that was measured, and what the servers said of themselves."""

    measured: list[Measured]
    about: dict[str, dict[str, Any]] = attrs.field(factory=dict)  # by target
    load_average: float = attrs.field(factory=lambda: os.getloadavg()[0])  # before the first run
    others: list[float] = attrs.field(factory=list)  # cores that other programs used, for each run

    @property
    def has_errors(self) -> bool:
        return any(run.errors for one in self.measured for runs in one.runs.values() for run in runs)


def points(rate: float, minutes: float | None, *, is_quick: bool) -> list[Point]:
    """Return the scenarios with another rate of the open loop, the time of each, and the warm-up of a JVM."""
    found = []
    for name in SCENARIOS:
        (point,) = scenario.read(name)
        if point.scenario.producer_rate:
            point = scenario.changed(point, {"producer_rate": rate})
        if is_quick:
            (point,) = scenario.quick([point])
        else:
            times = {"warmup_duration_minutes": WARM_UP_MINUTES}
            point = scenario.changed(point, times | ({"test_duration_minutes": minutes} if minutes else {}))
        found.append(point)
    return found


def busy_s(stat: str) -> float:
    """Return the processor seconds of all programs since the start of the machine, and those that its host took.

    Args:
        stat: the text of /proc/stat.
    """
    user, nice, system, _, _, *interrupts = (int(word) for word in stat.split()[1:9])
    return (user + nice + system + sum(interrupts)) / TICKS_PER_S


def others_s() -> float:
    """Return the processor seconds of all but this process and the servers that it has started and stopped."""
    return busy_s(Path("/proc/stat").read_text()) - sum(os.times()[:4])


def take_turns(chosen: Sequence[Point], targets: Sequence[str], runs: int) -> Found:
    """Run each scenario on each system, in turn; each turn begins with another system."""
    found = Found([Measured(point, {target: [] for target in targets}) for point in chosen])
    for turn in range(runs):
        first = turn % len(targets)
        for one in found.measured:
            for target in [*targets[first:], *targets[:first]]:
                begun, before = time.monotonic(), others_s()
                about, run = run_once(one.point, target)
                others = (others_s() - before) / (time.monotonic() - begun)
                found.about[target] = about
                found.others.append(max(0.0, others))
                one.runs[target].append(run)
                click.echo(
                    f"[{turn + 1}/{runs}] {one.point.scenario.name}, {SYSTEMS[target]}: "
                    f"{report.number(run.figures['messages_per_s'])} messages/s, errors {run.errors or 'none'}, "
                    f"other programs {others:.2f} cores"
                )
    return found


def run_once(point: Point, target: str) -> tuple[dict[str, Any], Run]:
    """Return what a server of its own says of itself, and one run on it."""
    plan = Plan(access=Access(""), runs=1, generator="client", target=target)
    result = runner.run_all([point], plan, lambda _: say_nothing)
    return result.target, result.points[0].runs[0]


def say_nothing(phase: str, at_s: float, messages: int, errors: int) -> None:
    """Take the progress of a run, which has a line at its end."""


def systems_table(about: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what was measured: versions, settings, and what an acknowledgement says."""
    rows = []
    for target, (done, synced) in ACKNOWLEDGES.items():
        if target not in about:
            continue
        settings = {"client": f"rocketpy {__version__}"} | dict(about[target]["settings"])
        client = str(settings.pop("client"))
        words = ", ".join(f"`{name}={value}`" for name, value in settings.items())
        version = __version__ if target == ROCKETMQ else about[target]["version"]
        rows.append((SYSTEMS[target], version, client, words, done, synced))
    headings = ("system", "version", "Python client", "settings", "an acknowledged send says", "synced")
    return report.table(headings, rows)


def section(one: Measured) -> str:
    """Return what the page says of a scenario."""
    parts = [f"## {one.point.scenario.name}", report.keys(one.columns)]
    shipped = scenario.read(one.point.scenario.name)[0].scenario.producer_rate
    if shipped and shipped != one.point.scenario.producer_rate:
        parts[-1] += (
            f"\nThe shipped file asks for {shipped:,.0f} messages a second; here it is one that each client keeps."
        )
    parts.append(report.figures(one.columns))
    if errors := report.errors(one.columns):
        parts.append(f"Errors, by kind:\n\n{errors}")
    return "\n\n".join(parts)


def page(found: Found, runs: int) -> str:
    """Return the page of bench/results."""
    others, most = statistics.fmean(found.others), max(found.others)
    text = (
        "In turn, each run with a server of its own, an empty store, and connections over loopback. Medians of "
        f"{runs} run(s), least and largest in brackets; latencies in microseconds, from when a send was due. Load "
        f"average before the first run: {found.load_average:.1f}. During the runs other programs of the machine and "
        f"its host took {others:.2f} of {os.cpu_count()} cores, {most:.2f} in the run that they disturbed most."
    )
    if others > OTHERS_MAX:
        text += " These other programs were too many: the figures show that the load runs, and rank no system."
    head = page_head("rocketpy, NATS JetStream and Kafka", "bench.neighbours")
    parts = [
        f"{head}\n{textwrap.fill(text, report.PAGE_WIDTH)}",
        systems_table(found.about),
        *(section(one) for one in found.measured),
        f"## Limits\n\n{LIMITS}",
    ]
    return "\n\n".join(parts) + "\n"


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SYSTEMS)), help="These systems alone; may be repeated.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Runs of each scenario and system.")
@click.option("--minutes", type=click.FloatRange(0.01), help="Measured in each run.  [default: of the scenario files]")
@click.option("--rate", type=click.FloatRange(1), default=1000, show_default=True, help="Messages a second of latency.")
@click.option("--quick", is_flag=True, help="One small run of each: does it work here?")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
def main(
    only: tuple[str, ...], runs: int, minutes: float | None, rate: float, docs: Path | None, *, quick: bool
) -> None:
    """Measure rocketpy and its neighbours in turn."""
    runs = 1 if quick else runs
    try:
        found = take_turns(points(rate, minutes, is_quick=quick), only or tuple(SYSTEMS), runs)
    except RocketError as error:
        raise click.ClickException(str(error)) from error
    for one in found.measured:
        click.echo(f"\n{section(one)}")
    if docs is not None:
        docs.write_text(page(found, runs), encoding="utf-8")
    raise SystemExit(1 if found.has_errors else 0)


if __name__ == "__main__":
    main()
