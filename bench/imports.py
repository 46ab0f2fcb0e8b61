"""Measures how long an import of the client takes, beside one of trio and attrs.

    python -m bench.imports --repeat 9

Each import is that of a new interpreter, with its compiled files in the page cache; the imports take turns. The clocks
start in the interpreter, behind the imports that every Python program has.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import attrs
import click

from . import report
from .brokers import ROOT

STATEMENTS = {
    "trio, attrs": "import trio, attrs",
    "rocketpy.client": "import rocketpy.client",
    "a producer": "from rocketpy.client import Message, Producer",
    "a consumer": "from rocketpy.client import PushConsumer",
    "all of it": "from rocketpy.client import *; import rocketpy.client.sync",
}
BAR_MS = 150
HEADINGS = ("import", "ms", "CPU (ms)", "ratio", f"bar: {BAR_MS} ms")
PROGRAM = """
import time
began_s, cpu_s = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - began_s, time.process_time() - cpu_s)
"""


@attrs.frozen
class Import:
    """One import: seconds, and those of the processor."""

    seconds: float
    cpu_s: float


def measure(statement: str) -> Import:
    command = [sys.executable, "-c", PROGRAM.format(statement)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return Import(*map(float, done.stdout.split()))


def take_turns(repeat: int) -> dict[str, list[Import]]:
    found: dict[str, list[Import]] = defaultdict(list)
    for _ in range(repeat):
        for name, statement in STATEMENTS.items():
            found[name].append(measure(statement))
    return found


def rows(found: dict[str, list[Import]]) -> Iterator[tuple[str, ...]]:
    """Medians; the ratio is that to the first."""
    beside_s = statistics.median(one.seconds for one in next(iter(found.values())))
    for name, imports in found.items():
        seconds = statistics.median(one.seconds for one in imports)
        cpu_ms = statistics.median(one.cpu_s for one in imports) * 1000
        holds = "" if "rocketpy" not in STATEMENTS[name] else "holds" if seconds * 1000 <= BAR_MS else "missed"
        yield name, f"{seconds * 1000:.0f}", f"{cpu_ms:.0f}", f"{seconds / beside_s:.2f}", holds


def table(repeat: int) -> str:
    return report.markdown_table(HEADINGS, rows(take_turns(repeat)))


@click.command()
@click.option("--repeat", type=click.IntRange(1), default=9, show_default=True, help="Turns.")
def main(repeat: int) -> None:
    """Time imports of the client."""
    click.echo(table(repeat))


if __name__ == "__main__":
    main()
