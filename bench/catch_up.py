"""`python -m bench.catch_up`: how fast an empty slave copies its master's log, and what each worker pays for it.

A master is filled once. Each turn starts an empty slave beside the idle master, and times from when the slave answers
to the last byte that it has published. CPU seconds per GB of log hold on a busy machine; MB/s do not. The raw copy
reads the same bytes from the page cache and writes them to the same disk, without sync.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import click
import trustme

from rocketpy.bench.own_broker import tail

from .brokers import Broker, BrokerFailed, running
from .lag import ControlView
from .pairs import extent, slave_of
from .replication import ASYNC, BODY, QUEUES, RECORD_OVERHEAD, TOPIC, copy_mb_per_s, open_load
from .tls import TLS_SETTINGS, write_certificate

LOOK_S, TIMEOUT_S = 0.002, 120.0
COST_MIN = 0.005  # CPU s per GB; less is not shown


@attrs.frozen
class Turn:
    """One catch-up."""

    mb_per_s: float
    raw_mb_per_s: float  # of a copy by read and write
    dispatched_s: float  # after the last byte was published: until queues and index were built, too
    raw_cpu_s_per_gb: float
    cpu_s_per_gb: dict[str, float]  # by worker, as far as it used any


def fill(master: Broker, gigabytes: float) -> int:
    """Send until the log has that much. Returns its end."""
    master.create_topic(TOPIC, QUEUES)
    view = ControlView(master.store)
    try:
        while (end := int(view.header.published_phy_offset)) < gigabytes * 1e9:
            wanted = int((gigabytes * 1e9 - end) / (BODY + RECORD_OVERHEAD)) + 1
            with open_load(master, 64) as load:
                load.run(min(2.0, wanted / 100_000))
                load.drain()
        while view.header.dispatched_phy_offset < end or view.header.durable_phy_offset < end:
            time.sleep(LOOK_S)
    finally:
        view.close()
    os.sync()
    return end


def cpu_by_worker(master: Broker, slave: Broker) -> dict[str, float]:
    """CPU seconds up to now, of each worker by the name that `ps` shows."""
    sides = {"master": master.cpu_by_process(), "slave": slave.cpu_by_process()}
    return {f"{side} {name}": cpu_s for side, found in sides.items() for name, cpu_s in found.items()}


def wait_until(slave: Broker, reached: Callable[[], bool]) -> float:
    """Wait until `reached` is true, and return the time (monotonic, s).

    Raises:
        BrokerFailed: the slave has ended, or it was not true within TIMEOUT_S.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while not reached():
        slave.check_alive()
        if time.monotonic() > deadline_s:
            raise BrokerFailed(f"the slave did not get there in {TIMEOUT_S} s\n{tail(slave.directory)}")
        time.sleep(LOOK_S)
    return time.monotonic()


def costs_per_gb(before: Mapping[str, float], after: Mapping[str, float], size: int) -> dict[str, float]:
    """CPU seconds per GB by worker; those that used next to none are left out."""
    costs = {name: round((after[name] - before.get(name, 0.0)) / size * 1e9, 3) for name in sorted(after)}
    return {name: cost for name, cost in costs.items() if cost >= COST_MIN}


def catch_up(master: Broker, end: int, settings: Mapping[str, str]) -> Turn:
    """Start an empty slave with these settings and wait until it has the log up to `end`."""
    with slave_of(master, settings=settings) as slave:
        wait_until(slave, lambda: extent(slave)[1] > 0)  # before, the control block may be made anew
        view = ControlView(slave.store)
        try:
            header = view.header
            begun_s, begun = time.monotonic(), int(header.published_phy_offset)
            before = cpu_by_worker(master, slave)
            copied_s = wait_until(slave, lambda: header.published_phy_offset >= end)
            dispatched_s = wait_until(slave, lambda: header.dispatched_phy_offset >= end)
            after = cpu_by_worker(master, slave)
        finally:
            view.close()
    size = end - begun
    os.sync()
    raw_begun_s, raw = time.process_time(), copy_mb_per_s(master.store, size)
    return Turn(
        round(size / (copied_s - begun_s) / 1e6, 1),
        raw,
        round(dispatched_s - copied_s, 3),
        round((time.process_time() - raw_begun_s) / size * 1e9, 3),
        costs_per_gb(before, after, size),
    )


def by_tls(directory: Path) -> dict[str, str]:
    """Return the properties of a pair that replicates by TLS; files of certificates are in the directory."""
    chain, key = write_certificate(directory, trustme.KeyType.ECDSA)
    served = dict(zip(TLS_SETTINGS, ("permissive", str(chain), str(key)), strict=True))
    return served | {"useTLS": "true", "haUseTLS": "true", "tls.client.authServer": "false"}


@click.command()
@click.option("--gigabytes", default=3.0, help="of the master's log")
@click.option("--repeat", default=3, help="slaves, one after the other")
@click.option("--tls", "has_tls", is_flag=True, help="the log goes by TLS")
def main(gigabytes: float, repeat: int, has_tls: bool) -> None:
    """Print each turn, and the medians."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketpy-bench-tls-"))
        settings = by_tls(Path(directory)) if has_tls else {}
        master = stack.enter_context(running("rocketpy", settings=ASYNC | settings))
        end = fill(master, gigabytes)
        turns = []
        for _ in range(repeat):
            turns.append(catch_up(master, end, settings))
            click.echo(turns[-1])
    for name in sorted({name for turn in turns for name in turn.cpu_s_per_gb}):
        click.echo(f"{name}: {statistics.median(turn.cpu_s_per_gb.get(name, 0) for turn in turns):.3f} CPU s/GB")
    click.echo(f"all: {statistics.median(sum(turn.cpu_s_per_gb.values()) for turn in turns):.3f} CPU s/GB")
    for field in ("mb_per_s", "raw_mb_per_s", "raw_cpu_s_per_gb", "dispatched_s"):
        click.echo(f"{field}: {statistics.median(getattr(turn, field) for turn in turns):g}")


if __name__ == "__main__":
    main()
