"""The scenarios that both brokers run, and the bars of rocketpy.

A name reads operation, body, connections x requests in flight on each. A bar is a number that rocketpy must reach; the
ratio is always rocketpy's figure divided by Java's in the same run.
"""

from __future__ import annotations

import attrs

from rocketpy.bench.encoding import Serialize
from rocketpy.bench.load import Mode, Workload

QUEUES = 16
PRELOAD_MESSAGES = 160_000  # for pulls: more than any CPU cache holds, far less than the page cache
STORE_BYTES_MAX = 3 << 30  # written by one scenario in one turn


@attrs.frozen
class Bar:
    """`metric` of a scenario, as a ratio (or rocketpy's own value), is at least or at most `limit`."""

    metric: str
    limit: float
    at_least: bool = True
    is_ratio: bool = True

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{' x Java' if self.is_ratio else ''}"


@attrs.frozen
class Scenario:
    name: str
    workload: Workload | None  # None: measured around the loads (boot, memory)
    bars: tuple[Bar, ...] = ()
    metrics: tuple[str, ...] = ("messages_per_s",)  # the lines of the table

    @property
    def requests_max(self) -> int:
        """A bound on what one scenario writes; record overhead is about 250 bytes."""
        if self.workload is None or self.workload.mode is Mode.PULL:
            return 0
        return STORE_BYTES_MAX // ((self.workload.body_size + 250) * self.workload.batch)


def _throughput(limit: float) -> tuple[Bar, ...]:
    return (Bar("messages_per_s", limit),)


def _send(
    connections: int,
    in_flight: int,
    body_size: int = 1024,
    *,
    batch: int = 1,
    rate: float = 0.0,
    serialize: Serialize = Serialize.JSON,
) -> Workload:
    return Workload(Mode.SEND, connections, in_flight, body_size, batch=batch, rate=rate, serialize=serialize)


def _pull(connections: int, in_flight: int, serialize: Serialize = Serialize.JSON) -> Workload:
    return Workload(Mode.PULL, connections, in_flight, serialize=serialize)


SPEED_AND_COST = ("messages_per_s", "cpu_us_per_message")
SCENARIOS = (
    Scenario("boot", None, (Bar("boot_s", 0.2, at_least=False),), ("boot_s", "route_s")),
    Scenario("memory-idle", None, (Bar("pss_mib", 60, at_least=False, is_ratio=False),), ("pss_mib",)),
    Scenario(
        "send-1k-64x64",
        _send(64, 64),
        (*_throughput(6), Bar("cpu_us_per_message", 0.2, at_least=False)),
        SPEED_AND_COST,
    ),
    Scenario("send-128-16x64", _send(16, 64, 128), _throughput(7), SPEED_AND_COST),
    Scenario("send-4k-16x64", _send(16, 64, 4096), _throughput(3)),
    Scenario(
        "send-1k-64x1",
        _send(64, 1),
        (*_throughput(1.4), Bar("p99_us", 0.6, at_least=False)),
        ("messages_per_s", "p99_us"),
    ),
    Scenario("send-1k-16x1", _send(16, 1), _throughput(1.5)),
    Scenario(
        "send-1k-1x1",
        _send(1, 1),
        (Bar("p50_us", 1, at_least=False), Bar("p99_us", 1, at_least=False)),
        ("messages_per_s", "p50_us", "p99_us"),
    ),
    Scenario("batch-32x1k-16x4", _send(16, 4, batch=32), _throughput(2)),
    Scenario("send-1k-16x64-rocketmq", _send(16, 64, serialize=Serialize.ROCKETMQ), _throughput(5), SPEED_AND_COST),
    Scenario("pull-32x1k-1x1", _pull(1, 1), _throughput(1.1)),
    Scenario("pull-32x1k-16x4", _pull(16, 4), _throughput(1.6), SPEED_AND_COST),
    Scenario("pull-32x1k-16x4-rocketmq", _pull(16, 4, Serialize.ROCKETMQ), _throughput(1.6)),
    Scenario("send-1k-5000/s", _send(16, 64, rate=5000), (Bar("p99_us", 1, at_least=False),), ("p50_us", "p99_us")),
    Scenario(
        "end-to-end-1k-10000/s",
        Workload(Mode.END_TO_END, 4, 64, rate=10_000),
        (Bar("end_to_end_p99_us", 0.5, at_least=False),),
        ("end_to_end_p50_us", "end_to_end_p99_us"),
    ),
    Scenario("memory-loaded", None, (Bar("pss_mib", 120, at_least=False, is_ratio=False),), ("pss_mib", "messages")),
)
QUICK = (
    "boot",
    "memory-idle",
    "send-1k-64x64",
    "send-1k-1x1",
    "batch-32x1k-16x4",
    "send-1k-16x64-rocketmq",
    "pull-32x1k-1x1",
    "pull-32x1k-16x4",
    "end-to-end-1k-10000/s",
    "memory-loaded",
)


def select(only: tuple[str, ...], *, quick: bool) -> tuple[Scenario, ...]:
    """Return the scenarios whose name contains one of `only`; without any, all of them, or the quick ones."""
    if only:
        return tuple(scenario for scenario in SCENARIOS if any(word in scenario.name for word in only))
    return tuple(scenario for scenario in SCENARIOS if not quick or scenario.name in QUICK)
