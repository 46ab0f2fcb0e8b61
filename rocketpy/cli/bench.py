"""`rocketpy bench`: run scenario files, compare their results, write their pages.

Exit status: 0 done, 1 it failed or (compare) a figure is worse, 2 wrong arguments.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketpy.admin.connection import security_settings, shared_options, tool_credentials
from rocketpy.processes.boot.serving import exit_status

if TYPE_CHECKING:
    from rocketpy.bench.result import Tick
    from rocketpy.bench.runner import Plan
    from rocketpy.bench.scenario import Point

_RESULT = click.Path(dir_okay=False, path_type=Path)
GENERATORS = ("native", "client")
TARGETS = ("rocketmq", "nats", "kafka")
HISTOGRAMS = "hdrh"  # module of the extra `bench`, which commands that compare or plot do not need


def _status(command: Callable[[], int]) -> int:
    """As `exit_status`; without the extra, the error is one line as well."""
    try:
        return exit_status(command)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != HISTOGRAMS:
            raise
        click.echo('rocketpy: hdrhistogram is not installed: pip install "rocketpy-mq[bench]"', err=True)
        return 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def bench() -> None:
    """Measure a broker: throughput, latency, and what changed.

    \b
    Needs the extra: pip install "rocketpy-mq[bench]", and a C compiler for the generator `native`.
    rocketpy bench run throughput                      a broker of its own, in a temporary store
    rocketpy bench run mine.yaml -n 10.0.0.1:9876      any RocketMQ cluster
    rocketpy bench compare before.json after.json      what changed beyond noise
    """


@bench.command("scenarios")
@click.argument("name", required=False)
def scenarios(name: str | None) -> None:
    """List the scenarios that rocketpy ships, or print the file of one."""

    def run() -> int:
        from rocketpy.bench.scenario import KEYS, shipped
        from rocketpy.errors import ConfigError

        files = shipped()
        if name is not None and name not in files:
            raise ConfigError(f"there is no scenario {name}; shipped are {', '.join(files)}")
        if name is not None:
            click.echo(files[name], nl=False)
            return 0
        for each, text in files.items():
            click.echo(f"{each:<24}{text.partition(chr(10))[0].removeprefix('# ')}")
        click.echo(f"\nKeys: {', '.join(KEYS)}.")
        return 0

    sys.exit(_status(run))


@bench.command("run")
@click.argument("scenario")
@click.option(
    "-n", "--namesrvAddr", "name_servers", default="", help="Name servers of the cluster, host:port;host:port."
)
@click.option("--target", type=click.Choice(TARGETS), default="rocketmq", show_default=True, help="System.")
@click.option("--address", default="", help="Of NATS or Kafka, host:port; without, one is started.")
@click.option("--cluster", help="Cluster, if the name servers know several.")
@shared_options(with_environment=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Runs of each point.")
@click.option("--minutes", type=click.FloatRange(0.01), help="Replaces testDurationMinutes.")
@click.option("--quick", is_flag=True, help="One small run of the last point: does it work here?")
@click.option(
    "--generator", type=click.Choice(GENERATORS), default="native", show_default=True, help="Origin of the load."
)
@click.option(
    "--store",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Disk to measure: directory of stores.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Property of brokers started here; may be repeated."
)
@click.option("-o", "--output", type=_RESULT, help="Result file.  [default: NAME.json]")
@click.option("--plots", is_flag=True, help="Also write a page and plots beside it.")
def run_command(
    scenario: str,
    name_servers: str,
    target: str,
    address: str,
    cluster: str | None,
    runs: int,
    minutes: float | None,
    generator: str,
    store: Path | None,
    settings: tuple[str, ...],
    output: Path | None,
    plots: bool,
    quick: bool,
    **connection: Any,
) -> None:
    """Run SCENARIO, a YAML or TOML file or the name of a shipped one.

    Without -n each run has a broker of its own, with an empty store and default properties (--set, and `broker` in the
    file, change them). With -n the topics of the run are made on that cluster, and deleted after it.

    \b
    rocketpy bench run throughput --set flushDiskType=SYNC_FLUSH
    rocketpy bench run latency --quick                                 does it work here? seconds, no figures
    rocketpy bench run latency -n 10.0.0.1:9876 --runs 5 -o before.json
    rocketpy bench run latency --target nats -o nats.json              the same load on a neighbour, by its client
    """

    def run() -> int:
        from rocketpy.bench.cluster import Access
        from rocketpy.bench.runner import Plan

        _check_system(target, name_servers=name_servers, address=address, store=store)
        security = security_settings(connection)
        access = Access(name_servers, security.tls_options(), tool_credentials(security))
        system: dict[str, Any] = {"target": target, "address": address, "cluster": cluster, "store": store}
        system["generator"] = generator if target == "rocketmq" else "client"
        plan = Plan(access=access, runs=1 if quick else runs, **system)
        points = _points(scenario, minutes, settings, is_quick=quick)
        if plan.access.name_servers and (keys := _own_keys(points)):
            raise click.UsageError(
                f"-n measures brokers that run already: leave it out, or --set and these keys of the scenario: "
                f"{', '.join(keys)}"
            )
        return _run(points, plan, output, plots=plots)

    sys.exit(_status(run))


def _check_system(target: str, *, name_servers: str, address: str, store: Path | None) -> None:
    """Raise UsageError if an option would have no effect on this target."""
    if address and target == "rocketmq":
        raise click.UsageError("--address is of NATS or Kafka: give --target, or name brokers by -n")
    if name_servers and target != "rocketmq":
        raise click.UsageError(f"-n is of RocketMQ: --address HOST:PORT names a server of {target}")
    if store is not None and (name_servers or address):
        raise click.UsageError("--store is for servers that are started here: leave it out, or -n and --address")


def _points(source: str, minutes: float | None, settings: tuple[str, ...], *, is_quick: bool) -> list[Point]:
    """Read a scenario, with what the options change."""
    from rocketpy.bench import scenario

    from .settings import pairs

    found = scenario.quick(scenario.read(source)) if is_quick else scenario.read(source)
    changed = {"test_duration_minutes": minutes} if minutes else {}
    return [
        scenario.changed(point, {**changed, "broker": {**point.scenario.broker, **pairs(settings)}}) for point in found
    ]


def _own_keys(points: Sequence[Point]) -> list[str]:
    """Return the keys of these points that a cluster which runs already cannot have."""
    return list(dict.fromkeys(key for point in points for key in point.scenario.needs_own_broker))


def _run(points: Sequence[Point], plan: Plan, output: Path | None, *, plots: bool) -> int:
    from rocketpy.bench import report, result, runner

    target = output or Path(f"{points[0].scenario.name}.json")
    result.check_place(target)
    with _progress([point.scenario.test_duration_minutes for point in points] * plan.runs) as watch:
        found = runner.run_all(points, plan, watch)
    found.write(target)
    click.echo(report.figures(found.points))
    if errors := report.errors(found.points):
        click.echo(f"\nErrors, by response code or kind:\n{errors}")
    click.echo(f"\nwrote {target}")
    if plots:
        _write_page(target)
    return 0


@contextlib.contextmanager
def _progress(minutes: Sequence[float]) -> Iterator[Callable[[str], Tick]]:
    """Yield the place to report progress to, run by run: a bar on a terminal, a line per phase elsewhere. `minutes`: of
    each run."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    said: set[str] = set()
    numbers = itertools.count()
    columns = (BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("start", total=len(minutes))

        def watch(label: str) -> Tick:
            number = next(numbers)
            seconds = minutes[number] * 60
            progress.update(task, description=label, completed=number)

            def draw(phase: str, at_s: float, messages: int, errors: int) -> None:
                text = f"{label}: {phase}"
                if not console.is_terminal and text not in said:
                    said.add(text)
                    click.echo(text, err=True)
                counted = f"{messages:>13,} messages {errors} errors"
                part = min(1.0, at_s / seconds) if phase == "measure" else 0.0
                progress.update(task, description=f"{text} {at_s:5.0f} s {counted}", completed=number + part)

            return draw

        yield watch


@bench.command("soak")
@click.option("--minutes", type=click.FloatRange(0.5), default=30, show_default=True, help="Time of the load.")
@click.option("--store", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Directory of the store.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Property of the broker; may be repeated.")
@click.option("-o", "--output", type=_RESULT, help="Also write a result file.")
def soak_command(minutes: float, store: Path | None, settings: tuple[str, ...], output: Path | None) -> None:
    """Load a broker of its own steadily, and fail if its memory or descriptors grow, its rate falls, or a process of it
    is replaced.

    Allowed are 10 MiB and 10 descriptors an hour, after the first fifth of the time; rates of sends and consumption in
    the last fifth from 80 % of those in the second fifth on; and no failed request.
    """

    def run() -> int:
        from rocketpy.bench import report, result, scenario, soak

        from .settings import pairs

        if output is not None:
            result.check_place(output)
        (point,) = scenario.read("soak")
        changed = {"test_duration_minutes": minutes, "broker": {**point.scenario.broker, **pairs(settings)}}
        point = scenario.changed(point, changed)
        with _progress([minutes]) as watch:
            whole, samples = soak.soak(point, store, watch("soak"))
        found = whole.points[0].runs[0]
        if output is not None:
            whole.write(output)
        click.echo("\n".join(soak.summary(samples)))
        click.echo(f"{report.number(found.figures['messages_per_s'])} messages/s, errors: {found.errors or 'none'}")
        faults = soak.faults(samples) + soak.fallen_rates(found.intervals)
        faults += [f"requests failed: {found.errors}"] * bool(found.errors)
        for fault in faults:
            click.echo(f"rocketpy: {fault}", err=True)
        return 1 if faults else 0

    sys.exit(_status(run))


@bench.command("idle")
@click.option("--clients", type=click.IntRange(1, 200_000), default=50_000, show_default=True, help="Connections.")
@click.option("--minutes", type=click.FloatRange(0.01), default=1.5, show_default=True, help="Time of heartbeats.")
@click.option("--store", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Directory of the store.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Property of the broker; may be repeated.")
@click.option("--strict", is_flag=True, help="Fail beyond 10 000 bytes of memory for a client, or 20 % of a core.")
def idle_command(clients: int, minutes: float, store: Path | None, settings: tuple[str, ...], *, strict: bool) -> None:
    """Connect idle clients to a broker of its own, and show what they cost: memory, and CPU of their heartbeats.

    All are producers, each fifth is a member of a consumer group of 20 besides. Exit status 1: a heartbeat was refused
    or a connection lost.
    """

    def run() -> int:
        from rocketpy.bench import idle_cost

        from .settings import pairs

        with _progress([minutes]) as watch:
            found = idle_cost.measure(clients, minutes * 60, pairs(settings), store, watch("idle"))
        click.echo("\n".join(found.lines))
        faults = found.faults(is_strict=strict)
        for fault in faults:
            click.echo(f"rocketpy: {fault}", err=True)
        return 1 if faults else 0

    sys.exit(_status(run))


@bench.command("compare")
@click.argument("before", type=_RESULT)
@click.argument("after", type=_RESULT)
@click.option(
    "--threshold", type=click.FloatRange(0, 10), default=0.05, show_default=True, help="Smallest change that counts."
)
@click.option(
    "--fail-on-regression",
    is_flag=True,
    help="Exit status 1 if a figure is worse, a point is missing, or every figure is unclear.",
)
@click.option("--all", "show_all", is_flag=True, help="Show all figures, also those without a change.")
def compare_command(before: Path, after: Path, threshold: float, fail_on_regression: bool, show_all: bool) -> None:
    """Tell what changed from BEFORE to AFTER, two results of one scenario.

    A figure is better or worse if the 95 % interval of its change, which the runs give, leaves out 1, and the change
    reaches the threshold. It is the same if the interval lies below the threshold, else unclear: more runs tell.
    A rate that falls to zero is worse, and so are errors where there were none.
    """

    def run() -> int:
        from rocketpy.bench import compare, report, result

        old, new = result.read(before), result.read(after)
        found = list(compare.changes(old, new, threshold))
        shown = found if show_all else [change for change in found if change.verdict in ("better", "worse")]
        click.echo(report.comparison(shown, compare.differences(old, new)))
        counted = Counter(change.verdict for change in found)
        click.echo("\n" + ", ".join(f"{counted[name]} {name}" for name in compare.VERDICTS))
        has_failed = counted["worse"] or compare.lost_points(old, new) or counted["unclear"] == len(found)
        return 1 if fail_on_regression and has_failed else 0

    sys.exit(_status(run))


@bench.command("report")
@click.argument("result", type=_RESULT)
@click.option("--no-plots", is_flag=True, help="Without plots, which need matplotlib.")
def report_command(result: Path, no_plots: bool) -> None:
    """Write a Markdown page and plots (SVG, PNG) beside a result file."""
    sys.exit(_status(lambda: _write_page(result, with_plots=not no_plots)))


def _write_page(path: Path, *, with_plots: bool = True) -> int:
    from rocketpy.bench import plots, report, result

    found = result.read(path)
    names = plots.write(found, path.parent, path.stem) if with_plots else []
    page = path.with_suffix(".md")
    page.write_text(report.page(found, names))
    click.echo(f"wrote {page}{f' and {len(names)} plots' if names else ''}")
    return 0
