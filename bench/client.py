"""Measures awaited sends of the Python client, in each loop, beside a client that awaits each frame.

    python -m bench.client --seconds 5 --repeat 5

64 tasks send messages of 1 KiB, each its next one when the last is acknowledged. A client is a process of its own on
one core, of which it may use all; the broker has the other cores. The client that awaits each frame is what a page of
Python with asyncio's streams makes: one connection, one request on it at a time. The clients take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import struct
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import attrs
import click

from rocketpy import aio
from rocketpy.client import Message, Producer, ProducerOptions

from . import imports, report
from .brokers import HOST, Broker, running

TOPIC, QUEUES = "BenchClient", 8
TASKS = 64
BODY = bytes(1024)
FRAMES = "awaits each frame"
BAR_PER_S, BAR_RATIO = 20_000, 3.0
IMPORTS = 9
Send = Callable[[], Awaitable[object]]


@attrs.frozen
class Figures:
    """One run: sends in `seconds` on one core, which used `cpu_s` of it."""

    sends: int
    seconds: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.sends / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.sends) * 1e6


@contextlib.asynccontextmanager
async def producer(port: int, namesrv_port: int) -> contextlib.AbstractAsyncContextManager[Send]:  # type: ignore[misc]
    message = Message(TOPIC, BODY)
    async with Producer("bench", ProducerOptions(name_servers=f"{HOST}:{namesrv_port}")) as sender:
        yield lambda: sender.send(message)


@contextlib.asynccontextmanager
async def frames(port: int, namesrv_port: int) -> contextlib.AbstractAsyncContextManager[Send]:  # type: ignore[misc]
    """The client that awaits each frame."""
    reader, writer = await asyncio.open_connection(HOST, port)
    lock, opaque = asyncio.Lock(), 0

    async def send() -> None:
        nonlocal opaque
        async with lock:
            opaque += 1
            fields = {
                "a": "bench",
                "b": TOPIC,
                "c": "TBW102",
                "d": "4",
                "e": str(opaque % QUEUES),
                "f": "0",
                "h": "0",
                "g": str(time.time_ns() // 1_000_000),
                "i": f"UNIQ_KEY\x01{opaque:032X}",
                "k": "false",
                "m": "false",
            }
            header = json.dumps(
                {"code": 310, "language": "PYTHON", "version": 409, "opaque": opaque, "flag": 0, "extFields": fields}
            ).encode()
            writer.write(struct.pack(">ii", 4 + len(header) + len(BODY), len(header)) + header + BODY)
            await writer.drain()
            size, header_size = struct.unpack(">ii", await reader.readexactly(8))
            answer = json.loads((await reader.readexactly(size - 4))[:header_size])
            assert answer["code"] == 0, answer

    yield send
    writer.close()


async def load(open_client: Callable[..., object], ports: tuple[int, int], seconds: float) -> Figures:
    async with open_client(*ports) as send:  # type: ignore[attr-defined]
        await send()
        sends, until_s = 0, float("inf")

        async def work() -> None:
            nonlocal sends
            while time.perf_counter() < until_s:
                await send()
                sends += 1

        async with aio.open_nursery() as nursery:
            for _ in range(TASKS):
                nursery.start_soon(work)
            await aio.sleep(min(1.0, seconds / 4))  # to get warm
            sends, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
            until_s = began_s + seconds
        return Figures(sends, time.perf_counter() - began_s, time.process_time() - cpu_s)


def run_client(name: str, ports: tuple[int, int], seconds: float, results: Connection) -> None:
    """The process of a client."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if name == "trio":
        import trio

        figures = trio.run(load, producer, ports, seconds)
    else:
        factory = None
        if name == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            figures = runner.run(load(frames if name == FRAMES else producer, ports, seconds))
    results.send(figures)


def measure(name: str, broker: Broker, seconds: float) -> Figures:
    ours, theirs = multiprocessing.Pipe()
    ports = (broker.port, broker.namesrv_port)
    process = multiprocessing.get_context("spawn").Process(target=run_client, args=(name, ports, seconds, theirs))
    process.start()
    try:
        if not ours.poll(60 + 2 * seconds):
            raise TimeoutError(f"the client of {name} does not end")
        figures: Figures = ours.recv()
        return figures
    finally:
        process.join(5)
        process.kill()


def rows(found: dict[str, list[Figures]]) -> Iterator[tuple[str, ...]]:
    frames_per_s = statistics.median(one.per_s for one in found[FRAMES])
    for name, runs in found.items():
        per_s = statistics.median(one.per_s for one in runs)
        ratio, is_ours = per_s / frames_per_s, name != FRAMES
        holds = "" if not is_ours else "holds" if per_s >= BAR_PER_S and ratio >= BAR_RATIO else "missed"
        cpu_us = statistics.median(one.cpu_us for one in runs)
        yield name, f"{per_s:,.0f}", f"{cpu_us:.0f}", f"{ratio:.1f}" if is_ours else "", holds


@click.command()
@click.option("--seconds", default=5.0, help="of each run")
@click.option("--repeat", default=5, help="runs of each client")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, docs: Path | None) -> None:
    """Compare the client in its loops, in turn."""
    found: dict[str, list[Figures]] = defaultdict(list)
    names = ["trio", "asyncio", "uvloop", FRAMES]
    load_average = os.getloadavg()[0]
    imported = imports.table(IMPORTS)
    click.echo(imported)
    with running("rocketpy") as broker:
        broker.create_topic(TOPIC, QUEUES)
        for turn in range(repeat):
            for name in names if turn % 2 == 0 else names[::-1]:
                figures = measure(name, broker, seconds)
                found[name].append(figures)
                click.echo(f"turn {turn + 1} {name}: {figures.per_s:,.0f}/s, {figures.cpu_us:.1f} us of CPU each")
    headings = ("client", "sends/s", "CPU (us)", "ratio", f"bar: {BAR_PER_S:,}/s and {BAR_RATIO:g} times the last")
    table = report.markdown_table(headings, rows({name: found[name] for name in names}))
    click.echo(table)
    if docs is not None:
        docs.write_text(
            f"""{report.page_head("Sends of the Python client", "bench.client")}
{TASKS} tasks send messages of 1 KiB, each its next one when the last is acknowledged; the client has one core. The last
row is a client of asyncio's streams with one request on its connection at a time. Medians of {repeat} runs of
{seconds:g} s. Load average before the run: {load_average:.1f}.

{table}

Imports of the client in a new interpreter, beside one of trio and attrs; medians of {IMPORTS}.

{imported}
"""
        )


if __name__ == "__main__":
    main()
