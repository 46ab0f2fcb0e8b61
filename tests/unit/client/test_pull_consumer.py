"""PullConsumer against a scripted cluster: poll, commit, seek, assign."""

from datetime import UTC, datetime

import pytest

from rocketpy import aio
from rocketpy.client.options import START_FIRST
from rocketpy.client.results import PullStatus
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError
from rocketpy.message.compression import compress
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.sys_flag import CompressionType, with_compression
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from tests.support.clients import pull_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

QUEUE = MessageQueue("T", "broker-a", 0)


def broker_with(cluster: FakeCluster, count: int, queues: int = 1) -> FakeBroker:
    broker = cluster.add_broker(T=queues)
    for number in range(count):
        broker.store("T", number % queues, b"%d" % number, b"TAGS\x01A" if number % 2 else b"TAGS\x01B")
    return broker


def test_polled_messages_are_committed_by_later_polls() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 5)
        async with pull_consumer(cluster, start=START_FIRST, persist_offset_interval=1.0) as consumer:
            await consumer.subscribe("T")
            assert [message.body for message in await consumer.poll()] == [b"0", b"1", b"2", b"3", b"4"]
            assert ("cg", "T", 0) not in broker.offsets
            assert await consumer.poll(timeout=6.0) == []
            assert await consumer.poll(timeout=2.0) == []
            await aio.sleep(2)
            assert broker.offsets["cg", "T", 0] == 5

    run(scenario)


def test_commit_waits_for_the_broker() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 5)
        async with pull_consumer(cluster, start=START_FIRST, auto_commit=False) as consumer:
            await consumer.subscribe("T")
            assert len(await consumer.poll(max_messages=2)) == 2
            await consumer.commit()
            assert broker.offsets["cg", "T", 0] == 2
            assert not broker.got(RequestCode.UPDATE_CONSUMER_OFFSET)[-1].is_oneway
            await consumer.commit({QUEUE: 4})
            assert (broker.offsets["cg", "T", 0], await consumer.committed(QUEUE)) == (4, 4)
            broker.refuse(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SYSTEM_ERROR)
            with pytest.raises(BrokerError):
                await consumer.commit()

    run(scenario)


def test_leaving_commits_what_was_polled_unless_told_not_to() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 5)
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.subscribe("T")
            await consumer.poll(max_messages=3)
        assert broker.offsets["cg", "T", 0] == 3
        async with pull_consumer(cluster, "other", start=START_FIRST, auto_commit=False) as consumer:
            await consumer.subscribe("T")
            await consumer.poll()
        assert ("other", "T", 0) not in broker.offsets

    run(scenario)


def test_one_by_one() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker_with(cluster, 3)
        bodies = []
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.subscribe("T", "A || C")
            async for message in consumer:
                bodies.append(message.body)
                break
        assert bodies == [b"1"]

    run(scenario)


def test_members_share_the_queues() -> None:
    """Holds: client, push and pull consumers."""

    async def scenario(cluster: FakeCluster) -> None:
        broker_with(cluster, 0, queues=4)
        async with pull_consumer(cluster, client="l1") as first, pull_consumer(cluster, client="l2") as second:
            await first.subscribe("T")
            await second.subscribe("T")
            await aio.sleep(25)
            assert [queue.queue_id for queue in first.assignment] == [0, 1]
            assert [queue.queue_id for queue in second.assignment] == [2, 3]

    run(scenario)


def test_seek() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker_with(cluster, 10)
        async with pull_consumer(cluster, start=START_FIRST, auto_commit=False) as consumer:
            await consumer.subscribe("T")
            await consumer.poll(max_messages=1)
            await consumer.seek(QUEUE, 8)
            assert [message.queue_offset for message in await consumer.poll()] == [8, 9]
            await consumer.seek_to_begin(QUEUE)
            assert (await consumer.poll())[0].queue_offset == 0
            await consumer.seek_to_end(QUEUE)
            assert await consumer.poll(timeout=1.0) == []
            with pytest.raises(ClientError, match=r"outside of 0 to 10"):
                await consumer.seek(QUEUE, 11)
            with pytest.raises(ClientError, match="not assigned"):
                await consumer.seek(MessageQueue("T", "broker-a", 7), 0)

    run(scenario)


def test_assign_reads_these_queues_and_nobody_elses() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 6, queues=2)
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.assign([MessageQueue("T", "broker-a", 1)])
            assert [message.body for message in await consumer.poll()] == [b"1", b"3", b"5"]
            await consumer.assign([QUEUE])
            assert consumer.assignment == [QUEUE]
            assert [message.body for message in await consumer.poll()] == [b"0", b"2", b"4"]
            with pytest.raises(ClientError, match="exclude"):
                await consumer.subscribe("T")
        assert not broker.got(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        async with pull_consumer(cluster) as consumer:
            await consumer.subscribe("T")
            with pytest.raises(ClientError, match="exclude"):
                await consumer.assign([QUEUE])

    run(scenario)


def test_pulls_carry_their_subscription_and_the_lite_flag() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 1)
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.subscribe("T", "A")
            await consumer.poll(timeout=1.0)
        header = PullMessageRequestHeader.of(broker.got(RequestCode.PULL_MESSAGE)[0])
        assert (header.sys_flag, header.subscription, header.max_msg_nums) == (22, "A", 10)
        assert (header.suspend_timeout_ms, header.expression_type) == (20_000, "TAG")

    run(scenario)


def test_a_pull_by_hand_leaves_offsets_alone() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 3)
        async with pull_consumer(cluster) as consumer:
            assert await consumer.queues("T") == [QUEUE]
            result = await consumer.pull(QUEUE, 1, max_messages=1)
            assert (result.status, result.next_begin_offset, result.messages[0].body) == (PullStatus.FOUND, 2, b"1")
            assert (await consumer.pull(QUEUE, 3)).status is PullStatus.NO_NEW_MSG
            assert (await consumer.pull(QUEUE, 99)).status is PullStatus.OFFSET_ILLEGAL
            assert (await consumer.pull(QUEUE, 0, expression="C")).status is PullStatus.NO_MATCHED_MSG
            assert await consumer.offset_for_time(QUEUE, datetime.fromtimestamp(0, UTC)) == 0
            assert await consumer.offset_for_time(QUEUE, datetime.now(UTC)) == await consumer.max_offset(QUEUE)
            with pytest.raises(ValueError, match="aware"):
                await consumer.offset_for_time(QUEUE, datetime(2024, 1, 1))
        assert not broker.offsets

    run(scenario)


def test_bodies_that_inflate_a_thousandfold_come_in_several_pulls() -> None:
    """Fault: The compressed bodies of one pull, a few kilobytes each, inflated to gigabytes of a consumer's memory."""
    size = 30 << 20
    body = compress(bytes(size))

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        for _ in range(3):
            broker.store("T", 0, body, sys_flag=with_compression(0, CompressionType.ZLIB))
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            first = await consumer.pull(QUEUE, 0)
            assert [len(message.body) for message in first.messages] == [size, size]
            rest = await consumer.pull(QUEUE, first.next_begin_offset)
            assert ([message.queue_offset for message in rest.messages], rest.next_begin_offset) == ([2], 3)
            await consumer.subscribe("T")
            polled: list[int] = []
            while len(polled) < 3:
                polled += [message.queue_offset for message in await consumer.poll()]
            assert polled == [0, 1, 2]

    run(scenario)


def test_paused_queues_are_not_pulled() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 0)
        async with pull_consumer(cluster, start=START_FIRST, broker_suspend=1.0) as consumer:
            await consumer.subscribe("T")
            await aio.sleep(1)
            consumer.pause(QUEUE)
            await aio.sleep(3)
            broker.store("T", 0, b"1")
            assert await consumer.poll(timeout=10.0) == []
            consumer.resume(QUEUE)
            assert len(await consumer.poll(timeout=1.0)) == 1

    run(scenario)


def test_fetching_ahead_is_bounded() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 500)
        async with pull_consumer(cluster, start=START_FIRST, pull_threshold_for_all=25) as consumer:
            await consumer.subscribe("T")
            await aio.sleep(5)
            assert len(broker.got(RequestCode.PULL_MESSAGE)) == 3
            got = []
            while messages := await consumer.poll(timeout=2.0):
                got += [message.queue_offset for message in messages]
            assert got == list(range(500))

    run(scenario)


def test_an_illegal_offset_is_followed_not_committed() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 3)
        broker.offsets["cg", "T", 0] = 77
        async with pull_consumer(cluster, auto_commit=False) as consumer:
            await consumer.subscribe("T")
            await aio.sleep(1)
            broker.store("T", 0, b"new")
            assert [message.body for message in await consumer.poll()] == [b"new"]
            assert broker.offsets["cg", "T", 0] == 77

    run(scenario)


def test_a_poll_takes_messages_of_an_earlier_topic_first() -> None:
    """Holds: client, priority by topics."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(Urgent=1, Normal=1, Other=1)
        options = {"start": START_FIRST, "topic_priority": ("Urgent", "Normal")}
        async with pull_consumer(cluster, **options) as consumer:
            for topic in ("Other", "Normal", "Urgent"):
                await consumer.subscribe(topic)
            await aio.sleep(30)
            for topic in ("Other", "Normal", "Urgent"):
                for number in (1, 2):
                    broker.store(topic, 0, f"{topic} {number}".encode())
                    await aio.sleep(1)
            polled = [(await consumer.poll(max_messages=1))[0].body for _ in range(6)]
        assert polled == [b"Urgent 1", b"Urgent 2", b"Normal 1", b"Normal 2", b"Other 1", b"Other 2"]

    run(scenario)


def test_two_tasks_that_poll_share_what_comes() -> None:
    """Fault: The second one slept on, until its timeout."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = broker_with(cluster, 0)
        polled: list[int] = []
        async with pull_consumer(cluster, start=START_FIRST) as consumer:
            await consumer.subscribe("T")

            async def poll() -> None:
                polled.append(len(await consumer.poll(max_messages=1, timeout=50)))

            async with aio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(poll)
                await aio.sleep(1)
                for body in (b"1", b"2"):
                    broker.store("T", 0, body)
        assert polled == [1, 1]

    run(scenario)
