"""`python -m bench.spark_bars`: Spark's speed against its bars, each figure the median of turns of one run.

Rows (spark_bar_rows.py): `scan` and `small`: stores at rest; `archive`; `broker`: a running broker; `sink`; `steady`: a
stream at a steady rate; `cluster`: workers of a standalone cluster. `python -m bench.spark` shows where the time goes.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from pathlib import Path

import attrs
import click

from . import report
from .brokers import work_directory
from .spark_bar_inputs import Inputs, Line
from .spark_bar_rows import ROWS

HEADINGS = ("row", "what", "median", "least", "most", "unit", "bar", "")


def cells(line: Line) -> tuple[str, ...]:
    bar = "" if line.bar is None else f"{'≤' if line.is_most else '≥'} {line.bar:,g}"
    verdict = {None: "", True: "holds", False: "missed"}[line.holds]
    numbers = map(report.number, (line.value, min(line.values), max(line.values)))
    return (line.row, line.what, *numbers, line.unit, bar, verdict)


def page(lines: list[Line], inputs: Inputs, load_average: float, seconds: float) -> str:
    names = {line.row for line in lines}
    about = (
        f"{inputs.messages:,} messages of 1 KiB, four times as many of 100 B; {inputs.repeat} turns after "
        f"{inputs.warm_up} that do not count. JVM, Python workers and broker share the cores. CPU: JVM, workers and "
        "executors, without broker and load generator. Load average before the run: "
        f"{load_average:.1f}; it took {seconds:.0f} s."
    )
    asked = "\n".join(f"- **{name}**: {(ROWS[name].__doc__ or '').splitlines()[0]}" for name in ROWS if name in names)
    return f"""{report.page_head("Spark's bars", "bench.spark_bars")}
{textwrap.fill(about, report.PAGE_WIDTH, break_on_hyphens=False)}

{asked}

{report.markdown_table(HEADINGS, map(cells, lines))}

Bars that are missed, and why: [known limits](../../docs/understand/known-limits.md#spark).
"""


@click.command()
@click.option("--only", type=click.Choice(list(ROWS)), multiple=True, help="these rows")
@click.option("--messages", default=1_000_000, show_default=True, help="of 1 KiB in a store or topic")
@click.option("--repeat", default=5, show_default=True, help="turns of each measurement")
@click.option("--quick", is_flag=True, help="20 000 messages, one turn: whether it works")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default="spark-bars.json", show_default=True)
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.option("--strict", is_flag=True, help="exit with an error when a bar is missed")
def main(
    only: tuple[str, ...], messages: int, repeat: int, quick: bool, json_path: Path, docs: Path | None, strict: bool
) -> None:
    """Measure Spark's sources, sink and archive against their bars. Needs the extra spark and Java 17."""
    lines: list[Line] = []
    load_average, began_s = os.getloadavg()[0], time.monotonic()
    with work_directory("spark-bars") as directory:
        inputs = Inputs(directory, messages, repeat)
        if quick:
            inputs = Inputs(directory, 20_000, 1, warm_up=1, windows=(1, 5.0), warm_up_s=5.0)
        with inputs:
            for name, ask in ROWS.items():
                if only and name not in only:
                    continue
                asked_s = time.monotonic()
                for line in ask(inputs):
                    lines.append(line)
                    click.echo("  ".join(f"{cell:>{width}}" for cell, width in zip(cells(line), WIDTHS, strict=True)))
                click.echo(f"{name}: {time.monotonic() - asked_s:.0f} s", err=True)
    document = [attrs.asdict(line) | {"median": line.value, "holds": line.holds} for line in lines]
    json_path.write_text(json.dumps({"machine": report.machine(), "lines": document}, indent=1) + "\n")
    if docs is not None:
        docs.write_text(page(lines, inputs, load_average, time.monotonic() - began_s))
    sys.exit(1 if strict and any(line.holds is False for line in lines) else 0)


WIDTHS = (8, 36, 10, 10, 10, 7, 10, 7)

if __name__ == "__main__":
    main()
