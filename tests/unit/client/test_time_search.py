"""The first message stored at or after a time, though brokers answer with any message of about that time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from rocketpy.admin.messages import offset_range
from rocketpy.client.cluster.time_search import StoredAt, first_offset_since
from rocketpy.client.options import START_FIRST, StartFrom, ms_since_epoch
from rocketpy.message.message_queue import MessageQueue
from tests.support import loops
from tests.support.clients import admin_client, pull_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

QUEUE = MessageQueue("T", "broker-a", 0)
IN_ONE_MS = 300


async def search(times: list[int | None], moment: int, guess: int, low: int = 0) -> tuple[int, int]:
    """The result, and how many messages were looked at. Messages without a time cannot be read."""
    looks = 0

    async def look(offset: int) -> StoredAt | None:
        nonlocal looks
        looks += 1
        readable = ((at, time) for at, time in enumerate(times) if at >= offset and time is not None)
        return next((StoredAt(at, time) for at, time in readable), None)

    return await first_offset_since(moment, guess, low, len(times), look), looks


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_the_first_one_from_every_guess(gaps: float) -> None:
    """Holds: client, replay from a time."""

    async def main() -> None:
        choose = random.Random(5)
        for _ in range(1_000):
            count, apart = choose.randrange(60), choose.choice((1, 3, 40))
            times: list[int | None] = [None if choose.random() < gaps else n // apart for n in range(count)]
            low, guess = choose.randrange(count + 1), choose.randrange(-2, count + 5)
            moment = choose.randrange(-1, count + 3)
            wanted = next((n for n in range(low, count) if (time := times[n]) is not None and time >= moment), count)
            found, looks = await search(times, moment, guess, low)
            assert found == wanted, (times, low, moment, guess)
            assert looks <= 2 * (count - low).bit_length() + 1

    loops.run(main)


def test_a_right_answer_costs_two_looks() -> None:
    async def main() -> None:
        times: list[int | None] = list(range(1000))
        assert await search(times, 500, 500) == (500, 2)
        assert await search(times, 0, 0) == (0, 1)
        assert await search(times, 5000, 999) == (1000, 1)

    loops.run(main)


def broker_with_bursts(cluster: FakeCluster) -> FakeBroker:
    """Hundreds of messages in each of three milliseconds."""
    broker = cluster.add_broker(T=1)
    broker.now_ms = lambda: 1_000 + 10 * (len(broker.records["T", 0]) // IN_ONE_MS)
    for number in range(3 * IN_ONE_MS):
        broker.store("T", 0, b"%d" % number)
    return broker


FIRSTS = {
    1_000: 0,
    1_001: IN_ONE_MS,
    1_010: IN_ONE_MS,
    1_011: 2 * IN_ONE_MS,
    1_020: 2 * IN_ONE_MS,
    1_021: 3 * IN_ONE_MS,
}


def test_consumers_find_the_first_of_hundreds_in_a_millisecond() -> None:
    """Fault: A search by time gave any of the messages of a millisecond, so those before it were passed over."""

    async def scenario(cluster: FakeCluster) -> None:
        broker_with_bursts(cluster)
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.subscribe("T")
            found = {ms: await consumer.offset_for_time(QUEUE, datetime.fromtimestamp(ms / 1000, UTC)) for ms in FIRSTS}
            assert found == FIRSTS
        start = StartFrom.at(datetime.fromtimestamp(1.010, UTC))
        async with pull_consumer(cluster, "late", "l2", start=start) as consumer:
            await consumer.subscribe("T")
            assert (await consumer.poll(max_messages=1))[0].body == b"%d" % IN_ONE_MS

    run(scenario)


def test_mqadmin_finds_the_first_of_hundreds_in_a_millisecond() -> None:
    """Fault: resetOffsetByTime and printMsg passed over messages that were stored in the same millisecond."""

    async def scenario(cluster: FakeCluster) -> None:
        broker_with_bursts(cluster)
        async with admin_client(cluster) as admin:
            await admin.route("T")
            found = {ms: (await offset_range(admin, QUEUE, ms, None)).low for ms in FIRSTS}
            assert found == FIRSTS

    run(scenario)


def test_times_are_exact_to_the_millisecond() -> None:
    """Fault: A time became the millisecond before, where its seconds have no exact float."""
    for ms in range(1_764_000_000_000, 1_764_000_002_000):
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert ms_since_epoch(when) == ms
        assert StartFrom.at(when).timestamp_ms == ms
