"""A client that is cancelled at any of its waits leaves nothing behind, and acknowledges no message that its handler
did not finish.

A turn is one pass of the loop, in which each task that can run does so once. A test ends its client after every third
number of turns, in `make test-long` after every number, up to one at which it has done all its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rocketpy import aio
from rocketpy.client import START_FIRST, Message, ReceivedMessage
from rocketpy.codes import RequestCode
from rocketpy.errors import RocketError
from tests.support.budget import budget
from tests.support.clients import producer, pull_consumer, push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.loops import settled
from tests.support.push_consumers import store

pytestmark = pytest.mark.usefixtures("backend")

TURNS = range(0, 100, budget(7, 1))
BODIES = [b"%d" % number for number in range(6)]


async def cancelled_after(turns: int, work: Callable[[], Awaitable[object]]) -> None:
    """Run `work` for so many turns, cancel it, and see that no task is left."""
    if aio.running().name == "trio":  # no task can be left
        async with aio.open_nursery() as nursery:
            begun = nursery.start(work)
            for _ in range(turns):
                await aio.sleep(0)
            begun.cancel()
        await settled()
        return
    task = asyncio.ensure_future(work())
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.result() is None
    await settled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Handling:
    """A handler that takes turns; `finished` are the bodies that it has handled."""

    def __init__(self, fails: bytes = b"") -> None:
        self.begun = 0
        self.finished: list[bytes] = []
        self._fails = fails

    async def __call__(self, message: ReceivedMessage) -> None:
        self.begun += 1
        await aio.sleep(0)
        await aio.sleep(0)
        if message.body == self._fails:
            raise ValueError
        self.finished.append(message.body)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("fails", [b"", b"2"])
def test_a_push_consumer(ordered: bool, fails: bytes) -> None:
    """Holds: client, the smallest unfinished offset is committed.
    Fault: The heartbeat after a rebalance registered a consumer again that was leaving."""
    reached: set[int] = set()

    async def scenario(cluster: FakeCluster) -> None:
        for turns in TURNS:
            broker = cluster.add_broker(f"broker-{turns}", T=1)
            cluster.brokers = {broker.name: broker}
            store(broker, *BODIES)
            handling = Handling(fails)

            async def consume(handling: Handling = handling) -> None:
                async with push_consumer(
                    cluster, handling, start=START_FIRST, ordered=ordered, concurrency=2, shutdown_grace=0.0
                ):
                    await aio.sleep_forever()

            await cancelled_after(turns, consume)
            acknowledged = BODIES[: broker.offsets.get(("cg", "T", 0), 0)]
            given_back = [fails] if broker.got(RequestCode.CONSUMER_SEND_MSG_BACK) else []
            assert set(acknowledged) <= {*handling.finished, *given_back}, f"after {turns} turns"
            assert not broker.members["cg"], f"after {turns} turns"
            reached.add(len(handling.finished))

    run(scenario)
    assert 0 in reached and max(reached) > 1, "the turns end before anything is handled"


async def use(cluster: FakeCluster, **settings: object) -> None:
    async with producer(cluster, **settings) as sender:
        await sender.send(Message("T", b"0"))
        await (await sender.send_soon(Message("T", b"1")))
        await sender.send_batch([Message("T", b"2"), Message("T", b"3")])
        try:
            await sender.request(Message("T", b"4"), timeout=0.5)
        except RocketError:
            await sender.send_oneway(Message("T", b"5"))


async def use_batches(cluster: FakeCluster) -> None:
    await use(cluster, linger=0.01, batch_count_max=1)


async def read(cluster: FakeCluster, *, assigns: bool = False) -> None:
    async with pull_consumer(cluster, start=START_FIRST, auto_commit=False) as consumer:
        if assigns:
            await consumer.assign(await consumer.queues("T"))
        else:
            await consumer.subscribe("T")
        async for message in consumer:
            seen.append(message.body)
            await consumer.commit()
            if message.body == BODIES[-1]:
                break


async def read_assigned(cluster: FakeCluster) -> None:
    await read(cluster, assigns=True)


seen: list[bytes] = []


@pytest.mark.parametrize("work", [use, use_batches, read, read_assigned])
def test_a_producer_and_a_pull_consumer(work: Callable[[FakeCluster], Awaitable[None]]) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker: FakeBroker
        for turns in TURNS:
            seen.clear()
            broker = cluster.add_broker(f"broker-{turns}", T=1)
            cluster.brokers = {broker.name: broker}
            if work in (read, read_assigned):
                store(broker, *BODIES)
            await cancelled_after(turns, lambda: work(cluster))
            assert broker.offsets.get(("cg", "T", 0), 0) <= len(seen)
            assert not broker.members["cg"]
        assert broker.got(RequestCode.SEND_BATCH_MESSAGE) if work in (use, use_batches) else len(seen) == len(BODIES)

    run(scenario)


def test_a_producer_that_is_cancelled_while_it_waits_for_its_sends() -> None:
    """Fault: Its nursery stayed open, and trio failed with an internal error."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.mute.add(RequestCode.SEND_MESSAGE_V2)
        ends: list[bool | None] = []

        async def leave_in_a_hurry() -> None:
            async with producer(cluster, send_timeout=100) as sender:
                handle = await sender.send_soon(Message("T", b"0"), on_done=lambda one: ends.append(one.result is None))
            assert not handle.is_done

        for turns in (10, 20, 40, 80):
            await cancelled_after(turns, leave_in_a_hurry)
        assert ends and all(ends)

    run(scenario)
