"""`python -m bench.replication`: a master with one slave, rocketpy's and Java's pair in turn.

Three questions. How fast does a master answer that waits for its slave (SYNC_MASTER)? What does a slave cost a master
that does not wait, beyond the CPU time that the slave takes itself? How fast does an empty slave catch up?
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs
import click

from rocketpy.bench import proc
from rocketpy.bench.load import Load, Mode, Result, Workload
from rocketpy.bench.own_broker import HOST

from . import report
from .brokers import TARGETS, Broker, running
from .pairs import GROUP_SETTINGS, slave_of, wait_until_copied
from .scenarios import STORE_BYTES_MAX

TOPIC, QUEUES, BODY = "bench_pairs", 16, 1024
WARM_UP_S = {"java": 10.0, "rocketpy": 3.0}
RECORD_OVERHEAD = 250
THROUGHPUT_BAR, P99_BAR, COST_BAR_PERCENT, CATCH_UP_BAR = 2.0, 0.5, 10.0, 1000.0
SYNC, ASYNC = ({"brokerRole": role} | GROUP_SETTINGS for role in ("SYNC_MASTER", "ASYNC_MASTER"))
SYNC_64X1, SYNC_64X64 = "SYNC_MASTER 64x1", "SYNC_MASTER 64x64"
ALONE, FOLLOWED, CATCH_UP = "ASYNC_MASTER 64x64 alone", "ASYNC_MASTER 64x64 with slave", "catch-up"


@attrs.frozen
class Cpu:
    """CPU seconds up to now."""

    master: float
    slave: float
    free: float  # what the machine had for this pair and its load, idle time included

    @classmethod
    def now(cls, master: Broker, slave: Broker | None) -> Cpu:
        """Read CPU seconds. `free`: idle time, and the time that pair and driver have used."""
        _, idle = proc.machine_ticks()
        of_master, of_slave = master.cpu_s(), slave.cpu_s() if slave else 0.0
        return cls(of_master, of_slave, idle / proc.TICKS_PER_S + of_master + of_slave + time.process_time())


@attrs.frozen
class Figures:
    """Of one load."""

    messages_per_s: float
    p50_us: float
    p99_us: float
    master_cpu_us: float  # per message
    slave_cpu_us: float
    driver_percent: float  # of a core
    per_free_cpu_s: float  # messages per second of CPU time that was free, less what the slave took
    errors: dict[str, int]


def open_load(broker: Broker, in_flight: int) -> Load:
    bound = STORE_BYTES_MAX // (BODY + RECORD_OVERHEAD)
    workload = Workload(Mode.SEND, 64, in_flight, BODY, requests_max=bound)
    return Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES)


def figures_of(result: Result, before: Cpu, after: Cpu) -> Figures:
    messages = max(1, result.messages)
    slave_s = after.slave - before.slave
    return Figures(
        result.messages_per_s,
        result.latency_us.p50,
        result.latency_us.p99,
        round((after.master - before.master) * 1e6 / messages, 2),
        round(slave_s * 1e6 / messages, 2),
        round(result.driver_cpu_s / result.seconds * 100, 1),
        round(result.messages / max(1e-9, after.free - before.free - slave_s), 1),
        result.errors,
    )


def measure(master: Broker, slave: Broker | None, in_flight: int, seconds: float) -> Figures:
    with open_load(master, in_flight) as load:
        load.run(seconds / 4)
        before = Cpu.now(master, slave)
        result = load.measure(seconds)
        after = Cpu.now(master, slave)
    master.check_alive()
    if slave is not None:
        wait_until_copied(master, slave)
    os.sync()
    return figures_of(result, before, after)


def warm_up(master: Broker) -> None:
    with open_load(master, 64) as load:
        load.run(WARM_UP_S[master.target])
        load.drain()


def run_sync(target: str, seconds: float) -> dict[str, Figures]:
    """Measure a SYNC_MASTER with a slave."""
    with running(target, settings=SYNC) as master, slave_of(master) as slave:
        master.create_topic(TOPIC, QUEUES)
        wait_until_copied(master, slave)
        warm_up(master)
        wait_until_copied(master, slave)
        return {
            name: measure(master, slave, in_flight, seconds) for name, in_flight in ((SYNC_64X1, 1), (SYNC_64X64, 64))
        }


def mb_per_s(seen: list[tuple[float, int]]) -> float:
    """Return MB/s of a log that grew as it was seen: (monotonic time in s, end in bytes), first to last."""
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return round((last - first) / max(1e-9, last_s - first_s) / 1e6, 1)


def copy_mb_per_s(store: Path, size: int) -> float:
    """Return the MB/s of this disk when the last `size` bytes of the log are just read and written, without sync."""
    target = store.parent / "copy"
    files = sorted((store / "commitlog").iterdir())
    target.mkdir()
    left, begin_s = size, time.monotonic()
    for file in files[-1 - size // (1 << 30) :]:
        with file.open("rb") as source, (target / file.name).open("wb") as sink:
            while left > 0 and (data := source.read(min(left, 1 << 20))):
                sink.write(data)
                left -= len(data)
    took_s = time.monotonic() - begin_s
    shutil.rmtree(target)
    return round((size - left) / took_s / 1e6, 1)


def run_async(target: str, seconds: float) -> tuple[list[Figures], Figures, tuple[float, float]]:
    """Measure an ASYNC_MASTER: alone, before and after the time with a slave; with it; MB/s of catch-up and raw copy.

    Before and after, because pages that a machine has used before are cheaper than those that it has not.
    """
    with running(target, settings=ASYNC) as master:
        master.create_topic(TOPIC, QUEUES)
        warm_up(master)
        os.sync()
        before = measure(master, None, 64, seconds)
        with slave_of(master) as slave:
            seen = wait_until_copied(master, slave)
            caught_up = mb_per_s(seen), copy_mb_per_s(master.store, seen[-1][1])
            os.sync()
            followed = measure(master, slave, 64, seconds)
        return [before, measure(master, None, 64, seconds)], followed, caught_up


def cost_percent(alone: list[Figures], followed: Figures) -> float:
    """Return how much slower the master is with a slave, on the CPU time that is left beside the slave."""
    without = statistics.mean(figures.per_free_cpu_s for figures in alone)
    return round((1 - followed.per_free_cpu_s / without) * 100, 1)


def verdict(scenario: str, metric: str, ratio: float) -> tuple[str, str]:
    """Return the bar of a metric, and `holds` or `missed`; empty texts: it has no bar."""
    if scenario.startswith("SYNC") and metric == "messages_per_s":
        return f"ratio at least {THROUGHPUT_BAR:g}", "holds" if ratio >= THROUGHPUT_BAR else "missed"
    if scenario == SYNC_64X1 and metric == "p99_us":
        return f"ratio at most {P99_BAR:g}", "holds" if ratio <= P99_BAR else "missed"
    return "", ""


def rows(found: Mapping[tuple[str, str], list[Figures]]) -> list[tuple[str, ...]]:
    """Return the rows of the table. `found`: by target and scenario."""
    table: list[tuple[str, ...]] = []
    for scenario in (SYNC_64X1, SYNC_64X64, ALONE, FOLLOWED):
        for field in attrs.fields(Figures):
            if field.name == "errors":
                continue
            ours, java = (report.median_of(found[target, scenario], field.name) for target in TARGETS)
            ratio = ours / max(java, 1e-9)
            bar = verdict(scenario, field.name, ratio)
            table.append((scenario, field.name, report.number(ours), report.number(java), f"{ratio:.2f}", *bar))
    return table


def slave_rows(
    costs: Mapping[str, list[float]], copies: Mapping[str, list[tuple[float, float]]]
) -> list[tuple[str, ...]]:
    """Cost of a slave and its catch-up, by target."""
    ours, java = (statistics.median(costs[target]) for target in TARGETS)
    holds = "holds" if ours <= COST_BAR_PERCENT else "missed"
    table: list[tuple[str, ...]] = [
        ("cost of a slave", "percent", f"{ours:g}", f"{java:g}", "", f"at most {COST_BAR_PERCENT:g}", holds)
    ]
    caught_up, raw = ([statistics.median(pair[i] for pair in copies[target]) for target in TARGETS] for i in (0, 1))
    bar = min(CATCH_UP_BAR, raw[0])
    ratio = f"{caught_up[0] / max(caught_up[1], 1e-9):.2f}"
    holds = "holds" if caught_up[0] >= bar else "missed"
    table.append((CATCH_UP, "MB/s", *map(report.number, caught_up), ratio, f"at least {bar:g}", holds))
    table.append(("raw copy of the same bytes", "MB/s", *map(report.number, raw), "", "", ""))
    return table


@click.command()
@click.option("--seconds", default=5.0, help="of each measurement")
@click.option("--repeat", default=3, help="turns of each pair")
@click.option("--only", type=click.Choice(["sync", "async"]), help="one kind of master; prints figures, and no table")
@click.option("--target", "targets", type=click.Choice(TARGETS), multiple=True, help="with --only: which pairs")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, only: str | None, targets: tuple[str, ...], docs: Path | None) -> None:
    """Compare pairs of master and slave of both brokers, in turn."""
    found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    costs: dict[str, list[float]] = defaultdict(list)
    copies: dict[str, list[tuple[float, float]]] = defaultdict(list)
    load_average = os.getloadavg()[0]
    for turn in range(repeat):
        for target in [target for target in TARGETS[:: 1 - turn % 2 * 2] if not targets or target in targets]:
            of_turn = list(run_sync(target, seconds).items()) if only != "async" else []
            if only != "sync":
                alone, followed, copied = run_async(target, seconds)
                of_turn += [*((ALONE, figures) for figures in alone), (FOLLOWED, followed)]
                costs[target].append(cost_percent(alone, followed))
                copies[target].append(copied)
                click.echo(f"turn {turn} {target} cost {costs[target][-1]} %, catch-up and raw copy {copied} MB/s")
            for name, figures in of_turn:
                found[target, name].append(figures)
                click.echo(f"turn {turn} {target} {name}: {figures}")
    if only or targets:
        return
    table = rows(found) + slave_rows(costs, copies)
    for line in table:
        click.echo(" | ".join(line))
    if docs is not None:
        write_page(docs, table, repeat, seconds, load_average)


def write_page(path: Path, table: list[tuple[str, ...]], repeat: int, seconds: float, load_average: float) -> None:
    headings = ("scenario", "metric", "rocketpy", "Java 4.9.7", "ratio", "bar", "")
    path.write_text(
        f"""{report.page_head("Replication", "bench.replication")}
Master, slave, name server and load generator share the cores. All brokers flush asynchronously; each Java broker has a
heap of 1 GB. Medians of {repeat} turns of {seconds:g} s, messages of 1 KiB. Load average before the run:
{load_average:.1f}.

- `per_free_cpu_s`: the master's messages per second of CPU time that other programs and the slave's processes leave.
- Cost of a slave: how much lower `per_free_cpu_s` is with the slave than without it. It leaves out the slave's own CPU
  time, `slave_cpu_us` for each message of its master, and hardly depends on other programs.
- Catch-up: an empty slave copies the log of an idle master; Java's copies the last file only, rocketpy's the whole log.
- Raw copy: the same bytes, read from the page cache and written to the same disk, without sync.

{report.markdown_table(headings, iter(table))}
"""
    )


if __name__ == "__main__":
    main()
