"""The loads of bench.client's processes: each opens clients in the running loop and returns its figures.

A load runs in a process of its own on one core. Sends come from TASKS tasks, each its next one when the last is
acknowledged, or from one task that fills batches. Consumers read a topic that was filled before, with a handler that
does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import os
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs

from rocketpy import aio
from rocketpy.bench import proc
from rocketpy.bench.own_broker import HOST
from rocketpy.client import START_FIRST, Message, Producer, ProducerOptions, PushConsumer, PushOptions, ReceivedMessage

from .brokers import Broker

TOPIC, QUEUES = "BenchClient", 8
FULL_TOPIC, FULL_COUNT = "BenchClientFull", int(os.environ.get("BENCH_CLIENT_MESSAGES", "400000"))
IDLE_TOPIC, IDLE_QUEUES, IDLE_CLIENTS = "BenchClientIdle", 4, 1000
LATENCY_TOPIC, LATENCY_PER_S = "BenchClientLatency", 1000
TASKS, BATCHED_TASKS = 64, 1024
BODY = bytes(1024)
LINGER_S = 0.005
GROUPS = itertools.count()
Send: TypeAlias = Callable[[], Awaitable[object]]
Ports: TypeAlias = tuple[int, int]  # of the broker and of its name server


@attrs.frozen
class Figures:
    """One run: `count` messages in `seconds` on one core, which used `cpu_s` of it."""

    count: int
    seconds: float
    cpu_s: float
    p99_ms: float = 0.0
    mib: float = 0.0

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.count) * 1e6


def options(ports: Ports, **settings: object) -> ProducerOptions:
    return ProducerOptions(name_servers=f"{HOST}:{ports[1]}", **settings)  # type: ignore[arg-type]


# --- sends ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def producer(ports: Ports) -> AsyncIterator[Send]:
    message = Message(TOPIC, BODY)
    async with Producer("bench", options(ports)) as sender:
        yield lambda: sender.send(message)


@contextlib.asynccontextmanager
async def batching_producer(ports: Ports) -> AsyncIterator[Send]:
    message = Message(TOPIC, BODY)
    async with Producer("bench", options(ports, linger=LINGER_S)) as sender:
        yield lambda: sender.send(message)


@contextlib.asynccontextmanager
async def frames(ports: Ports) -> AsyncIterator[Send]:
    """Send as a client that awaits each frame, as a page of Python with asyncio's streams makes it."""
    reader, writer = await asyncio.open_connection(HOST, ports[0])
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


async def sends(
    open_client: Callable[[Ports], contextlib.AbstractAsyncContextManager[Send]],
    tasks: int,
    ports: Ports,
    seconds: float,
) -> Figures:
    """Tasks that await each of their sends."""
    async with open_client(ports) as send:
        await send()
        count, until_s = 0, float("inf")

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < until_s:
                await send()
                count += 1

        async with aio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(work)
            await aio.sleep(min(1.0, seconds / 4))  # to get warm
            count, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
            until_s = began_s + seconds
        return Figures(count, time.perf_counter() - began_s, time.process_time() - cpu_s)


async def batches(ports: Ports, seconds: float) -> Figures:
    """Send in one task that waits for room only; all results are looked at."""
    message, acknowledged = Message(TOPIC, BODY), 0

    def done(handle: object) -> None:
        nonlocal acknowledged
        assert handle.result is not None, handle.error  # type: ignore[attr-defined]
        acknowledged += 1

    async with Producer("bench", options(ports, linger=LINGER_S)) as sender:
        await sender.send(message)
        warm_until_s = time.perf_counter() + min(1.0, seconds / 4)
        while time.perf_counter() < warm_until_s:
            await sender.send_soon(message)
        await sender.flush()
        began_s, cpu_s = time.perf_counter(), time.process_time()
        until_s = began_s + seconds
        while time.perf_counter() < until_s:
            for _ in range(100):
                await sender.send_soon(message, on_done=done)
        await sender.flush()
        return Figures(acknowledged, time.perf_counter() - began_s, time.process_time() - cpu_s)


async def frame_by_frame(ports: Ports, seconds: float) -> Figures:
    """Tasks that share a connection with one request at a time."""
    return await sends(frames, TASKS, ports, seconds)


def prepare(broker: Broker, *, catches_up: bool) -> None:
    """Create the topics; fill the one that consumers read."""
    for topic, queues in ((TOPIC, QUEUES), (FULL_TOPIC, QUEUES), (IDLE_TOPIC, IDLE_QUEUES), (LATENCY_TOPIC, QUEUES)):
        broker.create_topic(topic, queues)
    if catches_up:
        asyncio.run(fill((broker.port, broker.namesrv_port), FULL_TOPIC, FULL_COUNT))


async def fill(ports: Ports, topic: str, count: int) -> None:
    """Send `count` messages."""
    message = Message(topic, BODY)
    async with Producer("bench", options(ports, linger=LINGER_S)) as sender:
        handles = [await sender.send_soon(message) for _ in range(count)]
        await sender.flush()
        for handle in handles:
            await handle


# --- consumers --------------------------------------------------------------------------------------------------------


async def catch_up(by_batches: bool, ports: Ports, seconds: float) -> Figures:
    """Read the full topic with a new group; the first messages, which wait for the rebalance, do not count."""
    handled, begun, ended = 0, 0, aio.Event()
    began_s = cpu_s = 0.0

    def count(messages: int) -> None:
        nonlocal handled, begun, began_s, cpu_s
        handled += messages
        if not begun:
            begun, began_s, cpu_s = handled, time.perf_counter(), time.process_time()
        if handled >= FULL_COUNT:
            ended.set()

    async def handle_one(message: ReceivedMessage) -> None:
        count(1)

    async def handle_batch(messages: Sequence[ReceivedMessage]) -> None:
        count(len(messages))

    group = f"bench-{os.getpid()}-{next(GROUPS)}"
    settings = PushOptions(name_servers=f"{HOST}:{ports[1]}", start=START_FIRST, batch_size_max=32 if by_batches else 1)
    handlers = {"batch_handler": handle_batch} if by_batches else {"handler": handle_one}
    async with PushConsumer(group, {FULL_TOPIC: "*"}, options=settings, **handlers):
        await ended.wait()
        return Figures(handled - begun, time.perf_counter() - began_s, time.process_time() - cpu_s)


async def end_to_end(ports: Ports, seconds: float) -> Figures:
    """Messages that are due at fixed times, from then until the handler has each."""
    late_ms: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        late_ms.append((time.perf_counter_ns() - int(message.body)) / 1e6)

    settings = PushOptions(name_servers=f"{HOST}:{ports[1]}", start=START_FIRST)
    group = f"bench-{os.getpid()}-{next(GROUPS)}"
    consumer = PushConsumer(group, {LATENCY_TOPIC: f"T{os.getpid()}"}, handle, options=settings)
    async with Producer("bench", options(ports)) as sender, consumer:
        while not consumer.assignment:
            await aio.sleep(0.01)
        await aio.sleep(1.0)

        async def send(due_ns: int) -> None:
            await sender.send(Message(LATENCY_TOPIC, b"%d" % due_ns, tags=f"T{os.getpid()}"))

        count = round(seconds * LATENCY_PER_S)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        async with aio.open_nursery() as nursery:
            begin_ns = time.perf_counter_ns() + 50_000_000
            for number in range(count):
                due_ns = begin_ns + number * 1_000_000_000 // LATENCY_PER_S
                if (left_ns := due_ns - time.perf_counter_ns()) > 0:
                    await aio.sleep(left_ns / 1e9)
                nursery.start_soon(send, due_ns)
        while len(late_ms) < count:
            await aio.sleep(0.01)
        counted = sorted(late_ms[LATENCY_PER_S:])
        p99_ms = counted[len(counted) * 99 // 100]
        return Figures(count, time.perf_counter() - began_s, time.process_time() - cpu_s, p99_ms=p99_ms)


async def idle(ports: Ports, seconds: float) -> Figures:
    """Consumers of a group each, whose pulls wait for messages. The groups of all runs are the same: to make more and
    more would measure the files of the broker."""

    async def handle(message: ReceivedMessage) -> None: ...

    began_s, cpu_s = time.perf_counter(), time.process_time()
    settings = PushOptions(name_servers=f"{HOST}:{ports[1]}")
    async with contextlib.AsyncExitStack() as stack:
        consumers = [
            PushConsumer(f"bench-idle-{number}", {IDLE_TOPIC: "*"}, handle, options=settings)
            for number in range(IDLE_CLIENTS)
        ]
        for consumer in consumers:
            await stack.enter_async_context(consumer)
        while not all(len(consumer.assignment) >= IDLE_QUEUES for consumer in consumers):
            await aio.sleep(0.1)
        await aio.sleep(seconds)
        gc.collect()
        mib = proc.pss_mib([os.getpid()], Path("/nowhere"))
        return Figures(IDLE_CLIENTS, time.perf_counter() - began_s, time.process_time() - cpu_s, mib=mib)


LOADS: dict[str, Callable[[Ports, float], Awaitable[Figures]]] = {  # in the order of the runs: client.py says why
    "catch-up by batches": partial(catch_up, True),
    "catch-up one by one": partial(catch_up, False),
    "awaited sends": partial(sends, producer, TASKS),
    "batches, sends awaited by 1024 tasks": partial(sends, batching_producer, BATCHED_TASKS),
    "batches": batches,
    "end to end": end_to_end,
    "idle consumers": idle,
}
