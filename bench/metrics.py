"""`python -m bench.metrics`: what does it cost to be scraped, under load and at 10 000 queues?

Under load, windows with a scrape every second take turns with windows without any, on one broker. A scrape at 10 000
queues asks for what Prometheus asks for, is timed as Prometheus sees it, and by the CPU of the broker's processes, with
the copy of the manager that makes it. The manager forks, and copies each page that it writes to meanwhile.
`--strict`: a missed bar is a failure. bench.idle measures a broker that only Prometheus uses.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rocketpy.bench import proc
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST, free_ports

from . import report
from .brokers import Broker, boot, work_directory
from .report import Row

TOPIC, QUEUES = "bench_metrics", 16
WORKLOAD = Workload(Mode.SEND, 64, 64, 1024)
TOPICS, QUEUES_EACH, GROUPS = 1_250, 8, 100
ALL_NAMES = "rocketpy,exporter,rocketmq5,rocketmq5_units"
NAMES = {"default names": "rocketpy,exporter", "all names": ALL_NAMES}
SCRAPES = 10
PAUSE_S = 1.5  # between two scrapes that are timed: within a second they share a text
PROMETHEUS_S = 15.0  # scrape_interval of deploy/prometheus
ASKED = {  # by Prometheus 2.49 and later
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}

Scraped = tuple[Broker, Callable[[], bytes]]


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


def scraper(port: int) -> Callable[[], bytes]:
    """Return a function that scrapes this port as Prometheus does, and returns what it got: gzip."""
    request = urllib.request.Request(f"http://{HOST}:{port}/metrics", headers=ASKED)

    def scrape() -> bytes:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    return scrape


@contextmanager
def scraped(names: str, prepare: Callable[[Path], None] = lambda directory: None) -> Iterator[Scraped]:
    """Run a broker, and give a function that scrapes it."""
    (port,) = free_ports(1)
    with work_directory("rocketpy") as directory:
        prepare(directory)
        broker = boot("rocketpy", directory, {"metricsPort": str(port), "metricsNames": names})
        try:
            yield broker, scraper(port)
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
        packed, times, cpu, of_manager = scrape(), [], 0.0, 0.0
        text = gzip.decompress(packed)
        assert text.count(b"rocketpy_consumer_lag_messages{") == TOPICS
        processes = broker.process_names()
        [manager] = (pid for pid, name in processes.items() if name == "manager")
        copies_s = proc.ended_children_s(manager)
        for _ in range(SCRAPES):
            time.sleep(PAUSE_S)
            before, begun_s = {pid: proc.own_cpu_s(pid) for pid in processes}, time.monotonic()
            scrape()
            times.append(time.monotonic() - begun_s)
            cpu += sum(proc.own_cpu_s(pid) - before[pid] for pid in processes)
            of_manager += proc.own_cpu_s(manager) - before[manager]
        cpu += proc.ended_children_s(manager) - copies_s
    place = f"scrape of {TOPICS * QUEUES_EACH:,} queues, {title}"
    yield Row(place, statistics.median(times) * 1000, "ms", 200)
    yield Row(f"{place}: CPU of the manager", of_manager / SCRAPES * 1000, "ms")
    yield Row(f"{place}: CPU of the broker", cpu / SCRAPES * 1000, "ms")
    yield Row(f"{place}: text", len(text) / 1e6, "MB")
    yield Row(f"{place}: text, packed", len(packed) / 1e6, "MB")


@click.command()
@click.option("--seconds", default=5.0, help="of each window under load")
@click.option("--turns", default=5, help="windows with scrapes")
@click.option("--only", type=click.Choice(("queues", "load")), help="one of the two questions")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
@click.option("--strict", is_flag=True, help="fail if a bar is missed")
def main(seconds: float, turns: int, only: str | None, docs: Path | None, *, strict: bool) -> None:
    """Measure the cost of scrapes."""
    load_average = os.getloadavg()[0]
    rows: list[Row] = []
    if only != "load":
        for title, names in NAMES.items():
            rows += at_many_queues(title, names)
    if only != "queues":
        rows.append(under_load(seconds, turns))
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
