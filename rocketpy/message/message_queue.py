"""MessageQueue: the name of one queue, as clients, routes and JSON bodies use it.

Short: everything above knows queues by this name, mostly without records and properties.
"""

from __future__ import annotations

import attrs


@attrs.frozen(order=True, cache_hash=True)  # clients look it up for each message
class MessageQueue:
    """One queue of a topic on one broker. Ordered by topic, broker and number: rebalance depends on that order."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
