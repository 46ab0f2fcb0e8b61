"""The load of the client generator: producers, groups of consumers, a pace, and what they measure.

One asyncio loop holds all clients. Sends of an open loop are released by a thread that sleeps until each is due: timers
of a loop are rounded to milliseconds. Latency counts from the due time, which the body carries.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # hdrhistogram ships no types

from ..cluster import BenchFailed
from ..own_broker import OwnBroker
from ..result import LATENCY_MAX_NS, PERCENTILES, Figures, Run, Tick, latency_figures
from ..scenario import Scenario
from .system import STOP_S_MAX, Connect, Send, System

STAMP = struct.Struct(">q")
IN_FLIGHT_MAX = 4096  # of all producers: each is a task
INTERVAL_S = 1.0
SHORT_OF = (
    *("batch_size", "transactions", "delay_level", "delay_millis"),
    *("random_reads", "consumer_backlog_size_gb", "idle_connections", "kill_after", "filter_expression"),
)
SENDS, END_TO_END = "send", "end_to_end"


def new_histograms() -> dict[str, HdrHistogram]:
    return {name: HdrHistogram(1, LATENCY_MAX_NS, 3) for name in (SENDS, END_TO_END)}


@attrs.define(eq=False)
class Measured:
    """Counts since it was made or cleared: of the whole run, and of the current second."""

    whole: dict[str, HdrHistogram] = attrs.field(factory=new_histograms)
    second: dict[str, HdrHistogram] = attrs.field(factory=new_histograms)
    errors: dict[str, int] = attrs.field(factory=dict)
    failed_before: int = 0

    def record(self, kind: str, nanoseconds: int) -> None:
        value = min(max(nanoseconds, 1), LATENCY_MAX_NS)
        self.whole[kind].record_value(value)
        self.second[kind].record_value(value)

    def fail(self, error: Exception) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1

    def clear(self) -> None:
        self.whole, self.second, self.errors, self.failed_before = new_histograms(), new_histograms(), {}, 0

    def count(self, kind: str) -> int:
        return int(self.whole[kind].get_total_count())

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    def row(self, at_s: float, seconds: float) -> Figures:
        """Return the row of the current second, and begin the next one."""
        row = {
            "at_s": round(at_s, 3),
            "messages_per_s": round(self.second[SENDS].get_total_count() / seconds, 1),
            "consumed_per_s": round(self.second[END_TO_END].get_total_count() / seconds, 1),
            "errors": self.failed - self.failed_before,
        }
        for kind, histogram in self.second.items():
            row |= latency_figures(histogram, kind, ("p50", "p99", "max"))
        self.second, self.failed_before = new_histograms(), self.failed
        return row


class Pace:
    """Releases sends at their due times, for tasks of one loop; without a rate at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Semaphore(0)
        self._taken = 0
        self._stopped = threading.Event()
        self._begin_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._release, name="pace")
        if rate:
            self._thread.start()

    async def due_ns(self) -> int:
        """Wait until the next send is due; returns the time at which it was."""
        if not self._rate:
            return time.monotonic_ns()
        await self._due.acquire()
        self._taken += 1
        return self._begin_ns + int((self._taken - 1) * 1e9 / self._rate)

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _release(self) -> None:
        released = 0
        while not self._stopped.is_set():
            due = int((time.monotonic_ns() - self._begin_ns) * self._rate / 1e9) + 1
            if due > released:
                self._loop.call_soon_threadsafe(self._add, due - released)
                released = due
            self._stopped.wait(max(0.0, (self._begin_ns + released * 1e9 / self._rate - time.monotonic_ns()) / 1e9))

    def _add(self, count: int) -> None:
        for _ in range(count):
            self._due.release()


@attrs.frozen
class ClientGenerator:
    """Runs scenarios by the Python client of a system. `broker`: its server, if this benchmark has started it."""

    connect: Connect
    tick: Tick
    broker: OwnBroker | None = None

    def run(self, scenario: Scenario) -> Run:
        """Return one run of a point, with topics of its own.

        Raises:
            BenchFailed: the scenario needs the native generator, or nothing was acknowledged.
        """
        default = Scenario()
        if more := [name for name in SHORT_OF if getattr(scenario, name) != getattr(default, name)]:
            raise BenchFailed(f"the client generator has no {', '.join(more)}: use --generator native")
        return asyncio.run(self._run(scenario))

    async def _run(self, scenario: Scenario) -> Run:
        run = os.urandom(4).hex()
        topics = [f"RocketpyBench-{run}-{number}" for number in range(scenario.topics)]
        async with self.connect() as system:
            await system.make_topics(topics, scenario.partitions_per_topic)
            try:
                found = await self._load(scenario, system, topics, run)
            except BaseException:
                with contextlib.suppress(Exception):  # the server may be gone: the first error counts
                    async with asyncio.timeout(STOP_S_MAX):
                        await system.delete_topics(topics)
                raise
            await system.delete_topics(topics)
            return found

    async def _load(self, scenario: Scenario, system: System, topics: Sequence[str], run: str) -> Run:
        measured = Measured()

        def receive(body: bytes) -> None:
            measured.record(END_TO_END, time.monotonic_ns() - STAMP.unpack_from(body)[0])

        async with contextlib.AsyncExitStack() as stack:
            for group in range(scenario.subscriptions_per_topic):
                for _ in range(scenario.consumer_per_subscription):
                    await stack.enter_async_context(system.consumer(f"bench-{run}-{group}", topics, receive))
            count = scenario.producers_per_topic * scenario.topics
            producers = [
                await stack.enter_async_context(system.producer(scenario.partitions_per_topic)) for _ in range(count)
            ]
            async with self._sending(scenario, producers, topics, measured):
                await self._seconds("warm up", scenario.warmup_duration_minutes * 60, measured)
                measured.clear()
                cpu_s, broker_cpu_s = time.process_time(), self._broker_cpu_s()
                rows, seconds = await self._seconds("measure", scenario.test_duration_minutes * 60, measured)
                cpu_s, broker_cpu_s = time.process_time() - cpu_s, self._broker_cpu_s() - broker_cpu_s
                found = self._result(scenario, measured, rows, seconds)
        found.figures["generator_cores"] = round(cpu_s / seconds, 3)
        if self.broker is not None:
            found.figures["broker_cpu_us"] = round(broker_cpu_s * 1e6 / measured.count(SENDS), 3)
            found.figures["broker_pss_mib"] = self.broker.pss_mib()
        return found

    @contextlib.asynccontextmanager
    async def _sending(
        self, scenario: Scenario, producers: Sequence[Send], topics: Sequence[str], measured: Measured
    ) -> AsyncIterator[None]:
        """Send for the time of a block, by as many tasks as may wait for an answer."""
        pace, rest = Pace(scenario.producer_rate), bytes(scenario.message_size - STAMP.size)

        async def work(send: Send, topic: str) -> None:
            while not pace.is_stopped:
                due_ns = await pace.due_ns()
                try:
                    await send(topic, STAMP.pack(due_ns) + rest)
                except Exception as error:  # counted, whatever a client of the system raises
                    measured.fail(error)
                    await asyncio.sleep(0.01)
                else:
                    measured.record(SENDS, time.monotonic_ns() - due_ns)

        in_flight = max(1, min(scenario.in_flight_per_producer, IN_FLIGHT_MAX // len(producers)))
        tasks = [
            asyncio.create_task(work(send, topics[number % len(topics)]))
            for _ in range(in_flight)
            for number, send in enumerate(producers)
        ]
        try:
            yield
        finally:
            pace.stop()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=STOP_S_MAX)  # a client may turn the cancellation into its own error

    async def _seconds(self, phase: str, seconds: float, measured: Measured) -> tuple[list[Figures], float]:
        """Let the load run so long; returns a row for each second, and the time that passed."""
        began_s, rows = time.monotonic(), list[Figures]()
        while (at_s := time.monotonic() - began_s) < seconds:
            await asyncio.sleep(min(INTERVAL_S * (len(rows) + 1), seconds) - at_s)
            at_s = time.monotonic() - began_s
            rows.append(measured.row(at_s, at_s - (rows[-1]["at_s"] if rows else 0.0)))
            if self.broker is not None:
                self.broker.guard()
            self.tick(phase, at_s, measured.count(SENDS) + measured.count(END_TO_END), measured.failed)
        return rows, time.monotonic() - began_s

    def _broker_cpu_s(self) -> float:
        return self.broker.cpu_s() if self.broker is not None else 0.0

    def _result(self, scenario: Scenario, measured: Measured, rows: list[Figures], seconds: float) -> Run:
        sent, received = measured.count(SENDS), measured.count(END_TO_END)
        if not sent:
            raise BenchFailed(f"the broker acknowledged no message: {measured.errors or 'it did not answer'}")
        figures: dict[str, Any] = {
            "messages_per_s": round(sent / seconds, 1),
            "mib_per_s": round(sent * scenario.message_size / seconds / 2**20, 1),
        }
        if received:
            figures["consumed_per_s"] = round(received / seconds, 1)
        for kind, histogram in measured.whole.items():
            figures |= latency_figures(histogram, kind, tuple(PERCENTILES))
        histograms = {kind: one.encode().decode() for kind, one in measured.whole.items() if one.get_total_count()}
        return Run(
            seconds=round(seconds, 3),
            figures=figures,
            errors=dict(measured.errors),
            intervals=rows,
            histograms=histograms,
        )


async def described(connect: Connect) -> dict[str, Any]:
    """Return what a result says of a system."""
    async with connect() as system:
        return await system.describe()
