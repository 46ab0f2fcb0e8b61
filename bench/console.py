"""`python -m bench.console`: what does a console cost a cluster of 10 000 topics and 2 000 groups, and how soon is a
page there?

A broker with these tables idles, then a console looks at it while a browser has a page open, which it loads again each
few seconds. CPU seconds of each broker worker in both times give the share of a core that comes from the console; wall
clocks of other programs do not matter. Pages are loaded with their style and script, as by a browser that has no cache.
`--strict`: a missed bar is a failure.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from rocketpy.bench import proc
from rocketpy.bench.own_broker import HOST, free_ports, python_path, start_process, stop_process, tail
from tests.support.large_cluster import QUEUES, write_tables

from . import report
from .brokers import Broker, boot, work_directory
from .report import Row

TOPICS, GROUPS = 10_000, 2_000
START_S = 60.0  # in which the console reads all names for the first time
REFRESH_S = 5.0  # data-refresh of the pages
PAGES = ("/", "/topics", "/groups", "/topics?page=120", "/groups?search=0999")
LOADS = 5  # of each page
LISTEN_TIMEOUT_S = 60.0
PAGE_BAR_S, WORKER_BAR = 1.0, 2.0  # seconds; percent of a core
ASSET = re.compile(r'(?:href|src)="(/static/[^"]+)"')
NAMES_SHOWN = re.compile(r"(\d[\d\s]*\d) found")


@attrs.frozen
class Window:
    """CPU seconds of each process of a broker in a time, by its name."""

    seconds: float
    cpu_s: dict[str, float]

    def more_than(self, idle: Window) -> dict[str, float]:
        """Return by how many percent of a core each process does more."""
        shares = {name: self.cpu_s[name] / self.seconds - idle.cpu_s.get(name, 0) / idle.seconds for name in self.cpu_s}
        return {name: 100 * share for name, share in sorted(shares.items())}


class Measuring:
    """Takes a window of a broker from here to `end`."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._begun_s, self._before = broker, time.monotonic(), broker.cpu_by_process()

    def end(self) -> Window:
        self._broker.check_alive()
        after = self._broker.cpu_by_process()
        used = {name: total - self._before.get(name, 0.0) for name, total in after.items()}
        return Window(time.monotonic() - self._begun_s, used)


@attrs.frozen
class Console:
    """A running console."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=60) as answer:
            return bytes(answer.read()).decode()

    def load(self, path: str) -> tuple[float, str]:
        """Load a page and what it names; returns the seconds, and the text of the page."""
        begun_s = time.monotonic()
        text = self.get(path)
        for asset in ASSET.findall(text):
            self.get(asset)
        return time.monotonic() - begun_s, text


@contextlib.contextmanager
def running_console(broker: Broker) -> Iterator[Console]:
    """Start a console; it listens when this returns, and knows nothing yet."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "rocketpy", "console", "-n", f"{HOST}:{broker.namesrv_port}", "--port", str(port)]
    console = Console(start_process(words, broker.directory, "console.log", PYTHONPATH=python_path()), port)
    try:
        deadline_s = time.monotonic() + LISTEN_TIMEOUT_S
        while True:
            try:
                console.get("/static/console.css")
                break
            except (urllib.error.URLError, ConnectionError) as error:
                if console.process.poll() is not None or time.monotonic() > deadline_s:
                    raise click.ClickException(f"no console: {error}\n{tail(broker.directory)}") from error
            time.sleep(0.01)
        yield console
    finally:
        stop_process(console.process)


def browse(console: Console, seconds: float) -> list[float]:
    """Load the pages in turn, one each REFRESH_S; returns how long each took."""
    until_s, took = time.monotonic() + seconds, []
    for turn in range(int(seconds // REFRESH_S) + 1):
        took.append(console.load(PAGES[turn % len(PAGES)])[0])
        rest_s = until_s - time.monotonic()
        if rest_s <= 0:
            break
        time.sleep(min(REFRESH_S, rest_s))
    return took


def shares(title: str, window: Window, idle: Window) -> Iterator[Row]:
    for name, percent in window.more_than(idle).items():
        if percent >= 0.05 or name in ("manager", "send", "pull", "store"):
            yield Row(f"{title}: {name}", max(percent, 0.0), "% of a core", WORKER_BAR)


def measure(seconds: float) -> Iterator[Row]:
    with work_directory("rocketpy") as directory:
        write_tables(directory / "store", TOPICS, GROUPS, consumed=0)
        broker = boot("rocketpy", directory, {"metricsPort": "0"})
        try:
            time.sleep(REFRESH_S)
            idling = Measuring(broker)
            time.sleep(seconds)
            idle = idling.end()
            starting = Measuring(broker)
            with running_console(broker) as console:
                first_s, _ = console.load("/")
                browse(console, START_S - REFRESH_S)
                start = starting.end()
                steady, before_s = Measuring(broker), proc.cpu_s([console.process.pid])
                browse(console, seconds)
                later = steady.end()
                console_cpu_s = proc.cpu_s([console.process.pid]) - before_s
                pages = {path: [console.load(path)[0] for _ in range(LOADS)] for path in PAGES}
                check_names(console)
        finally:
            broker.stop()
    yield Row("first page after the start", first_s, "s", PAGE_BAR_S)
    for path, took in pages.items():
        yield Row(f"page {path}", statistics.median(took), "s", PAGE_BAR_S)
    yield from shares(f"first {START_S:g} s", start, idle)
    yield from shares("later", later, idle)
    yield Row("later: the console itself", 100 * console_cpu_s / later.seconds, "% of a core")


def check_names(console: Console) -> None:
    """Raise ClickException: the pages do not show all topics and groups, so nothing was measured."""
    for path, least in (("/topics", TOPICS), ("/groups", GROUPS)):
        text = re.sub("<[^>]+>", " ", console.load(path)[1]).replace("\u202f", " ").replace("&nbsp;", " ")
        found = NAMES_SHOWN.search(text)
        if found is None or int(re.sub(r"\s", "", found[1])) < least:
            raise click.ClickException(f"{path} shows {found[0] if found else 'no names'}, expected {least} at least")


@click.command()
@click.option("--seconds", default=60.0, help="of the broker without a console, and of the console once it is warm")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.option("--strict", is_flag=True, help="fail if a bar is missed")
def main(seconds: float, docs: Path | None, *, strict: bool) -> None:
    """Measure the cost of a console."""
    load_average = os.getloadavg()[0]
    rows = list(measure(seconds))
    table = report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in rows))
    click.echo(table)
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("Console", "bench.console")}
One broker with {TOPICS:,} topics of {QUEUES} queues and {GROUPS:,} groups, each with offsets of a topic. A page with
its style and script is loaded each {REFRESH_S:g} s, the pages in turn; `page`: medians of {LOADS} loads, one after the
other. Shares of a core: CPU seconds of a broker's process with the console, less those without it, over {seconds:g} s
each and over the first {START_S:g} s of the console. Load average before the run: {load_average:.1f}.

{table}
"""
        )
    if strict and not all(row.holds for row in rows):
        raise click.ClickException("a bar is missed")


if __name__ == "__main__":
    main()
