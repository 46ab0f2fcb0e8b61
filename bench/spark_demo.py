"""`python -m bench.spark_demo`: runs the demo that README.md shows, and writes what it printed, and its plot, where
pages show them (extra spark, Java 17)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from rocketpy.bench.own_broker import python_path

from . import report
from .brokers import ROOT
from .readme import README, RESULTS

PICTURE = ROOT / "docs" / "use" / "spark-demo.png"
PAGE = (RESULTS / PICTURE.name).with_suffix(".md")
LINE = re.compile(r"(?:send|read|stream|archive) .*/s  |checked: the archive ")
BEGIN, END = "<!-- demo: python -m bench.spark_demo -->\n", "<!-- end of demo -->"
FENCED = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shown(output: str) -> str:
    """Return the lines of the demo's output that pages show. Raises: LookupError: it lacks some."""
    lines = [line.rstrip() for line in output.splitlines() if LINE.match(line)]
    if len(lines) != 5:
        raise LookupError(f"the demo printed {len(lines)} of 5 lines: {output[-1000:]}")
    return "".join(f"{line}\n" for line in lines)


def lines_of_result() -> str:
    """Return the lines of the last run; "" if there is no result."""
    return next(iter(FENCED.findall(PAGE.read_text(encoding="utf-8"))), "") if PAGE.exists() else ""


def with_output(readme: str, lines: str) -> str:
    """Return README.md with these lines, or without any. Raises: LookupError: it has no place for them."""
    begin, end = readme.find(BEGIN), readme.find(END)
    if not 0 <= begin < end:
        raise LookupError(f"README.md has no place for the demo between {BEGIN.strip()} and {END}")
    words = f"Without the start of Spark ([machine and load](bench/results/{PAGE.name})):"
    text = f"\n{words}\n\n```\n{lines}```\n\n" if lines else ""
    return readme[: begin + len(BEGIN)] + text + readme[end:]


@click.command()
def main() -> None:
    """Run the demo, and write its result, its plot and its part of README.md."""
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rocketpy-demo-") as name:
        target = Path(name) / "demo"
        words = [sys.executable, "-m", "rocketpy", "pipeline", "demo", str(target)]
        environment = os.environ | {"PYTHONPATH": python_path(), "COLUMNS": "200"}
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        lines = shown(done.stdout)
        shutil.copyfile(target / "throughput.png", PICTURE)
    click.echo(lines)
    README.write_text(with_output(README.read_text(), lines))
    PAGE.write_text(
        f"""{report.page_head("The demo of Spark", "bench.spark_demo")}
`rocketpy pipeline demo` with a million messages; Spark, its workers and the broker share the cores. Load average before
the run: {load_average:.1f}.

```
{lines}```
"""
    )


if __name__ == "__main__":
    main()
