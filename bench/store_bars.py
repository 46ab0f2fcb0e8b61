"""`python -m bench.store_bars`: benchmarks of the store, each checked against its target.

Restart, verification after a power loss, sync flush, the lag of dispatch, latency across file rolls, and very many
queues (store_questions.py). Where a bar names Java, both brokers take their turn in the same run, with the same bytes
on the same disk.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table

from . import report
from .brokers import TARGETS, BrokerFailed
from .compare import REPORT_WIDTH, Screen
from .control import RequestFailed
from .store_questions import QUESTIONS, Answer, Setup

SETTLE_S = 10.0  # between two questions: what the first one deleted is still being discarded by the disk


def lines(name: str, answer: Answer) -> Iterator[report.Line]:
    """Return the lines of the page: the bars first, then figures without a bar."""
    question = QUESTIONS[name]
    errors = ", ".join(f"{target} {kind}:{n}" for target, kinds in answer.errors.items() for kind, n in kinds.items())
    shown = [(bar.metric, bar) for bar in question.bars] + [(metric, None) for metric in question.metrics]
    for metric, bar in shown:
        values = [answer.figures.get(target, {}).get(metric) for target in TARGETS]
        yield report.Line(name, metric, values[0], values[1], bar, errors)


def write_json(path: Path, answers: Mapping[str, Answer]) -> None:
    document = {
        "command": report.command_of("bench.store_bars"),
        "machine": report.machine(),
        "summary": [
            attrs.asdict(line, recurse=False) | {"bar": str(line.bar or ""), "ratio": line.ratio, "holds": line.holds}
            for name, answer in answers.items()
            for line in lines(name, answer)
        ],
        "answers": {name: attrs.asdict(answer) for name, answer in answers.items()},
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def write_markdown(path: Path, answers: Mapping[str, Answer], *, is_cache_full: bool) -> None:
    filled = "\nFree memory is filled with a file before each turn." * is_cache_full
    asked = "\n".join(f"- **{name}**: {(QUESTIONS[name].ask.__doc__ or '').splitlines()[0]}" for name in answers)
    rows = (report.row(line) for name, answer in answers.items() for line in lines(name, answer))
    path.write_text(
        f"""{report.page_head("The store's bars", "bench.store_bars")}
The load generator shares the cores; Java has a heap of 1 GB.{filled}

{asked}

{report.markdown_table(report.HEADINGS, rows)}
"""
    )


def ask_all(console: Console, names: Sequence[str], setup: Setup) -> tuple[dict[str, Answer], list[str]]:
    """Return the answers and the failures: one question that fails does not take the others with it."""
    answers: dict[str, Answer] = {}
    failures = []
    for index, name in enumerate(names):
        if index:
            time.sleep(SETTLE_S)
        console.print(f"{name}: {(QUESTIONS[name].ask.__doc__ or '').splitlines()[0]}", style="bold", markup=False)
        try:
            answers[name] = QUESTIONS[name].ask(setup)
        except (BrokerFailed, RequestFailed, OSError) as error:
            failures.append(f"{name}: {error}")
    return answers, failures


@click.command()
@click.option("--only", multiple=True, help="Questions whose name contains this; may be given several times.")
@click.option("--target", type=click.Choice([*TARGETS, "both"]), default="both", show_default=True)
@click.option("--quick", is_flag=True, help="Smaller stores, shorter runs: 512 MiB, 1 000 queues, 20 seconds.")
@click.option(
    "--repeat", type=click.IntRange(1), help="Number of restarts and of sync-flush runs.  [default: 3, quick 1]"
)
@click.option(
    "--minutes", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Minutes of each open-loop run."
)
@click.option("--fill-page-cache", is_flag=True, help="Measure with no memory free (README: virtual machines).")
@click.option("--strict", is_flag=True, help="Exit with an error when a target is not reached.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default="store-bars.json", show_default=True)
@click.option("--docs", "docs_path", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
def main(
    only: tuple[str, ...],
    target: str,
    quick: bool,
    repeat: int | None,
    minutes: float,
    fill_page_cache: bool,
    strict: bool,
    json_path: Path,
    docs_path: Path | None,
) -> None:
    """Ask what the store has to hold, and compare with its bars."""
    names = [name for name in QUESTIONS if not only or any(word in name for word in only)]
    if not names:
        raise click.UsageError(f"no question has such a name; there are {', '.join(QUESTIONS)}")
    console = Console() if sys.stdout.isatty() else Console(width=REPORT_WIDTH)
    targets = TARGETS if target == "both" else (target,)
    repeat = repeat or (1 if quick else 3)
    setup = Setup(quick, minutes, repeat, targets, lambda label: Screen(console, f"[{label}]"), fill_page_cache)
    answers, failures = ask_all(console, names, setup)
    table = Table(*report.HEADINGS, title="the store's bars")
    for name, answer in answers.items():
        for line in lines(name, answer):
            table.add_row(*report.row(line), style=report.STYLES[line.holds])
            if strict and line.holds is False:
                failures.append(f"{name} {line.metric}: bar {line.bar} does not hold")
    console.print(table)
    write_json(json_path, answers)
    if docs_path is not None:
        write_markdown(docs_path, answers, is_cache_full=fill_page_cache)
    for failure in failures:
        console.print(failure, style="red", markup=False)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
