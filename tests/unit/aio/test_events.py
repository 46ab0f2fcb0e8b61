"""Events, semaphores, locks and queues: the same on both backends, and nothing is lost to a cancellation."""

from __future__ import annotations

import pytest

from rocketpy import aio
from tests.support.loops import run, settled


def test_an_event_wakes_all_and_stays_set(backend: str) -> None:
    event = aio.Event()  # outside of any loop
    woken: list[int] = []

    async def wait(number: int) -> None:
        await event.wait()
        woken.append(number)

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
            gone = nursery.start(wait, 9)
            await settled()
            assert not woken and not event.is_set()
            gone.cancel()
            await settled()
            event.set()
        await event.wait()
        assert sorted(woken) == [0, 1, 2]

    run(main)


def test_an_event_that_is_set_while_its_waiter_is_cancelled(backend: str) -> None:
    async def main() -> None:
        event = aio.Event()
        async with aio.open_nursery() as nursery:
            waiter = nursery.start(event.wait)
            await settled()
            waiter.cancel()
            event.set()

    run(main)


def test_a_semaphore_lets_in_so_many_in_their_order(backend: str) -> None:
    async def main() -> None:
        semaphore, order, began_s = aio.Semaphore(2), [], aio.now_s()

        async def hold(number: int) -> None:
            async with semaphore:
                order.append(number)
                await aio.sleep(1 + number / 64)

        async with aio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(hold, number)
                await settled()
            assert not semaphore.take()
        assert order == [0, 1, 2, 3, 4]
        assert aio.now_s() == pytest.approx(began_s + 3 + 6 / 64)
        assert [semaphore.take() for _ in range(3)] == [True, True, False]

    run(main)


def test_a_place_is_not_lost_to_a_waiter_that_is_cancelled(backend: str) -> None:
    async def main() -> None:
        lock, entered = aio.Lock(), []

        async def enter(number: int) -> None:
            async with lock:
                entered.append(number)

        async with aio.open_nursery() as nursery:
            await lock.acquire()
            assert lock.locked()
            first, second = nursery.start(enter, 1), nursery.start(enter, 2)
            await settled()
            lock.release()  # the place is handed to the first,
            first.cancel()  # which is cancelled before it runs
            await settled()
            await lock.acquire()
            third = nursery.start(enter, 3)
            await settled()
            third.cancel()
            await settled()
            lock.release()
            second.cancel()
        assert 2 in entered and 3 not in entered
        assert not lock.locked()

    run(main)


def test_a_queue_gives_each_item_to_one_taker(backend: str) -> None:
    async def main() -> None:
        queue, taken = aio.Queue[int](), []

        async def take() -> None:
            while True:
                taken.append(await queue.get())

        async with aio.open_nursery() as nursery:
            takers = [nursery.start(take) for _ in range(3)]
            await settled()
            queue.put(0)
            takers[0].cancel()
            for number in range(1, 5):
                queue.put(number)
            await settled()
            assert sorted(taken) == [0, 1, 2, 3, 4] and len(queue) == 0
            nursery.cancel()
        queue.put(5)
        assert len(queue) == 1

    run(main)
