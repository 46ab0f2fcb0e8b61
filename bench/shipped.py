"""`python -m bench.shipped`: runs the scenario files that rocketpy ships, each on brokers of its own, and writes the
page of their results.

A result is the file that `rocketpy bench run NAME -o bench/results/scenarios/NAME.json` writes. `--page` writes the
page of the results that are there, without a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import attrs
import click

from rocketpy.bench import report, result, runner, scenario
from rocketpy.bench.cluster import Access
from rocketpy.bench.idle_cost import USER_BYTES_MAX
from rocketpy.bench.result import Result, Tick
from rocketpy.bench.runner import Plan

from .ballast import full_page_cache
from .readme import RESULTS
from .report import Row

JSON = RESULTS / "scenarios"
PAGE = JSON.with_suffix(".md")
LEFT_OUT = ("soak",)  # half an hour, and a verdict instead of figures: `rocketpy bench soak`
HEAD = """# The shipped scenarios

Written by `python -m bench.shipped` ([bench/README.md](../README.md)) from the results in [scenarios](scenarios), which
`rocketpy bench compare` reads. The load generator shares the cores with the broker. Each run has a broker of its own.
"""


@attrs.frozen
class ScenarioBar:
    """A bar of a shipped scenario. `value`: the figure that it is for, from the medians of the result."""

    what: str
    value: Callable[[Result], float]
    unit: str
    bar: float
    is_least: bool = False  # the bar is the least that the figure may be, not the most

    def row(self, found: Result) -> Row:
        """Raises: LookupError: the result lacks the figure."""
        return Row(self.what, self.value(found), self.unit, self.bar, self.is_least)


def median(found: Result, metric: str, point: str = "") -> float:
    """Return the median of a figure at the point with this name. Raises: LookupError: there is none."""
    values = [one.median(metric) for one in found.points if one.name == point]
    if not values or values[0] is None:
        raise LookupError(f"the result of {found.name} has no {metric} at the point {point!r}")
    return values[0]


def cost_of_double_writes(found: Result) -> float:
    """Return by how many percent fewer messages a SYNC_MASTER takes than an ASYNC_MASTER, each with a slave."""
    synchronous, asynchronous = (
        median(found, "messages_per_s", f"brokerRole={role}_MASTER") for role in ("SYNC", "ASYNC")
    )
    return (1 - synchronous / asynchronous) * 100


BARS = {
    "cold-reads": ScenarioBar(
        "random cold reads of 4 KiB, dataReadAheadEnable=false",
        lambda found: median(found, "reads_per_s", "dataReadAheadEnable=false"),
        "/s",
        8_000,
        is_least=True,
    ),
    "connections": ScenarioBar(
        "memory of the broker for each idle client",
        lambda found: median(found, "broker_idle_connection_bytes"),
        "bytes",
        USER_BYTES_MAX,
    ),
    "replicated": ScenarioBar("cost of synchronous double writes", cost_of_double_writes, "%", 10),
}


def names() -> list[str]:
    return [name for name in scenario.shipped() if name not in LEFT_OUT]


def section(found: Result) -> str:
    """Return what the page says of a result."""
    title = scenario.shipped()[found.name].partition("\n")[0].removeprefix("# ")
    parts = [f"## {found.name}", f"{title}.", report.origin(found), report.keys(found.points)]
    runs = max(len(point.runs) for point in found.points)
    parts.append("One run." if runs == 1 else f"Medians of {runs} runs, least and largest in brackets.")
    parts.append(report.figures(found.points))
    if found.name in BARS:
        parts.append(report.table(("figure with a bar", "value", "bar", ""), [BARS[found.name].row(found).cells]))
    if errors := report.errors(found.points):
        parts.append(f"Errors, by response code or kind:\n\n{errors}")
    return "\n\n".join(parts)


def page(results: Sequence[Result]) -> str:
    return "\n".join([HEAD, *(f"{section(found)}\n" for found in results)])


def read_results() -> list[Result]:
    return [result.read(JSON / f"{name}.json") for name in names() if (JSON / f"{name}.json").exists()]


def _say(label: str) -> Tick:
    said: set[str] = set()

    def tick(phase: str, at_s: float, messages: int, errors: int) -> None:
        if phase not in said:
            said.add(phase)
            click.echo(f"{label}: {phase}", err=True)

    return tick


@click.command()
@click.option("--only", multiple=True, type=click.Choice(names()), help="These alone; may be repeated.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Runs of each point.")
@click.option("--store", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Directory of stores.")
@click.option("--fill-page-cache", is_flag=True, help="Measure with no memory free (README: virtual machines).")
@click.option("--page", "only_page", is_flag=True, help="Only write the page of the results that are there.")
def main(only: tuple[str, ...], runs: int, store: Path | None, *, fill_page_cache: bool, only_page: bool) -> None:
    """Run the shipped scenarios, and write their results and the page of them."""
    JSON.mkdir(exist_ok=True)
    around = partial(full_page_cache, store or Path(gettempdir())) if fill_page_cache else nullcontext
    for name in () if only_page else only or names():
        found = runner.run_all(scenario.read(name), Plan(access=Access(""), runs=runs, store=store), _say, around)
        if fill_page_cache:
            found = attrs.evolve(found, machine={**found.machine, "page_cache": "full"})
        found.write(JSON / f"{name}.json")
        click.echo(f"{name}\n{report.figures(found.points)}\n")
    PAGE.write_text(page(read_results()), encoding="utf-8")


if __name__ == "__main__":
    main()
