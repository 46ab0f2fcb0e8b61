"""Clients with a namespace: brokers see `NAMESPACE%name`, users see the names that they gave."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import (
    START_FIRST,
    ClientOptions,
    LocalTransactionState,
    Message,
    ProducerOptions,
    ReceivedMessage,
    TransactionProducer,
)
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.names import TRACE_TOPIC, with_namespace, without_namespace
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_records as stored_records
from rocketpy.message.trace import decode_records
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import lifetime, producer, pull_consumer, push_consumer
from tests.support.cluster import NAME_SERVER, FakeCluster, run
from tests.support.push_consumers import Seen

NS = {"namespace": "NS"}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("T", "NS%T"),
        ("%RETRY%g", "%RETRY%NS%g"),
        ("%DLQ%g", "%DLQ%NS%g"),
        ("TBW102", "TBW102"),
        (TRACE_TOPIC, TRACE_TOPIC),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names(name: str, known: str) -> None:
    """As RocketMQ 4.9 `NamespaceUtil`; a name that has the namespace keeps it."""
    assert with_namespace(name, "NS") == known == with_namespace(known, "NS")
    assert without_namespace(known, "NS") == name
    assert (with_namespace(name, ""), without_namespace(known, "")) == (name, known)
    assert without_namespace("OTHER%T", "NS") == "OTHER%T"


def test_the_namespace_of_options_and_of_an_address() -> None:
    assert ClientOptions(name_servers="a:1", **NS).namespace_in_use == "NS"  # type: ignore[arg-type]
    endpoint = "http://MQ_INST_123_BXy.example.com:80"
    assert ClientOptions(name_servers=endpoint).namespace_in_use == "MQ_INST_123_BXy"
    assert ClientOptions(name_servers="a.example.com:80").namespace_in_use == ""
    with pytest.raises(ValueError, match=r"namespace is 'a%b': expected letters"):
        ClientOptions(namespace="a%b")


@pytest.mark.usefixtures("backend")
def test_messages_and_groups_have_the_namespace_before_brokers_alone() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(**{"NS%T": 1, "T": 1})
        broker.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
        seen = Seen(ValueError("once"))
        async with producer(cluster, **NS) as sender, push_consumer(cluster, seen, start=START_FIRST, **NS) as consumer:
            await sender.send(Message("T", b"1"))
            await sender.send_batch([Message("T", b"2")])
            (queue,) = await sender.queues("T")
            await sender.send_oneway(Message("T", b"3"), queue=queue)
            await (await sender.send_soon(Message("T", b"4")))
            await aio.sleep(40)
            assert broker.members["NS%cg"].keys() == {"10.1.1.1@c1"}
            assert (queue.topic, {queue.topic for queue in consumer.assignment}) == ("NS%T", {"NS%T", "%RETRY%NS%cg"})
        assert [(message.topic, message.body) for message in seen.messages[:1]] == [("T", b"1")]
        assert sorted((message.topic, message.body) for message in seen.messages[1:]) == [
            *(("T", b"1"), ("T", b"2"), ("T", b"3"), ("T", b"4"))
        ]
        assert broker.offsets["NS%cg", "NS%T", 0] == 4 and not broker.records["T", 0]
        sent = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        assert (sent.producer_group, sent.topic, sent.default_topic) == ("NS%pg", "NS%T", "TBW102")
        (record,) = stored_records(broker.records["NS%T", 0][1])
        for properties in (sent.properties or "", record.properties.decode()):
            assert decode_properties(properties)["INSTANCE_ID"] == "NS"
        (again,) = stored_records(broker.records["%RETRY%NS%cg", 0][0])
        assert decode_properties(again.properties.decode())["RETRY_TOPIC"] == "NS%T"

    run(scenario)


@pytest.mark.usefixtures("backend")
def test_a_pull_consumer() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(**{"NS%T": 1})
        broker.store("NS%T", 0, b"1")
        async with pull_consumer(cluster, **NS) as consumer:
            (queue,) = await consumer.queues("T")
            assert [message.topic for message in (await consumer.pull(queue, 0)).messages] == ["T"]
            broker.offsets["NS%cg", "NS%T", 0] = 0
            await consumer.subscribe("T")
            assert [(message.topic, message.body) for message in await consumer.poll(timeout=5)] == [("T", b"1")]
            consumer.unsubscribe("T")
            await aio.sleep(1)
            assert consumer.assignment == []

    run(scenario)


@pytest.mark.usefixtures("backend")
def test_transactions_and_traces() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(**{"NS%T": 1, TRACE_TOPIC: 1})
        known: list[str] = []

        class Local:
            async def execute(self, message: Message, argument: object) -> LocalTransactionState:
                known.append(message.topic)
                return LocalTransactionState.COMMIT

            async def check(self, message: ReceivedMessage) -> None: ...

        options = ProducerOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1", trace=True, namespace="NS")
        made: Any = lifetime(cluster, options, "10.1.1.1@p")
        async with TransactionProducer("pg", Local(), options, lifetime=made) as sender:
            await sender.send_in_transaction(Message("T", b"1"))
            await aio.sleep(2)
        (record,) = stored_records(broker.records["NS%T", 0][0])
        assert decode_properties(record.properties.decode())["PGROUP"] == "NS%pg"
        traces = [
            trace
            for image in broker.records[TRACE_TOPIC, 0]
            for record in stored_records(image)
            for trace in decode_records(record.body.decode())
        ]
        assert known == ["T"]
        assert [(trace.group, trace.topic) for trace in traces] == [("pg", "T"), ("pg", "T")]

    run(scenario)
