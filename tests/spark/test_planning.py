"""Tasks of a plan hold each offset once; there are neither too many nor too few."""

from __future__ import annotations

import random

import pytest

from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.planning import default_tasks, pack
from rocketpy.spark.pulls import Slice


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("T", broker, number)


def offsets(slices: list[Slice]) -> list[tuple[MessageQueue, int]]:
    return sorted((one.queue, offset) for one in slices for offset in range(one.begin, one.end))


@pytest.mark.parametrize("seed", range(40))
def test_every_offset_is_in_one_task(seed: int) -> None:
    rng = random.Random(seed)
    given = [
        Slice(queue(number, rng.choice("abc")), begin := rng.randrange(50), begin + rng.choice((0, 1, 5, 300)))
        for number in range(rng.randrange(30))
    ]
    tasks = pack(
        given,
        message_bytes=rng.choice((1, 100)),
        partition_bytes=rng.choice((1, 1000, 1 << 20)),
        tasks_min=rng.choice((None, 1, 7)),
        tasks_max=rng.choice((None, 7, 100)),
    )
    assert offsets([one for task in tasks for one in task]) == offsets(given), f"seed {seed}"
    assert all(task and all(one.count > 0 for one in task) for task in tasks)
    for task in tasks:
        places = [(one.queue.broker_name, one.queue.queue_id, one.begin) for one in task]
        assert places == sorted(places)


def test_many_small_queues_are_few_tasks() -> None:
    given = [Slice(queue(number), 0, 10) for number in range(1000)]
    assert [len(task) for task in pack(given, partition_bytes=64 << 20)] == [500, 500], "a pull takes time, too"
    assert len(pack(given[:500], partition_bytes=64 << 20)) == 1
    assert len(pack(given, partition_bytes=64 << 20, tasks_max=1)) == 1
    assert [len(task) for task in pack(given, partition_bytes=64 << 20, tasks_min=4, tasks_max=4)] == [250] * 4


def test_a_long_queue_is_split() -> None:
    tasks = pack([Slice(queue(0), 100, 1_000_100)], partition_bytes=1 << 20, message_bytes=1024, tasks_max=100)
    assert len(tasks) == 100 and {one.count for task in tasks for one in task} == {10_000}
    assert len(pack([Slice(queue(0), 0, 1 << 40)], partition_bytes=1 << 20)) == default_tasks()
    assert len(pack([Slice(queue(0), 0, 3)], partition_bytes=1 << 20, tasks_min=8)) == 3
    assert pack([Slice(queue(0), 5, 5)], partition_bytes=1) == []


def test_a_broker_is_read_by_few_tasks() -> None:
    given = [Slice(queue(number, broker), 0, 100) for number in range(8) for broker in "ab"]
    tasks = pack(given, partition_bytes=1, message_bytes=1, tasks_max=2)
    assert [len(task) for task in tasks] == [8, 8]
