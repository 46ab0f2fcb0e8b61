"""`python -m bench.compare`: rocketpy and the Java broker, taking turns on the same disk, with the same bytes."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console

from rocketpy.bench.load import Progress

from . import report
from .ballast import full_page_cache
from .brokers import TARGETS, WARM_UP_S, BrokerFailed, running
from .scenarios import select
from .turn import Measurement, Plan, run_turn

SYSTEM_BUSY = "2"  # as errors are named: by response code
REPORT_WIDTH = 150  # columns, where there is no terminal


class Screen:
    """Progress: one line that is drawn over on a terminal, one line per run elsewhere."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label

    def __call__(self, step: str) -> Progress:
        started = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(f"{self._label} {step}", highlight=False, markup=False)
        return lambda elapsed_s, messages, errors: self._draw(step, started, messages, errors)

    def _draw(self, step: str, started: float, messages: int, errors: int) -> None:
        if self._console.is_terminal:
            elapsed_s = time.monotonic() - started
            text = f"{self._label} {step}  {elapsed_s:5.1f} s  {messages:>12,} messages  {errors} errors"
            self._console.print(text, end="\r", highlight=False, markup=False, overflow="crop")


@attrs.frozen
class Options:
    """Settings of the runs, independent of what is measured."""

    targets: Sequence[str]
    repeat: int
    quick: bool
    fill_page_cache: bool


def take_turns(console: Console, options: Options, plan: Plan) -> list[Measurement]:
    """Alternate the broker that begins. If a broker fails, the rest of its run is skipped and the comparison
    continues."""
    found: list[Measurement] = []
    for turn in range(options.repeat):
        for target in options.targets if turn % 2 == 0 else reversed(options.targets):
            label = f"[{turn + 1}/{options.repeat} {target}]"
            warm_up_s = max(2.0, WARM_UP_S[target] / 2) if options.quick else WARM_UP_S[target]
            try:
                with contextlib.ExitStack() as stack:
                    if options.fill_page_cache:
                        console.print(f"{label} fill the page cache", highlight=False, markup=False)
                        stack.enter_context(full_page_cache(Path(tempfile.gettempdir())))
                    broker = stack.enter_context(running(target))
                    found += run_turn(broker, attrs.evolve(plan, warm_up_s=warm_up_s), Screen(console, label))
            except (BrokerFailed, OSError) as error:
                console.print(f"{label} {error}", style="bold red", markup=False)
                found.append(Measurement("boot", target, {}, {"failed": 1}))
    return found


def is_failure(one: Measurement) -> bool:
    """Check that there were no errors. Requests that a broker refuses because they waited too long (SYSTEM_BUSY) depend
    on the load of the machine: they are shown, and never counted as a success."""
    return "failed" in one.errors or (one.target == "rocketpy" and bool(set(one.errors) - {"short", SYSTEM_BUSY}))


@click.command()
@click.option("--target", type=click.Choice([*TARGETS, "both"]), default="both", show_default=True)
@click.option("--only", multiple=True, help="Scenarios whose name contains this; may be given several times.")
@click.option("--repeat", type=click.IntRange(1), help="Runs of each broker.  [default: 3, quick 1]")
@click.option("--seconds", type=click.FloatRange(0.5), help="Seconds of one run.  [default: 5, quick 1.5]")
@click.option(
    "--messages", type=click.IntRange(1), help="Messages of scenario memory-loaded.  [default: 1 million, quick 200 k]"
)
@click.option("--quick", is_flag=True, help="Smoke test: fewer scenarios, one short run each; under three minutes.")
@click.option("--fill-page-cache", is_flag=True, help="Measure with no memory free (README: virtual machines).")
@click.option("--strict", is_flag=True, help="Exit with an error when a target is not reached.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default="bench-compare.json", show_default=True)
@click.option("--docs", "docs_path", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
def main(
    target: str,
    only: tuple[str, ...],
    repeat: int | None,
    seconds: float | None,
    messages: int | None,
    quick: bool,
    fill_page_cache: bool,
    strict: bool,
    json_path: Path,
    docs_path: Path | None,
) -> None:
    """Compare rocketpy with the official Java broker, and check the results against the targets."""
    scenarios = select(only, quick=quick)
    if not scenarios:
        raise click.UsageError("no scenario has a name that contains the text given with --only")
    repeat = repeat or (1 if quick else 3)
    loaded_messages = messages or (200_000 if quick else 1_000_000)
    plan = Plan(scenarios, seconds or (1.5 if quick else 5.0), 0.0, loaded_messages)
    options = Options(TARGETS if target == "both" else (target,), repeat, quick, fill_page_cache)
    console = Console() if sys.stdout.isatty() else Console(width=REPORT_WIDTH)
    found = take_turns(console, options, plan)
    for table in report.tables(found, scenarios):
        console.print(table)
    settings = {
        "seconds": plan.seconds,
        "repeat": repeat,
        "messages": loaded_messages,
        "fill_page_cache": fill_page_cache,
    }
    report.write_json(json_path, found, scenarios, report.command_of("bench.compare"), settings)
    if docs_path is not None:
        report.write_markdown(docs_path, found, scenarios, repeat)
    failures = [f"{one.target} {one.scenario}: {one.errors}" for one in found if is_failure(one)]
    if strict:
        failures += [
            f"{line.scenario} {line.metric}: {report.number(line.ratio)}, bar {line.bar}"
            for line in report.lines(found, scenarios)
            if line.holds is False
        ]
    for failure in failures:
        console.print(failure, style="red", markup=False)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
