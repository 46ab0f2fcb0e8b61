"""`python -m bench.spark`: how fast Spark reads topics and stores, beside the same work without Spark.

Six questions (spark_questions.py): decoding on one core; a store at rest; a running broker; an archive; the time
against workers, queues and tasks, from which the page derives what a task and a row cost; and micro-batches.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import click

from . import report
from .brokers import work_directory
from .spark_page import write_page
from .spark_questions import QUESTIONS, Figure, Scale

RESULTS = Path(__file__).parent / "results" / "spark.json"

QUICK = Scale(messages=20_000, repeat=1, tasks=(4, 8), micro_batches=3, scan_bytes=0, has_bars=False)


def line_of(figure: Figure) -> str:
    bar = "" if figure.holds is None else f"  {figure.bar}: {'holds' if figure.holds else 'MISSED'}"
    rate = f"{report.number(figure.rows_per_s):>12} rows/s" if figure.rows else f"{figure.median_s * 1000:12.0f} ms"
    return f"{figure.question:8} {figure.what:48} {rate}{bar}"


@click.command()
@click.option("--only", type=click.Choice(list(QUESTIONS)), multiple=True, help="these questions")
@click.option("--messages", default=1_000_000, help="in each topic and store")
@click.option("--repeat", default=5, help="runs of each measurement")
@click.option("--quick", is_flag=True, help=f"{QUICK.messages} messages, once: whether it works")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=RESULTS, help="figures")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results, and its plot")
def main(only: tuple[str, ...], messages: int, repeat: int, quick: bool, json_path: Path, docs: Path | None) -> None:
    """Measure the sources of rocketpy.spark. Needs the extra spark and Java 17."""
    scale = QUICK if quick else Scale(messages, repeat)
    found: list[Figure] = []
    load_average = os.getloadavg()[0]
    for name in only or QUESTIONS:
        with work_directory(f"spark-{name}") as directory:
            for figure in QUESTIONS[name](scale, directory):
                figure = figure if scale.has_bars else attrs.evolve(figure, bar="", holds=None)
                found.append(figure)
                click.echo(line_of(figure))
    json_path.write_text(json.dumps([attrs.asdict(figure) for figure in found], indent=1))
    if docs is not None:
        write_page(docs, found, scale, load_average)


if __name__ == "__main__":
    main()
