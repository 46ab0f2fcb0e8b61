"""The speed at which groups consume their backlog, and the time until it is empty, from two looks at their
positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import attrs

from rocketpy.message.message_queue import MessageQueue

from .committed import committed
from .inputs import Input
from .report import Row

Position = tuple[str, MessageQueue]
"""A group in a queue."""
NO_RATES: Row = {"consumed_per_second": None, "stored_per_second": None, "drain_s": None}


@attrs.frozen
class Look:
    """The positions of groups at one time, and where their queues end.

    Attributes:
        at_s: of the clock that was given.
    """

    at_s: float
    positions: dict[Position, int]
    ends: dict[MessageQueue, int]

    @classmethod
    def now(cls, source: Input, groups: tuple[str, ...], clock: Callable[[], float]) -> Self:
        """Ask the brokers. Raises ConfigError if a group has committed nothing there."""
        found = {
            (one.group, MessageQueue(one.topic, one.broker or "", one.queue_id)): one.position
            for one in committed(source, groups)
        }
        return cls(clock(), found, source.cluster.max_offsets({queue for _, queue in found}))


def rates(first: Look, second: Look) -> dict[tuple[str, str], Row]:
    """For each group and topic: messages consumed and stored in a second, and seconds until all will be consumed, if
    both go on so. None: never. Queues that one look does not have are left out."""
    seconds = max(second.at_s - first.at_s, 1e-3)
    sums: dict[tuple[str, str], list[int]] = {}  # consumed, stored, remaining
    for (group, queue), position in second.positions.items():
        before = first.positions.get((group, queue))
        if before is None or queue not in first.ends:
            continue
        total = sums.setdefault((group, queue.topic), [0, 0, 0])
        total[0] += position - before
        total[1] += second.ends[queue] - first.ends[queue]
        total[2] += max(0, second.ends[queue] - position)
    return {key: _row(consumed, stored, remaining, seconds) for key, (consumed, stored, remaining) in sums.items()}


def _row(consumed: int, stored: int, remaining: int, seconds: float) -> Row:
    shrinks = (consumed - stored) / seconds
    drain_s = 0.0 if remaining == 0 else remaining / shrinks if shrinks > 0 else None
    return {"consumed_per_second": consumed / seconds, "stored_per_second": stored / seconds, "drain_s": drain_s}
