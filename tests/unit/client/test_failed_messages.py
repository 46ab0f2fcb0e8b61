"""Messages that their listener did not complete: sent back or consumed again, and the offset waits for them."""

from collections.abc import Sequence

import pytest

from rocketpy import aio
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.options import START_FIRST
from rocketpy.client.results import ConsumeResult
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import Seen, store

pytestmark = pytest.mark.usefixtures("backend")


def test_a_failed_message_goes_back_to_its_broker_and_the_offset_moves() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad", b"later", b"dead", b"good")
        seen = Seen(ValueError("boom"), ConsumeResult.retry(5), ConsumeResult.dead_letter())
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await aio.sleep(6)
            assert [header.delay_level for header in broker.sent_back] == [0, 5, -1]
            assert {header.max_reconsume_times for header in broker.sent_back} == {16}
            assert broker.sent_back[1].offset > broker.sent_back[0].offset
            assert broker.offsets["cg", "T", 0] == 4

    run(scenario)


def test_when_the_broker_will_not_take_it_back_the_retry_topic_does() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad")
        broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
        seen = Seen(ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST):
            await aio.sleep(40)
        header = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        properties = decode_properties(header.properties or "")
        assert header.topic == "%RETRY%cg"
        assert (header.reconsume_times, header.max_reconsume_times) == (1, 16)
        assert (properties["RETRY_TOPIC"], properties["DELAY"]) == ("T", "3")
        assert properties["ORIGIN_MESSAGE_ID"] == seen.messages[0].offset_msg_id
        assert [(message.topic, message.reconsume_times) for message in seen.messages] == [("T", 0), ("T", 1)]

    run(scenario)


def test_what_cannot_be_returned_is_consumed_again_here_and_holds_the_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"bad", b"good")
        broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, *[ResponseCode.SYSTEM_ERROR] * 3)
        broker.refuse(RequestCode.SEND_MESSAGE_V2, *[ResponseCode.MESSAGE_ILLEGAL] * 3)
        seen = Seen(ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1, persist_offset_interval=1.0):
            await aio.sleep(4)
            assert broker.offsets["cg", "T", 0] == 0
            await aio.sleep(4)
            assert seen.bodies == [b"bad", b"good", b"bad"]
            assert seen.messages[2].reconsume_times == 1
            assert broker.offsets["cg", "T", 0] == 2

    run(scenario)


def test_part_of_a_batch_may_be_done() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"0", b"1", b"2")
        batches: list[Sequence[ReceivedMessage]] = []

        async def handle(batch: Sequence[ReceivedMessage]) -> ConsumeResult:
            batches.append(batch)
            return ConsumeResult.partial(0)

        async with push_consumer(cluster, handle, batch=True, batch_size_max=10, start=START_FIRST):
            await aio.sleep(6)
            assert [len(batch) for batch in batches] == [3]
            assert len(broker.sent_back) == 2
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)


def test_the_offset_waits_for_the_slowest() -> None:
    """Holds: client, the smallest unfinished offset is committed."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"slow", b"fast", b"fast")

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"slow":
                await aio.sleep(20)

        async with push_consumer(cluster, handle, start=START_FIRST):
            await aio.sleep(7)
            assert broker.offsets["cg", "T", 0] == 0
            await aio.sleep(20)
            assert broker.offsets["cg", "T", 0] == 3

    run(scenario)


def test_a_message_that_takes_too_long_is_sent_back() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"stuck", b"fine")

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"stuck":
                await aio.sleep_forever()

        async with push_consumer(cluster, handle, start=START_FIRST, consume_timeout=10.0, shutdown_grace=0.0):
            await aio.sleep(27)
            assert [header.delay_level for header in broker.sent_back] == [3]
            assert broker.offsets["cg", "T", 0] == 2

    run(scenario)
