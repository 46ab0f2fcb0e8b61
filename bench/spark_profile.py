"""`python -m bench.spark_profile`: where the time of Spark's JVM goes while it scans a topic.

Java Flight Recorder looks at each thread of the JVM that runs, every 10 ms, during `bench.spark_bars --only broker`,
which scans a running broker and its store by turns. A sample counts for the first of the steps below that its stack
has. The compilers of the JVM are no Java threads, and have no samples; neither have the Python workers, which are
processes of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from . import report
from .brokers import work_directory

STEPS = (  # in the order in which a stack is looked through: the first that matches any of its frames counts
    ("read from the sockets of Python workers", re.compile(r"SocketInputStream|SocketChannel|Net\.poll|sun\.nio\.ch")),
    ("Arrow: make vectors of what was read", re.compile(r"org\.apache\.arrow|ArrowStreamReader|ArrowColumnVector")),
    ("make a row of each message", re.compile(r"UnsafeRow|UnsafeProjection|UTF8String|UnsafeWriter|Platform\.copy")),
    ("the query: code that Spark generates", re.compile(r"GeneratedClass|GeneratedIterator|codegen")),
    ("the rest of Spark", re.compile(r"org\.apache\.spark")),
)
OTHER = "other Java code"
EVENT = re.compile(r"^jdk\.(?:ExecutionSample|NativeMethodSample) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
THREAD = re.compile(r'sampledThread = "([^"]*)"')
DUMP_S = 30.0
TASK = "Executor task launch worker"


def stacks(text: str) -> Iterator[str]:
    """Yield the stack of each sample of a task's thread in what `jfr print` writes."""
    for event in EVENT.finditer(text):
        thread = THREAD.search(event[1])
        if thread is not None and thread[1].startswith(TASK):
            yield event[1].partition("stackTrace = [")[2]


def step_of(stack: str) -> str:
    return next((name for name, pattern in STEPS if pattern.search(stack)), OTHER)


def shares(text: str) -> Counter[str]:
    """Return the number of samples of each step."""
    return Counter(map(step_of, stacks(text)))


def samples(file: Path) -> str:
    """Return the samples of a recording, as text; nothing while it is being written."""
    words = ["jfr", "print", "--events", "jdk.ExecutionSample,jdk.NativeMethodSample", str(file)]
    return subprocess.run(words, check=False, capture_output=True, text=True).stdout


def record(directory: Path, options: tuple[str, ...]) -> str:
    """Run the scan under Java Flight Recorder. Returns: its samples as text. Raises: CalledProcessError."""
    flight = f"-XX:StartFlightRecording=filename={directory},settings=profile"
    command = [sys.executable, "-m", "bench.spark_bars", "--only", "broker", "--json", str(directory / "bars.json")]
    subprocess.run([*command, *options], check=True, env=os.environ | {"JDK_JAVA_OPTIONS": flight})
    text, until_s = "", time.monotonic() + DUMP_S
    while not EVENT.search(text) and time.monotonic() < until_s:  # the JVM writes its file when Python has ended
        time.sleep(1)
        text = "".join(map(samples, sorted(directory.glob("*.jfr"))))
    return text


def page(found: Counter[str]) -> str:
    """Return the page of bench/results."""
    total = found.total()
    about = (
        f"{total:,} samples of the threads that run tasks, while they scan a running broker and its store by turns: "
        "1 KiB, columns min and std. A sample counts for the first row of this table that its stack has."
    )
    rows = [(name, f"{found[name] / total:.1%}") for name in (*(name for name, _ in STEPS), OTHER)]
    return f"""{report.page_head("Where the time of Spark's JVM goes", "bench.spark_profile")}
{textwrap.fill(about, report.PAGE_WIDTH, break_on_hyphens=False)}

{report.markdown_table(("step", "share of the samples"), rows)}
"""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(docs: Path | None, options: tuple[str, ...]) -> None:
    """Profile the JVM during the scans of bench.spark_bars, which gets OPTIONS. Needs the extra spark and a JDK 17."""
    with work_directory("spark-profile") as directory:
        found = shares(record(directory, options))
    if not found:
        raise click.ClickException("no sample of a task: is `jfr` that of the JVM which runs Spark?")
    for name, count in found.most_common():
        click.echo(f"{count / found.total():7.1%}  {name}")
    if docs is not None:
        docs.write_text(page(found))


if __name__ == "__main__":
    main()
