"""What brokers and mqadmin ask of a push consumer: its state, a message consumed directly, a reset of offsets."""

import logging

import pytest

from rocketpy import aio
from rocketpy.client.options import START_FIRST
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from tests.support.clients import push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.push_consumers import Seen, store

pytestmark = pytest.mark.usefixtures("backend")

FIRST, SECOND = (MessageQueue("T", "broker-a", number) for number in range(2))


async def ask(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
    """Ask the only member of the group, as a broker does."""
    (channel,) = broker.members["cg"].values()
    return await channel.invoke(request, 10)


def test_running_info() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        async with push_consumer(cluster, Seen(), start=START_FIRST):
            await aio.sleep(12)
            header = GetConsumerRunningInfoRequestHeader(consumer_group="cg", client_id="x", jstack_enable=True)
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["PROP_CONSUMER_START_TIMESTAMP"].isdecimal()
            assert info.mq_table[MessageQueue("T", "broker-a", 0)].commit_offset == 1
            assert info.status_table["T"].consume_ok_tps > 0
            assert info.jstack and "test_broker_requests" in info.jstack
            other = GetConsumerRunningInfoRequestHeader(consumer_group="other", client_id="x")
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, other))
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(scenario)


def test_consumer_status_and_unknown_requests() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        async with push_consumer(cluster, Seen(), start=START_FIRST):
            await aio.sleep(1)
            header = GetConsumerStatusRequestHeader(topic="T", group="cg")
            answer = await ask(broker, RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
            table = GetConsumerStatusBody.decode(answer.body).message_queue_table
            assert table == {MessageQueue("T", "broker-a", 0): 1}
            answer = await ask(broker, RemotingCommand.request(9999))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(scenario)


def test_a_message_consumed_directly_moves_no_offset() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        seen = Seen(None, ValueError("boom"))
        async with push_consumer(cluster, seen, start=START_FIRST):
            await aio.sleep(1)
            header = ConsumeMessageDirectlyRequestHeader(consumer_group="cg", client_id="x", broker_name="broker-a")
            request = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, broker.records["T", 0][0])
            result = ConsumeMessageDirectlyResult.decode((await ask(broker, request)).body)
            assert result.consume_result is CMResult.CR_THROW_EXCEPTION
            assert result.remark == "ValueError: boom"
            assert seen.bodies == [b"1", b"1"] and not broker.sent_back

    run(scenario)


def test_offsets_are_reset_backwards_after_handlers_had_time() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"2")
        seen = Seen()
        async with push_consumer(cluster, seen, start=START_FIRST, concurrency=1):
            await aio.sleep(6)
            header = ResetOffsetRequestHeader(topic="T", group="cg", timestamp_ms=0, is_force=True)
            body = ResetOffsetBody(offset_table={MessageQueue("T", "broker-a", 0): 1})
            (channel,) = broker.members["cg"].values()
            channel.push(RemotingCommand.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body.encode()))
            await aio.sleep(9)
            assert seen.bodies == [b"1", b"2"]
            await aio.sleep(4)
            assert seen.bodies == [b"1", b"2", b"2"]

    run(scenario)


def test_many_resets_at_once_are_one(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Each request of a broker to reset offsets kept a task and its table for ten seconds, without a bound."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        async with push_consumer(cluster, Seen(), start=START_FIRST):
            await aio.sleep(6)
            for offset in range(20):
                _reset(broker, FIRST, offset)
            await aio.sleep(9)
            _reset(broker, SECOND, 5)
            await aio.sleep(9)
            assert not _resets(caplog), "the handlers of the second queue have ten seconds as well"
            await aio.sleep(4)
            assert _resets(caplog) == {f"{FIRST} to 19", f"{SECOND} to 5"}

    with caplog.at_level(logging.INFO):
        run(scenario)


def test_a_reset_waits_for_handlers_also_while_another_is_done(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2)
        async with push_consumer(cluster, Seen(), start=START_FIRST) as consumer:
            await aio.sleep(6)
            _reset(broker, FIRST, 19)
            await aio.sleep(9)
            async with consumer._rebalancer._lock:  # the first queue cannot be given up yet
                await aio.sleep(3)
                _reset(broker, SECOND, 5)
                await aio.sleep(1)
            await aio.sleep(5)
            assert _resets(caplog) == {f"{FIRST} to 19"}, "the handlers of the second queue have ten seconds as well"
            await aio.sleep(7)
            assert _resets(caplog) == {f"{FIRST} to 19", f"{SECOND} to 5"}

    with caplog.at_level(logging.INFO):
        run(scenario)


def _reset(broker: FakeBroker, queue: MessageQueue, offset: int) -> None:
    header = ResetOffsetRequestHeader(topic="T", group="cg", timestamp_ms=0, is_force=True)
    body = ResetOffsetBody(offset_table={queue: offset})
    (channel,) = broker.members["cg"].values()
    channel.push(RemotingCommand.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body.encode()))


def _resets(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {text.partition("of queue ")[2] for text in caplog.messages if "reset the offset" in text}
