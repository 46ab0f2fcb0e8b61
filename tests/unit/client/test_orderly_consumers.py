"""Orderly listeners: one message after the other, and none without the lock of its queue."""

import pytest

from rocketpy import aio
from rocketpy.client.options import START_FIRST
from rocketpy.client.results import ConsumeResult
from rocketpy.codes import RequestCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import Seen, store

pytestmark = pytest.mark.usefixtures("backend")


def test_ordered_messages_wait_for_the_one_that_fails() -> None:
    """Holds: client, orderly listeners."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2", b"3")
        seen = Seen(None, ConsumeResult.suspend(2.0), ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await aio.sleep(10)
            assert seen.bodies == [b"1", b"2", b"2", b"2", b"3"]
            assert [message.reconsume_times for message in seen.messages] == [0, 0, 1, 2, 0]
            assert broker.offsets["cg", "T", 0] == 3
            assert broker.locks["cg", MessageQueue("T", "broker-a", 0)] == "10.1.1.1@c1"
        assert broker.locks == {}

    run(scenario)


def test_an_ordered_message_is_given_up_after_its_attempts() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"poison", b"next")
        seen = Seen(*[ValueError("boom")] * 3)
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True, reconsume_times_max=2):
            await aio.sleep(10)
        assert seen.bodies[:4] == [b"poison", b"poison", b"poison", b"next"]
        header = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%cg", 3, 2)

    run(scenario)


def test_a_dead_letter_does_not_stop_its_ordered_queue() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"poison", b"next")
        seen = Seen(ConsumeResult.dead_letter())
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await aio.sleep(6)
            assert seen.bodies == [b"poison", b"next"]
            assert broker.offsets["cg", "T", 0] == 2
        assert len(broker.records["%DLQ%cg", 0]) == 1

    run(scenario)


def test_an_ordered_queue_that_is_locked_elsewhere_waits() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        broker.locks["cg", MessageQueue("T", "broker-a", 0)] = "somebody else"
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await aio.sleep(30)
            assert seen.bodies == []
            broker.locks.clear()
            await aio.sleep(25)
            assert seen.bodies == [b"1"]

    run(scenario)


def test_a_lost_lock_stops_ordered_consumption() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await aio.sleep(5)
            broker.locks["cg", MessageQueue("T", "broker-a", 0)] = "thief"
            await aio.sleep(20)
            store(broker, b"1")
            await aio.sleep(30)
            assert seen.bodies == []

    run(scenario)


def test_ordered_results_wait_for_commit() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2", b"3")
        seen = Seen(ConsumeResult.hold(), ConsumeResult.rollback(), ConsumeResult.hold(), ConsumeResult.commit())
        async with push_consumer(cluster, seen, start=START_FIRST, ordered=True):
            await aio.sleep(6)
            assert seen.bodies == [b"1", b"2", b"1", b"2", b"3"]
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)
