"""Request-reply of the client: matched by correlation id, known to brokers beforehand, late replies dropped."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from rocketpy import aio
from rocketpy.client import Message, ReceivedMessage, RequestHandle
from rocketpy.client.cluster.received import decode_message
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, MessageInvalid, RequestTimeout
from rocketpy.message.properties import decode_properties, encode_properties
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import now_ms, producer
from tests.support.cluster import FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
CLIENT_ID = "10.1.1.1@p"


def last_request(broker: FakeBroker, topic: str = "T") -> ReceivedMessage:
    """The last message of the topic, as a consumer gets it: the broker has added its cluster."""
    image = next(images[-1] for (name, _), images in broker.records.items() if name == topic and images)
    message = decode_message(image, broker.name)
    return attrs.evolve(message, properties={**message.properties, "CLUSTER": "DefaultCluster"})


def push(reply: RemotingCommand) -> RemotingCommand:
    """What a broker makes of a reply for the client that waits."""
    header = read_send_header(reply)
    pushed = ReplyMessageRequestHeader(
        producer_group=header.producer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp_ms,
        properties=header.properties,
        born_host="/10.2.2.2:4000",
        store_host="10.0.0.1:10911",
        store_timestamp_ms=7,
    )
    return RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, reply.body)


@attrs.define(eq=False)
class Desk:
    """Passes replies on to the connection that sent the last heartbeat of the requester."""

    broker: FakeBroker
    channel: Channel | None = None
    answers: list[RemotingCommand] = attrs.field(factory=list)

    @classmethod
    def beside(cls, broker: FakeBroker) -> Desk:
        desk = cls(broker)
        heartbeat = broker.answers[RequestCode.HEART_BEAT]

        def remember(request: RemotingCommand, channel: Channel) -> object:
            if b"10.1.1.1@p" in (request.body or b""):
                desk.channel = channel
            return heartbeat(request, channel)

        broker.answers[RequestCode.HEART_BEAT] = remember  # type: ignore[assignment]
        broker.answers[RequestCode.SEND_REPLY_MESSAGE_V2] = desk.reply
        broker.topics[REPLY_TOPIC] = 1
        return desk

    async def reply(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        assert self.channel is not None, "the broker does not know the requester"
        self.answers.append(await self.channel.invoke(push(request), 3.0))
        return RemotingCommand.response(ext_fields={"msgId": "0", "queueId": "0", "queueOffset": "0"})


def test_a_request_gets_the_reply_of_a_consumer() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        desk = Desk.beside(broker)
        async with producer(cluster) as asker, producer(cluster, "answers") as answerer:
            handle = await asker.request_soon(Message("T", b"2 + 2?", tags="A"), timeout=2.5)
            await aio.sleep(0.1)
            request = last_request(broker)
            assert request.is_request and request.tags == "A" and request.msg_id == handle.msg_id
            assert (request.properties["REPLY_TO_CLIENT"], request.properties["TTL"]) == (CLIENT_ID, "2500")
            await answerer.send(request.reply(b"4"))
            reply = await handle
        assert (reply.body, reply.topic, reply.properties["ARRIVE_TIME"]) == (b"4", REPLY_TOPIC, str(100))
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert (reply.born_host, reply.store_host) == (("10.2.2.2", 4000), ("10.0.0.1", 10911))
        header = read_send_header(broker.got(RequestCode.SEND_REPLY_MESSAGE_V2)[0])
        assert header.topic == REPLY_TOPIC and decode_properties(header.properties or "")["MSG_TYPE"] == "reply"
        assert [answer.code for answer in desk.answers] == [0]

    run(scenario)


def test_brokers_know_the_requester_before_the_request() -> None:
    """A reply that comes at once finds its client, from every broker of the cluster."""

    async def scenario(cluster: FakeCluster) -> None:
        first, second = cluster.add_broker(T=1), cluster.add_broker("broker-b")
        for broker in (first, second):
            Desk.beside(broker)
        async with producer(cluster) as asker:
            for _ in range(2):
                with pytest.raises(RequestTimeout, match=r"no reply to message \w+ arrived within 0.5 s"):
                    await asker.request(Message("T", b"?"), timeout=0.5)
            assert CLIENT_ID in first.producers["pg"] and CLIENT_ID in second.producers["pg"]
            codes = [request.code for request in first.requests]
        assert codes == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE_V2]

    run(scenario)


def test_a_reply_that_comes_too_late_is_accepted_and_dropped() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        desk = Desk.beside(broker)
        async with producer(cluster) as asker, producer(cluster, "answers") as answerer:
            with pytest.raises(RequestTimeout):
                await asker.request(Message("T", b"?"), timeout=0.5)
            await answerer.send(last_request(broker).reply(b"!"))
            assert [answer.code for answer in desk.answers] == [0] and len(asker._requests) == 0

    run(scenario)


def test_a_request_that_is_refused_does_not_wait() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(RequestCode.SEND_MESSAGE_V2, *[ResponseCode.MESSAGE_ILLEGAL] * 3)
        async with producer(cluster) as asker:
            with pytest.raises(BrokerError):
                await asker.request(Message("T", b"?"), timeout=60)
            assert aio.now_s() < 1

    run(scenario)


def test_a_callback_gets_the_error_of_its_request() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        done: list[RequestHandle] = []
        async with producer(cluster) as asker:
            handle = await asker.request_soon(Message("T", b"?"), timeout=0.5, on_done=done.append)
            with pytest.raises(RequestTimeout):
                await handle
        assert done == [handle] and handle.result is None and isinstance(handle.error, RequestTimeout)

    run(scenario)


def test_a_reply_goes_to_the_broker_of_its_request_unless_that_cannot_be_written() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        brokers = [cluster.add_broker(name, T=1) for name in ("broker-a", "broker-b")]
        for broker in brokers:
            Desk.beside(broker).channel = None
            broker.answers[RequestCode.SEND_REPLY_MESSAGE_V2] = broker.send
        brokers[1].store(
            "T", 0, b"?", encode_properties({"REPLY_TO_CLIENT": "x", "CORRELATION_ID": "y"}).encode(), born_ms=now_ms()
        )
        request = last_request(brokers[1])
        async with producer(cluster) as answerer:
            for _ in range(3):
                assert (await answerer.send(request.reply(b"!"))).queue.broker_name == "broker-b"
        cluster.perms[REPLY_TOPIC, "broker-b"] = 4
        async with producer(cluster) as answerer:
            assert (await answerer.send(request.reply(b"!"))).queue.broker_name == "broker-a"

    run(scenario)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"CLUSTER": "C"}, "is no request"),
        ({"CLUSTER": "C", "REPLY_TO_CLIENT": "x"}, "is no request"),
        ({"REPLY_TO_CLIENT": "x", "CORRELATION_ID": "y"}, "gave it no CLUSTER"),
    ],
)
def test_what_cannot_be_replied_to(
    message: Callable[[dict[str, str]], ReceivedMessage], properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(MessageInvalid, match=reason):
        message(properties).reply(b"!")


@pytest.fixture
def message() -> Callable[[dict[str, str]], ReceivedMessage]:
    def make(properties: dict[str, str]) -> ReceivedMessage:
        broker = FakeBroker("10.0.0.1:10911")
        broker.store("T", 0, b"?", encode_properties(properties).encode())
        return decode_message(broker.records["T", 0][0], "broker-a")

    return make
