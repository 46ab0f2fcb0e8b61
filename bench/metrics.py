"""`python -m bench.metrics`: what does it cost to be scraped, under load, at 10 000 queues, and when idle?

Under load, windows with a scrape every second take turns with windows without any, on one broker. A scrape at 10 000
queues is timed as Prometheus sees it, and by the CPU of the broker's processes. `--strict`: a missed bar is a failure.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click

from rocketpy.bench.load import Load, Mode, Workload

from . import report
from .brokers import HOST, Broker, boot, free_ports, work_directory

TOPIC, QUEUES = "bench_metrics", 16
WORKLOAD = Workload(Mode.SEND, 64, 64, 1024)
TOPICS, QUEUES_EACH, GROUPS = 1_250, 8, 100
NAMES = {"default names": "rocketpy,exporter", "all names": "rocketpy,exporter,rocketmq5,rocketmq5_units"}
SCRAPES = 10
PAUSE_S = 0.5  # between two scrapes that are timed
PROMETHEUS_S = 15.0  # scrape_interval of deploy/prometheus

Scraped = tuple[Broker, Callable[[], bytes]]


@attrs.frozen
class Row:
    """A figure and its bar."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    is_least: bool = False  # the bar is the least that the figure may be, not the most

    @property
    def holds(self) -> bool:
        return self.bar is None or (self.value >= self.bar if self.is_least else self.value <= self.bar)

    @property
    def cells(self) -> tuple[str, ...]:
        bar = "" if self.bar is None else f"{'≥' if self.is_least else '≤'} {self.bar:g}"
        return self.what, f"{self.value:.3g} {self.unit}", bar, ("holds" if self.holds else "missed") if bar else ""


def fill_tables(directory: Path) -> None:
    """Write the files of topics and offsets of a store that is to be opened: requests would take minutes."""
    config = directory / "store" / "config"
    config.mkdir(parents=True)
    topics = {
        f"bench_{number}": {
            "topicName": f"bench_{number}",
            "readQueueNums": QUEUES_EACH,
            "writeQueueNums": QUEUES_EACH,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for number in range(TOPICS)
    }
    version = {"timestamp": 1, "counter": 1}
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))
    groups = {name: {"groupName": name} for name in (f"bench_group_{number}" for number in range(GROUPS))}
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"dataVersion": version, "subscriptionGroupTable": groups})
    )
    offsets = {
        f"bench_{number}@bench_group_{number % GROUPS}": dict.fromkeys(map(str, range(QUEUES_EACH)), 0)
        for number in range(TOPICS)
    }
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


@contextmanager
def scraped(names: str, prepare: Callable[[Path], None] = lambda directory: None) -> Iterator[Scraped]:
    """A broker, and a function that scrapes it and returns the text."""
    (port,) = free_ports(1)

    def scrape() -> bytes:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=60) as answer:
            return bytes(answer.read())

    with work_directory("rocketpy") as directory:
        prepare(directory)
        broker = boot("rocketpy", directory, {"metricsPort": str(port), "metricsNames": names})
        try:
            yield broker, scrape
        finally:
            broker.stop()


@contextmanager
def every(interval_s: float, scrape: Callable[[], object]) -> Iterator[None]:
    """Scrape in a thread, until the end."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(interval_s):
            scrape()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def under_load(seconds: float, turns: int) -> Row:
    """Compare windows with scrapes to those without, of which each has two neighbours."""
    with scraped(NAMES["default names"]) as (broker, scrape):
        broker.create_topic(TOPIC, QUEUES)
        rates: list[float] = []
        with Load(WORKLOAD, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES) as load:
            load.measure(seconds, warm_up_s=seconds)
            for window in range(2 * turns + 1):
                if window % 2:
                    with every(1.0, scrape):
                        rates.append(load.measure(seconds, warm_up_s=0.0).messages_per_s)
                else:
                    rates.append(load.measure(seconds, warm_up_s=0.0).messages_per_s)
        broker.check_alive()
    ratios = [2 * rates[at] / (rates[at - 1] + rates[at + 1]) for at in range(1, len(rates), 2)]
    return Row("sends, scraped every second, to not scraped", statistics.median(ratios), "", 0.98, is_least=True)


def at_many_queues(title: str, names: str) -> Iterator[Row]:
    with scraped(names, fill_tables) as (broker, scrape):
        text, times, cpu = scrape(), [], []
        assert text.count(b"rocketpy_consumer_lag_messages{") == TOPICS
        for _ in range(SCRAPES):
            time.sleep(PAUSE_S)
            before_s, begun_s = broker.cpu_s(), time.monotonic()
            scrape()
            times.append(time.monotonic() - begun_s)
            cpu.append(broker.cpu_s() - before_s)
    place = f"scrape of {TOPICS * QUEUES_EACH:,} queues, {title}"
    yield Row(place, statistics.median(times) * 1000, "ms", 200)
    yield Row(f"{place}: CPU of the broker", statistics.mean(cpu) * 1000, "ms")
    yield Row(f"{place}: text", len(text) / 1e6, "MB")


def when_idle(seconds: float) -> Iterator[Row]:
    """Yield the share of a core that broker and name server take, without scrapes and with them."""
    with scraped(NAMES["all names"]) as (broker, scrape):
        scrape()

        def share() -> float:
            before_s, begun_s = broker.cpu_s(), time.monotonic()
            time.sleep(seconds)
            return (broker.cpu_s() - before_s) / (time.monotonic() - begun_s) * 100

        yield Row("idle broker and name server, not scraped", share(), "% of a core")
        with every(PROMETHEUS_S, scrape):
            yield Row(f"the same, all names, scraped every {PROMETHEUS_S:g} s", share(), "% of a core", 0.5)


@click.command()
@click.option("--seconds", default=5.0, help="of each window under load")
@click.option("--turns", default=5, help="windows with scrapes")
@click.option("--idle", default=61.0, help="seconds of the idle broker")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.option("--strict", is_flag=True, help="fail if a bar is missed")
def main(seconds: float, turns: int, idle: float, docs: Path | None, *, strict: bool) -> None:
    """Measure the cost of scrapes."""
    load_average = os.getloadavg()[0]
    rows: list[Row] = []
    for title, names in NAMES.items():
        rows += at_many_queues(title, names)
    rows += [*when_idle(idle), under_load(seconds, turns)]
    table = report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in rows))
    click.echo(table)
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("Metrics", "bench.metrics")}
{TOPICS:,} topics of {QUEUES_EACH} queues, each with the offsets of one of {GROUPS} groups. Under load: sends of 1 KiB,
64 connections with 64 requests each, {turns} windows of {seconds:g} s with scrapes between windows without, on one
broker; median of the ratios. Load average before the run: {load_average:.1f}.

{table}
"""
        )
    if strict and not all(row.holds for row in rows):
        raise click.ClickException("a bar is missed")


if __name__ == "__main__":
    main()
