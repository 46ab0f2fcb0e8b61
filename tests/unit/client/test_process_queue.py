"""The offset that may be committed, and what is handed out; against a list that does the same slowly."""

import random

from rocketpy.client.consuming.process_queue import ProcessQueue
from tests.support.clients import message, process_queue


def test_the_offset_is_the_smallest_unfinished_one() -> None:
    """Holds: client, the smallest unfinished offset is committed."""
    queue = process_queue(5, 6, 7)
    assert queue.remove([message(6)]) == 5
    assert queue.remove([message(5)]) == 7
    assert queue.remove([message(7)]) == 8


def test_nothing_cached_is_never_committed() -> None:
    assert ProcessQueue(0).remove([message(1)]) == -1


def test_put_says_when_an_ordered_task_has_to_start() -> None:
    queue = ProcessQueue(0)
    assert queue.put([message(0)])
    assert not queue.put([message(1)])
    assert [one.queue_offset for one in queue.take(5)] == [0, 1]
    assert queue.take(1) == []
    assert queue.put([message(2)])


def test_a_message_that_comes_twice_counts_once() -> None:
    queue = process_queue(1, 2)
    queue.put([message(2), message(3)])
    assert (queue.cached_count, queue.cached_bytes, queue.max_span) == (3, 3, 2)


def test_commit_and_rollback_of_what_was_handed_out() -> None:
    queue = process_queue(1, 2, 3)
    queue.take(2)
    queue.rollback()
    assert [one.queue_offset for one in queue.take(2)] == [1, 2]
    assert queue.commit() == 3
    assert queue.commit() == -1
    assert (queue.cached_count, queue.cached_bytes) == (1, 1)


def test_a_replaced_message_is_the_one_handed_out_next() -> None:
    queue = process_queue(1)
    (taken,) = queue.take(1)
    older = message(1, reconsume_times=1)
    queue.replace(older)
    queue.put_back([older])
    assert queue.take(1) == [older]
    assert taken != older


def test_clear_empties() -> None:
    queue = process_queue(1, 2)
    queue.take(1)
    queue.clear()
    assert (queue.cached_count, queue.cached_bytes, queue.min_offset, queue.max_span) == (0, 0, None, 0)


def test_expiry() -> None:
    queue = ProcessQueue(1000)
    assert not queue.is_pull_expired(121_000) and queue.is_pull_expired(121_001)
    assert not ProcessQueue(1000, pull_idle_max_ms=None).is_pull_expired(10**9)
    queue.last_lock_ms = 0
    assert not queue.is_lock_expired(30_000) and queue.is_lock_expired(30_001)


def test_random_removals_agree_with_a_sorted_list() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        offsets = list(range(50))
        queue, cached = process_queue(*offsets), set(offsets)
        rng.shuffle(offsets)
        for offset in offsets:
            cached.discard(offset)
            assert queue.remove([message(offset)]) == (min(cached) if cached else 50), f"seed {seed}"
