"""Latency fault tolerance: brokers that were slow or failed are left alone for a while (off by default).

Pure: the clock's reading is an argument. Units: milliseconds throughout, as the reference's table.
Source: RocketMQ 4.9 `MQFaultStrategy`, `LatencyFaultToleranceImpl`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import attrs

from rocketpy.message.message_queue import MessageQueue

from .queue_selection import RoundRobin

LATENCY_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
NOT_AVAILABLE_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
assert len(LATENCY_MS) == len(NOT_AVAILABLE_MS)
ISOLATION_LATENCY_MS = 30_000  # what a failed attempt counts as


def not_available_ms(latency_ms: float) -> int:
    """Time for which a broker with this latency is avoided."""
    entry = bisect_right(LATENCY_MS, latency_ms) - 1
    return 0 if entry < 0 else NOT_AVAILABLE_MS[entry]


@attrs.frozen
class FaultItem:
    """The last latency of a broker, and the time from which it may be used again."""

    broker_name: str
    latency_ms: float
    available_from_ms: float

    def is_available(self, now_ms: float) -> bool:
        return now_ms >= self.available_from_ms


@attrs.define
class LatencyFaults:
    """The latencies of a producer's brokers."""

    items: dict[str, FaultItem] = attrs.field(factory=dict)
    _turn: RoundRobin = attrs.field(factory=lambda: RoundRobin(0))

    def report(self, broker_name: str, latency_ms: float, now_ms: float, *, isolate: bool = False) -> None:
        counted_ms = ISOLATION_LATENCY_MS if isolate else latency_ms
        self.items[broker_name] = FaultItem(broker_name, latency_ms, now_ms + not_available_ms(counted_ms))

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        item = self.items.get(broker_name)
        return item is None or item.is_available(now_ms)

    def pick_at_least_one(self, now_ms: float) -> str | None:
        """All are avoided: turn over the better half (available, then faster, then sooner)."""
        ranked = sorted(
            self.items.values(),
            key=lambda item: (not item.is_available(now_ms), item.latency_ms, item.available_from_ms),
        )
        if not ranked:
            return None
        half = len(ranked) // 2
        return ranked[self._turn.next_index() % half if half else 0].broker_name

    def select(
        self, queues: Sequence[MessageQueue], write_queue_nums: Mapping[str, int], turn: RoundRobin, now_ms: float
    ) -> MessageQueue:
        """The next queue on an available broker, else on one of the less bad ones, else simply the next.

        Args:
            write_queue_nums: by broker name, of the topic's route.
        """
        start = turn.next_index()
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if self.is_available(queue.broker_name, now_ms):
                return queue
        chosen = self.pick_at_least_one(now_ms)
        plain = turn.next_queue(queues)
        if chosen is None:
            return plain
        if write_nums := write_queue_nums.get(chosen, 0):
            return MessageQueue(plain.topic, chosen, turn.next_index() % write_nums)
        del self.items[chosen]
        return plain
