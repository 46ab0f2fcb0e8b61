"""Traces that clients write: what is in them, that nothing waits for them, and that they are bounded."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import START_FIRST
from rocketpy.client.results import ConsumeResult
from rocketpy.client.tracing import BODY_MAX, GROUP_PREFIX, KEYS_MAX, WAITING_MAX
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_records as stored_records
from rocketpy.message.trace import (
    ContextCode,
    MessageKind,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
    decode_records,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import SendMessageResponseHeader, read_send_header
from tests.support.clients import producer, push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, no, run

pytestmark = pytest.mark.usefixtures("backend")

SEND = RequestCode.SEND_MESSAGE_V2
LATER_S = 2.0  # when what was written is sent


def traces(broker: FakeBroker, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    bodies = [
        record.body
        for (name, _), images in sorted(broker.records.items())
        if name == topic
        for image in images
        for record in stored_records(image)
    ]
    return [record for body in bodies for record in decode_records(body.decode())]


def pub(msg_id: str, *, topic: str = "T", keys: str = "") -> Pub:
    return Pub(0, "R", "g", topic, msg_id, "", keys, "", 0, 0, MessageKind.NORMAL, "", True)


def trace_messages(broker: FakeBroker) -> list[RemotingCommand]:
    return [request for request in broker.got(SEND) if read_send_header(request).topic == TRACE_TOPIC]


def traced_cluster(cluster: FakeCluster, **topics: int) -> FakeBroker:
    return cluster.add_broker(T=1, **{TRACE_TOPIC: 1}, **topics)


def test_a_send_leaves_a_record_that_can_be_found_by_id_and_key() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        async with producer(cluster, trace=True) as sender:
            result = await sender.send(Message("T", b"body", tags="A", keys=("k1", "k2")))
            await aio.sleep(LATER_S)
        (record,) = traces(broker)
        assert isinstance(record, Pub)
        assert (record.group, record.topic, record.msg_id, record.tags, record.keys) == (
            ("pg", "T", result.msg_id, "A", "k1 k2")
        )
        assert (record.region_id, record.body_size, record.kind) == ("R", 4, MessageKind.NORMAL)
        assert record.is_success
        assert record.offset_msg_id == result.offset_msg_id
        assert decode_offset_message_id(record.offset_msg_id).store_host[0] == record.store_host.split(":")[0]
        (sent,) = trace_messages(broker)
        header = read_send_header(sent)
        assert header.producer_group == f"{GROUP_PREFIX}pg-PRODUCE-1"
        keys = decode_properties(header.properties or "")["KEYS"].split()
        assert keys == [result.msg_id, "k1", "k2"]

    run(scenario)


def test_only_who_asks_for_traces_writes_them() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster, own=1)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"x"))
            await aio.sleep(LATER_S)
        assert not traces(broker)
        async with producer(cluster, trace=True, trace_topic="own") as sender:
            await sender.send(Message("T", b"x"))
            await sender.send(Message("own", b"x"))
        assert not traces(broker) and len(traces(broker, "own")) == 1, "sends to the trace topic are not traced"

    run(scenario)


def test_a_broker_may_not_want_traces() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        answer = SendMessageResponseHeader(msg_id="0A00000100002A9F0000000000000000", queue_id=0, queue_offset=0)
        answer.trace_on = False
        broker.answers[SEND] = lambda request, channel: RemotingCommand.response(header=answer)
        async with producer(cluster, trace=True) as sender:
            await sender.send(Message("T", b"x"))
        assert not trace_messages(broker)

    run(scenario)


def test_each_message_of_a_batch_has_a_record_and_a_delayed_one_says_so() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        async with producer(cluster, trace=True) as sender:
            result = await sender.send_batch([Message("T", b"1"), Message("T", b"2")])
            delayed = await sender.send(Message("T", b"3", delay_level=3))
        records = [record for record in traces(broker) if isinstance(record, Pub)]
        assert [record.msg_id for record in records] == [*result.msg_id.split(","), delayed.msg_id]
        assert [record.offset_msg_id for record in records[:2]] == result.offset_msg_id.split(",")
        assert [record.kind for record in records] == [MessageKind.NORMAL, MessageKind.NORMAL, MessageKind.DELAY]

    run(scenario)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_consumption_leaves_a_record_before_and_one_after(ordered: bool) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        broker.store("T", 0, b"good", b"UNIQ_KEY\x01AA\x02KEYS\x01k1\x02MSG_REGION\x01R")
        broker.store("T", 0, b"untraced", b"UNIQ_KEY\x01BB\x02TRACE_ON\x01false")

        async def handler(message: ReceivedMessage) -> None:
            await aio.sleep(0.01)

        async with push_consumer(cluster, handler, start=START_FIRST, ordered=ordered, trace=True):
            await aio.sleep(6)
        before, after = traces(broker)
        assert isinstance(before, SubBefore) and isinstance(after, SubAfter)
        assert (before.group, before.msg_id, before.keys, before.region_id, before.retry_times) == (
            ("cg", "AA", "k1", "R", 0)
        )
        assert after.request_id == before.request_id and (after.msg_id, after.group, after.keys) == ("AA", "cg", "k1")
        assert (after.is_success, after.context_code, after.cost_ms) == (True, ContextCode.SUCCESS, 10)

    run(scenario)


def test_what_became_of_failed_messages() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        for name in (b"AA", b"BB"):
            broker.store("T", 0, b"x", b"UNIQ_KEY\x01" + name)
        results: list[Any] = [ValueError("boom"), ConsumeResult.retry()]

        async def handler(message: ReceivedMessage) -> ConsumeResult:
            result = results.pop(0) if results else ConsumeResult.success()
            if isinstance(result, Exception):
                raise result
            assert isinstance(result, ConsumeResult)
            return result

        async with push_consumer(cluster, handler, start=START_FIRST, concurrency=1, trace=True):
            await aio.sleep(3)
        after = [record for record in traces(broker) if isinstance(record, SubAfter)]
        assert [(record.msg_id, record.is_success, record.context_code) for record in after[:2]] == [
            ("AA", False, ContextCode.EXCEPTION),
            ("BB", False, ContextCode.FAILED),
        ]

    run(scenario)


def test_a_trace_topic_that_fails_neither_delays_nor_fails_sends(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        send = broker.send

        def refuse_traces(request: RemotingCommand, channel: Any) -> RemotingCommand:
            is_trace = read_send_header(request).topic == TRACE_TOPIC
            return no(ResponseCode.MESSAGE_ILLEGAL) if is_trace else send(request, channel)

        broker.answers[SEND] = refuse_traces
        begin_s = aio.now_s()
        async with producer(cluster, trace=True) as sender:
            for _ in range(3):
                await sender.send(Message("T", b"x"))
            assert aio.now_s() - begin_s < 0.1
        assert aio.now_s() - begin_s < LATER_S

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert f"3 trace records for topic {TRACE_TOPIC} were dropped" in caplog.text


def test_waiting_traces_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = traced_cluster(cluster)
        async with producer(cluster, trace=True) as sender:
            assert sender._traces is not None
            sender._traces.write(pub(f"{n}") for n in range(WAITING_MAX + 5))
            await sender.send(Message("T", b"the send itself is not refused"))
            await aio.sleep(LATER_S)
        assert len(broker.got(SEND)) > 1

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert f"{WAITING_MAX} are waiting" in caplog.text


def test_a_trace_message_is_bounded_in_body_and_keys() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        traced_cluster(cluster)
        async with producer(cluster, trace=True) as sender:
            writer = sender._traces
            assert writer is not None
            writer.write(pub(f"id{n}", keys="k" * 500, topic="T" * 900) for n in range(300))
            writer.write(pub(f"no{n}", keys=f"{n}" * 200) for n in range(300))
            writer.write([pub("long", keys="k" * 2 * KEYS_MAX)])
            counts = []
            while writer._waiting:
                message, count = writer._next_message()
                alone = count == 1
                assert alone or len(message.body) <= BODY_MAX
                assert alone or len(" ".join(message.keys)) <= KEYS_MAX
                counts.append(count)
            assert sum(counts) == 601 and len(counts) > 5 and counts[-1] == 1

    run(scenario)
