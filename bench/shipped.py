"""`python -m bench.shipped`: runs the scenario files that rocketpy ships, each on brokers of its own, and writes the
page of their results.

A result is the file that `rocketpy bench run NAME -o bench/results/scenarios/NAME.json` writes. `--page` writes the
page of the results that are there, without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rocketpy.bench import report, result, runner, scenario
from rocketpy.bench.cluster import Access
from rocketpy.bench.result import Result, Tick
from rocketpy.bench.runner import Plan

from .readme import RESULTS

JSON = RESULTS / "scenarios"
PAGE = JSON.with_suffix(".md")
LEFT_OUT = ("soak",)  # half an hour, and a verdict instead of figures: `rocketpy bench soak`
HEAD = """# The shipped scenarios

Written by `python -m bench.shipped` ([bench/README.md](../README.md)) from the results in [scenarios](scenarios), which
`rocketpy bench compare` reads. The load generator shares the cores with the broker. Each run has a broker of its own.
"""


def names() -> list[str]:
    return [name for name in scenario.shipped() if name not in LEFT_OUT]


def section(found: Result) -> str:
    """Return what the page says of a result."""
    title = scenario.shipped()[found.name].partition("\n")[0].removeprefix("# ")
    parts = [f"## {found.name}", f"{title}.", report.origin(found), report.keys(found.points)]
    runs = max(len(point.runs) for point in found.points)
    parts.append("One run." if runs == 1 else f"Medians of {runs} runs, least and largest in brackets.")
    parts.append(report.figures(found.points))
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
@click.option("--page", "only_page", is_flag=True, help="Only write the page of the results that are there.")
def main(only: tuple[str, ...], runs: int, store: Path | None, *, only_page: bool) -> None:
    """Run the shipped scenarios, and write their results and the page of them."""
    JSON.mkdir(exist_ok=True)
    for name in () if only_page else only or names():
        found = runner.run_all(scenario.read(name), Plan(access=Access(""), runs=runs, store=store), _say)
        found.write(JSON / f"{name}.json")
        click.echo(f"{name}\n{report.figures(found.points)}\n")
    PAGE.write_text(page(read_results()), encoding="utf-8")


if __name__ == "__main__":
    main()
