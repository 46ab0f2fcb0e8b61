"""`python -m bench.versions OTHER`: this checkout and another one of rocketpy in turn, with the same driver.

For a change that should cost nothing: build the commit before it in a worktree (`make build`), and name its directory.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table

from rocketpy.bench.result import commit_of

from . import report
from .brokers import ROOT, WARM_UP_S, python_of, running
from .compare import REPORT_WIDTH, Screen
from .scenarios import Scenario, select
from .store_questions import QUESTIONS, Setup
from .turn import Measurement, Plan, run_turn

# Of bench.store_bars, with small stores.
STORE_METRICS = {"restart": ("restart_s",), "many-queues": ("boot_s", "bytes_per_queue_created", "bytes_per_queue")}
HEADINGS = ("scenario", "metric", "this", "other", "ratio", "ratios of the turns", "errors")


@attrs.frozen
class Turn:
    """The figures of both checkouts in one turn, by scenario."""

    this: dict[str, Measurement]
    other: dict[str, Measurement]

    def ratio(self, scenario: str, metric: str) -> float | None:
        """Return this checkout's figure divided by the other one's."""
        this, other = (found[scenario].figures.get(metric) for found in (self.this, self.other))
        return this / other if this is not None and other else None


def ask_store(root: Path, names: Sequence[str], screen: Screen) -> Iterator[Measurement]:
    """Restart after a kill, and the cost of a queue."""
    setup = Setup(quick=True, minutes=0, repeat=3, targets=("rocketpy",), watch=lambda _: screen, root=root)
    for name in names:
        yield Measurement(name, "rocketpy", dict(QUESTIONS[name].ask(setup).figures["rocketpy"]))


def take_turns(console: Console, other: Path, plan: Plan, stores: Sequence[str], repeat: int) -> list[Turn]:
    """Alternate the checkout that begins. `stores`: questions about stores, by name."""
    turns = []
    for number in range(repeat):
        found: dict[Path, dict[str, Measurement]] = {}
        for root in (ROOT, other) if number % 2 == 0 else (other, ROOT):
            label = f"[{number + 1}/{repeat} {'this' if root == ROOT else 'other'}]"
            screen = Screen(console, label)
            found[root] = {one.scenario: one for one in ask_store(root, stores, screen)}
            if plan.scenarios:
                with running("rocketpy", root=root) as broker:
                    found[root] |= {one.scenario: one for one in run_turn(broker, plan, screen)}
        turns.append(Turn(found[ROOT], found[other]))
    return turns


def metrics_of(scenario: Scenario) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*scenario.metrics, *(["p50_us", "p99_us"] if scenario.workload else [])]))


def rows(turns: Sequence[Turn], metrics: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Medians, the median of the ratios, and each turn's ratio, which shows how noisy the machine was. `metrics`: of
    each scenario, by its name."""
    for scenario, shown in metrics.items():
        every = [found[scenario] for turn in turns for found in (turn.this, turn.other)]
        errors = {f"{kind}:{count}" for one in every for kind, count in one.errors.items()}
        for metric in shown:
            ratios = [ratio for turn in turns if (ratio := turn.ratio(scenario, metric)) is not None]
            if not ratios:
                continue
            this, other = (
                statistics.median(found[scenario].figures[metric] for found in both)
                for both in zip(*((turn.this, turn.other) for turn in turns), strict=True)
            )
            yield (
                scenario,
                metric,
                report.number(this),
                report.number(other),
                f"{statistics.median(ratios):.3f}",
                " ".join(f"{ratio:.2f}" for ratio in ratios),
                " ".join(sorted(errors)),
            )


def name_of(root: Path) -> str:
    """Return a checkout's commit, or the directory's name of a build of tests.support.releases."""
    return commit_of(root) or root.name


@click.command()
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--only", multiple=True, help="Scenarios whose name contains this; may be given several times.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True, help="Turns of each checkout.")
@click.option("--seconds", type=click.FloatRange(0.5), default=4.0, show_default=True, help="Seconds of one run.")
@click.option("--messages", type=click.IntRange(1), default=200_000, help="Messages of scenario memory-loaded.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Also write the table to this file.")
def main(other: Path, only: tuple[str, ...], repeat: int, seconds: float, messages: int, markdown: Path | None) -> None:
    """Compare this checkout with OTHER, the directory of another one that is built. The ratio is this by other."""
    other = other.resolve()
    if not Path(python_of(other)).exists():
        raise click.UsageError(f"{other} is not built: run `make build` there")
    stores = [name for name in STORE_METRICS if not only or any(text in name for text in only)]
    scenarios = select(only, quick=False)
    if not scenarios and not stores:
        raise click.UsageError("no scenario has a name that contains the text given with --only")
    console = Console() if sys.stdout.isatty() else Console(width=REPORT_WIDTH)
    plan = Plan(scenarios, seconds, WARM_UP_S["rocketpy"], messages)
    turns = take_turns(console, other, plan, stores, repeat)
    shown = {name: STORE_METRICS[name] for name in stores} | {one.name: metrics_of(one) for one in scenarios}
    found = list(rows(turns, shown))
    table = Table(*HEADINGS, title=f"this: {name_of(ROOT)}, other: {name_of(other)}; medians of {repeat} turns")
    for row in found:
        table.add_row(*row)
    console.print(table)
    if markdown is not None:
        heads = f"This: {name_of(ROOT)}, other: {name_of(other)}; medians of {repeat} turns of {seconds:g} s."
        markdown.write_text(
            f"`{report.command_of('bench.versions')}`\n\n{heads}\n\n{report.markdown_table(HEADINGS, iter(found))}\n"
        )


if __name__ == "__main__":
    main()
