"""Measures the Python client in each loop: sends, batches, consumers.

    python -m bench.client --seconds 5 --repeat 5
    python -m bench.client --only "catch-up" --loop uvloop --profile client.prof

A client is a process of its own on one core, of which it may use all; the broker has the other cores. The loads are in
client_loads.py, their bars below. The loops take turns in each load. Catch-up comes first: sends would push its topic
out of the 40 % of memory (accessMessageInMemoryMaxRatio) beyond which a broker answers with 64 KiB at a time.
"""

from __future__ import annotations

import asyncio
import cProfile
import multiprocessing
import os
import statistics
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import attrs
import click

from . import client_loads, imports, report
from .brokers import Broker, running
from .client_loads import LOADS, Figures

LOOPS = ("trio", "asyncio", "uvloop")
FRAMES = "a client that awaits each frame"
BAR_RATIO = 3.0
BARS = {
    "awaited sends": 20_000,
    "batches": 150_000,
    "catch-up by batches": 200_000,
    "catch-up one by one": 60_000,
}  # messages/s
BAR_P99_MS, BAR_MIB = 3.0, 95.0  # 100 MB
TIMEOUT_S = 180.0
IMPORTS = 9


@attrs.frozen
class Run:
    """A load in a loop."""

    load: str
    loop: str


def run_client(run: Run, ports: tuple[int, int], seconds: float, profile: str | None, results: Connection) -> None:
    """Run the process of a client."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    profiler = cProfile.Profile() if profile else None
    load = LOADS.get(run.load, client_loads.frame_by_frame)
    if profiler is not None:
        profiler.enable()
    if run.loop == "trio":
        import trio

        figures = trio.run(load, ports, seconds)
    else:
        factory = None
        if run.loop == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            figures = runner.run(load(ports, seconds))  # type: ignore[arg-type]  # a coroutine
    if profiler is not None:
        profiler.disable()
        profiler.dump_stats(profile)  # type: ignore[arg-type]  # not None
    results.send(figures)


def measure(run: Run, broker: Broker, seconds: float, profile: str | None = None) -> Figures:
    ours, theirs = multiprocessing.Pipe()
    arguments = (run, (broker.port, broker.namesrv_port), seconds, profile, theirs)
    process = multiprocessing.get_context("spawn").Process(target=run_client, args=arguments)
    process.start()
    try:
        if not ours.poll(TIMEOUT_S + 2 * seconds):
            raise TimeoutError(f"{run} does not end")
        figures: Figures = ours.recv()
        return figures
    finally:
        process.join(5)
        process.kill()


def shown(run: Run, one: Figures) -> str:
    """Return the figure of a run that has a bar."""
    if one.mib:
        return f"{one.mib:.0f} MiB"
    return f"p99 {one.p99_ms:.2f} ms" if one.p99_ms else f"{one.per_s:,.0f}/s"


def verdict(run: Run, one: Figures, frames_per_s: float) -> str:
    """Return the bar of a run, and whether it `holds` or was `missed`; empty: it has no bar."""
    if one.mib:
        is_held, bar = one.mib <= BAR_MIB, f"{BAR_MIB:g} MiB"
    elif one.p99_ms:
        is_held, bar = one.p99_ms <= BAR_P99_MS, f"{BAR_P99_MS:g} ms"
    elif run.load in BARS:
        is_held, bar = one.per_s >= BARS[run.load], f"{BARS[run.load]:,}/s"
        if run.load == "awaited sends" and frames_per_s:
            ratio = one.per_s / frames_per_s
            is_held, bar = is_held and ratio >= BAR_RATIO, f"{bar} and {BAR_RATIO:g} times the last (is {ratio:.1f})"
    else:
        return ""
    return f"{bar}: {'holds' if is_held else 'missed'}"


def median(runs: list[Figures]) -> Figures:
    """Return the middle run, by rate, latency and memory."""
    return sorted(runs, key=lambda one: (one.mib, one.p99_ms, one.per_s))[len(runs) // 2]


def rows(found: dict[Run, list[Figures]]) -> Iterator[tuple[str, ...]]:
    frames = found.get(Run(FRAMES, "asyncio"))
    frames_per_s = statistics.median(one.per_s for one in frames) if frames else 0.0
    for run, runs in found.items():
        one = median(runs)
        yield run.load, run.loop, shown(run, one), f"{one.cpu_us:.1f}", verdict(run, one, frames_per_s)


def chosen(only: str, loops: tuple[str, ...]) -> list[Run]:
    runs = [Run(load, loop) for load in LOADS for loop in loops if only in load]
    return runs + ([Run(FRAMES, "asyncio")] if "awaited" in only or not only else [])


def comparisons(runs: list[Run]) -> list[list[Run]]:
    """List the runs that take turns: the loops of a load, and for awaited sends the client that awaits each frame."""
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found["awaited sends" if run.load == FRAMES else run.load].append(run)
    return list(found.values())


@click.command()
@click.option("--seconds", default=5.0, help="of each run")
@click.option("--repeat", default=5, help="runs of each client")
@click.option("--only", default="", help="loads with this in their name")
@click.option("--loop", "loops", multiple=True, type=click.Choice(LOOPS), default=LOOPS, help="only in these loops")
@click.option("--profile", help="write a profile of the last run to this file (cProfile)")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(
    seconds: float, repeat: int, only: str, loops: tuple[str, ...], profile: str | None, docs: Path | None
) -> None:
    """Compare the client in its loops, in turn."""
    found: dict[Run, list[Figures]] = defaultdict(list)
    runs = chosen(only, loops)
    load_average = os.getloadavg()[0]
    imported = imports.table(IMPORTS)
    click.echo(imported)
    with running("rocketpy") as broker:
        client_loads.prepare(broker, catches_up=any("catch-up" in run.load for run in runs))
        for compared in comparisons(runs):
            for turn in range(repeat):
                for run in compared if turn % 2 == 0 else compared[::-1]:
                    figures = measure(run, broker, seconds, profile)
                    found[run].append(figures)
                    text = f"{shown(run, figures)}, {figures.cpu_us:.1f} us of CPU each"
                    click.echo(f"turn {turn + 1} {run.load}, {run.loop}: {text}")
    headings = ("load", "loop", "median", "CPU (us)", "bar")
    table = report.markdown_table(headings, rows({run: found[run] for run in runs}))
    click.echo(table)
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("The Python client", "bench.client")}
Messages have 1 KiB; the client has one core. Awaited sends: {client_loads.TASKS} tasks, each its next one when the last
is acknowledged. Batches: one task, a linger of {client_loads.LINGER_S * 1000:g} ms. Catch-up: a new group with default
settings and a handler that does nothing. End to end: {client_loads.LATENCY_PER_S:,}/s from one client to its handler.
Idle: {client_loads.IDLE_CLIENTS:,} groups in one process. Medians of {repeat} runs of {seconds:g} s. Load before:
{load_average:.1f}.

{table}

Imports of the client in a new interpreter, beside one of trio and attrs; medians of {IMPORTS}.

{imported}
"""
        )


if __name__ == "__main__":
    main()
