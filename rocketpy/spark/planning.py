"""Slices of queues to tasks: long slices are split, and small ones packed together.

A task costs Spark 14 to 100 ms, whatever it reads: a task for each of 64 queues makes a batch of 1.8 s out of one of
0.15 s. Slices of one broker stay together, so that one connection serves them, and a task reads in the order of queues.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterable

from .pulls import Slice

MESSAGE_BYTES = 1024  # when nothing is known
SLICES_PER_TASK = 500  # short ones; each is a pull of its own, and so many take as long as two or three tasks
TASKS_PER_CORE = 2
EQUAL_MAX = 8  # tasks that are looked at for each piece


def default_tasks() -> int:
    """Tasks at most, unless maxPartitions says: of the driver's cores, because a planner sees no others."""
    return TASKS_PER_CORE * (os.cpu_count() or 1)


def pack(
    slices: Iterable[Slice],
    *,
    message_bytes: int = MESSAGE_BYTES,
    partition_bytes: int,
    tasks_min: int | None = None,
    tasks_max: int | None = None,
) -> list[list[Slice]]:
    """The slices of each task; together they are the given ones.

    Args:
        message_bytes: mean size of a message.
        partition_bytes: about this many bytes for a task; more where `tasks_max` allows no further one.
        tasks_min: at least so many, if there are as many messages.
    """
    given = [one for one in slices if one.count > 0]
    total = sum(one.count for one in given)
    if not total:
        return []
    tasks_max = max(tasks_max or default_tasks(), tasks_min or 1)
    per_task = max(1, partition_bytes // max(1, message_bytes))
    wanted = max(-(-total // per_task), -(-len(given) // SLICES_PER_TASK), tasks_min or 1)
    wanted = min(wanted, tasks_max, total)
    largest = -(-total // wanted)
    pieces = [piece for one in given for piece in _split(one, largest)]
    return [sorted(task, key=_order) for task in _fill(pieces, wanted)]


def _split(one: Slice, count_max: int) -> list[Slice]:
    """Pieces of equal size, none larger than `count_max`."""
    pieces = -(-one.count // count_max)
    places = [one.begin + one.count * number // pieces for number in range(pieces + 1)]
    return [Slice(one.queue, low, high) for low, high in itertools.pairwise(places)]


def _fill(pieces: list[Slice], tasks: int) -> list[list[Slice]]:
    """The largest piece first into the emptiest task; equally empty ones: where the broker is known."""
    bins: list[list[Slice]] = [[] for _ in range(tasks)]
    heap = [(0, number) for number in range(tasks)]
    for piece in sorted(pieces, key=lambda piece: (-piece.count, piece.queue.broker_name, _order(piece))):
        equal = [heapq.heappop(heap)]
        while heap and heap[0][0] == equal[0][0] and len(equal) < EQUAL_MAX:
            equal.append(heapq.heappop(heap))
        chosen = next((entry for entry in equal if _knows(bins[entry[1]], piece)), equal[0])
        bins[chosen[1]].append(piece)
        for entry in equal:
            heapq.heappush(heap, (entry[0] + piece.count, entry[1]) if entry is chosen else entry)
    return [task for task in bins if task]


def _knows(task: list[Slice], piece: Slice) -> bool:
    return any(other.queue.broker_name == piece.queue.broker_name for other in task[-1:])


def _order(piece: Slice) -> tuple[str, str, int, int]:
    return piece.queue.topic, piece.queue.broker_name, piece.queue.queue_id, piece.begin
