"""Shares of a batch, and batches that wait."""

from __future__ import annotations

import random

import pytest

from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.stream import MinimumBatch, share


def queues(*counts: int) -> dict[MessageQueue, int]:
    return {MessageQueue("T", "b", number): count for number, count in enumerate(counts)}


@pytest.mark.parametrize(
    ("counts", "total", "shares"),
    [
        ((10, 30), None, (10, 30)),
        ((10, 30), 40, (10, 30)),
        ((10, 30), 20, (5, 15)),
        ((1, 1000), 100, (1, 99)),
        ((0, 7), 3, (0, 3)),
        ((5, 5, 5), 2, (1, 1, 1)),  # one of each, whatever the limit
    ],
)
def test_shares_follow_the_backlog(counts: tuple[int, ...], total: int | None, shares: tuple[int, ...]) -> None:
    assert share(queues(*counts), total) == queues(*shares)


@pytest.mark.parametrize("seed", range(50))
def test_shares_are_never_more_than_there_is_and_always_progress(seed: int) -> None:
    rng = random.Random(seed)
    backlog = queues(*(rng.choice((0, 1, 17, 10_000)) for _ in range(rng.randrange(1, 40))))
    total = rng.randrange(1, 20_000)
    given = share(backlog, total)
    waiting = [queue for queue, count in backlog.items() if count]
    assert all(given[queue] <= count for queue, count in backlog.items()), seed
    assert all(given[queue] for queue in waiting), seed
    assert sum(given.values()) <= total + len(waiting), seed


def test_a_batch_waits_for_its_minimum_or_its_delay() -> None:
    now = [0.0]
    minimum = MinimumBatch(100, 60.0, lambda: now[0])
    assert not minimum.allows(99, always=False)
    assert minimum.allows(100, always=False)
    now[0] = 59.0
    assert not minimum.allows(99, always=False)
    assert minimum.allows(1, always=True)
    now[0] = 119.0
    assert minimum.allows(1, always=False)
    assert not minimum.allows(0, always=False)
    assert MinimumBatch(None, 60.0, lambda: now[0]).allows(0, always=False)
