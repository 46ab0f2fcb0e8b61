"""A pool's queue: bounded in requests and bytes, and it knows how long its head has waited."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.pool_queue import PoolQueue
from rocketpy.reactor.pools import Pool
from rocketpy.remoting.limits import PoolLoad


@attrs.frozen
class Request:
    received_ns: int
    size: int = 10
    sender: int = 1


def queue(**bounds: int) -> PoolQueue[Request]:
    return PoolQueue(Pool(**{"name": "x", "tasks": 1, "queue_max": 2, "queue_bytes_max": 100, **bounds}))


def take(waiting: PoolQueue[Request]) -> Request | None:
    return trio.run(waiting.take)


def test_requests_of_a_connection_come_out_as_they_went_in_and_none_at_the_end() -> None:
    waiting = queue(queue_max=4)
    assert waiting.put(Request(1)) and waiting.put(Request(2))
    waiting.close()
    assert [take(waiting) for _ in range(3)] == [Request(1), Request(2), None]


def test_connections_take_turns() -> None:
    """However much one of them sends, another waits for one of its requests.
    Fault: One connection could fill the query pool with 20 000 requests."""
    waiting = queue(queue_max=100, queue_bytes_max=10_000)
    for number in range(40):
        assert waiting.put(Request(number, sender=1))
    for number in (100, 101):
        assert waiting.put(Request(number, sender=2))
    assert waiting.put(Request(200, sender=3))
    found = [take(waiting) for _ in range(7)]
    assert [one.received_ns for one in found if one] == [0, 100, 200, 1, 101, 2, 3]
    assert len(waiting) == 36


def test_a_connection_has_as_many_waiting_as_are_still_free() -> None:
    waiting = queue(queue_max=100, queue_bytes_max=10_000)
    taken = [sum(waiting.put(Request(1, sender=sender)) for _ in range(100)) for sender in range(5)]
    assert taken == [50, 25, 13, 6, 3]
    waiting = queue(queue_max=10_000, queue_bytes_max=1000)
    taken = [sum(waiting.put(Request(1, sender=sender)) for _ in range(100)) for sender in range(4)]
    assert taken == [50, 25, 13, 6]


def test_both_bounds_hold_and_a_single_large_request_passes() -> None:
    waiting = queue()
    assert waiting.put(Request(1, size=1000))
    assert not waiting.put(Request(2, sender=2))  # bytes
    take(waiting)
    assert waiting.put(Request(3)) and waiting.put(Request(4, sender=2))
    assert not waiting.put(Request(5, sender=3))  # requests


def test_the_load_is_what_waits_and_for_how_long() -> None:
    waiting = queue()
    assert waiting.load(9_000_000) == PoolLoad(0, 2, 0)
    waiting.put(Request(1_000_000))
    waiting.put(Request(5_000_000, sender=2))
    assert waiting.load(9_000_000) == PoolLoad(2, 2, 8)
    take(waiting)
    assert waiting.load(9_000_000) == PoolLoad(1, 2, 4)
    take(waiting)
    assert waiting.load(9_000_000) == PoolLoad(0, 2, 0)


def test_a_connection_that_is_held_has_no_turn_and_keeps_its_order() -> None:
    waiting = queue(queue_max=10)
    for number in (1, 2):
        assert waiting.put(Request(number, sender=1))
    assert waiting.put(Request(3, sender=2))
    first = take(waiting)
    assert first is not None
    waiting.hold(first)
    assert waiting.put(Request(4, sender=1)) and waiting.put(Request(5, sender=2))
    assert (waiting.held, len(waiting)) == (3, 5)
    assert [take(waiting) for _ in range(2)] == [Request(3, sender=2), Request(5, sender=2)]
    waiting.close()
    waiting.release(1)
    assert [take(waiting) for _ in range(4)] == [*(Request(number, sender=1) for number in (1, 2, 4)), None]


def test_a_task_waits_for_the_release_of_a_connection() -> None:
    waiting, found = queue(), []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                while (request := await waiting.take()) is not None:
                    found.append(request)

            assert waiting.put(Request(1))
            request = await waiting.take()
            assert request is not None
            waiting.hold(request)
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            waiting.close()
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            waiting.release(1)

    trio.run(main)
    assert found == [Request(1)]
