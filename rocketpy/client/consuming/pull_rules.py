"""Flow control of pulls: limits of the messages that a queue holds in memory. Values only.

Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#pullMessage`, `PullAPIWrapper`, `RebalancePushImpl`.
"""

from __future__ import annotations

import attrs

from .process_queue import ProcessQueue


@attrs.frozen
class FlowLimits:
    """Limits of the messages that a queue holds in memory; above them its pulls pause. All comparisons are strictly
    greater."""

    message_count: int
    size: int  # bytes
    span_max: int | None  # newest minus oldest offset; None for ordered consumption

    def blocks(self, queue: ProcessQueue) -> bool:
        if queue.cached_count > self.message_count:
            return True
        if queue.cached_bytes >> 20 > self.size >> 20:
            return True
        return self.span_max is not None and queue.max_span > self.span_max


def limits_for_queue(limits: FlowLimits, owned_queues: int, topic_count: int, topic_size: int) -> FlowLimits:
    """Limits per topic, where set, shared among the queues the consumer owns (of all its topics, as in Java)."""
    if owned_queues <= 0:
        return limits
    count = limits.message_count if topic_count == -1 else max(1, topic_count // owned_queues)
    size = limits.size if topic_size == -1 else max(1 << 20, topic_size // owned_queues)
    return attrs.evolve(limits, message_count=count, size=size)
