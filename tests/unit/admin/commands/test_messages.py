"""Commands about messages against a scripted cluster: what is asked of whom, what is printed."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import trio
import trio.testing

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.compression import compress
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.sys_flag import COMPRESSED
from rocketpy.remoting.bodies.broker import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from rocketpy.remoting.bodies.client import (
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumeType,
    SubscriptionData,
)
from rocketpy.remoting.bodies.group import GroupList
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.offset import OffsetResponseHeader, SearchOffsetRequestHeader
from tests.support.admin import Mqadmin, Script, one_broker, void, with_messages
from tests.support.cluster import FakeCluster


def test_query_by_id_shows_the_message_and_its_tracks(mqadmin: Mqadmin, tmp_path: Path) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.topics["%RETRY%g"] = 1
        broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=["g", "off"]))
        broker.answer(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ConsumerConnection(
                connection_set=[Connection(client_id="c")],
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                subscription_table={"T": SubscriptionData(topic="T", tags_set=["B"])},
            ),
        )
        table = {MessageQueue("T", "broker-a", 0): OffsetWrapper(broker_offset=1, consumer_offset=1)}
        broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=table))

    body = tmp_path / "body"
    message_id = "0A00000100002A9F0000000000000000"
    lines = mqadmin("queryMsgById", "-i", message_id, "--body-file", str(body), "--print-body", script=script)
    assert f"{'OffsetID:':<20} {message_id}" in lines
    assert f"{'Tags:':<20} [A]" in lines and f"{'Message Body:':<20} first" in lines
    assert f"{'Message Body Path:':<20} {body}" in lines and body.read_bytes() == b"first"
    track = "MessageTrack [consumerGroup=g, trackType=CONSUMED_BUT_FILTERED, exceptionDesc=null]"
    assert lines[-1].startswith(f"{track}MessageTrack [consumerGroup=off, "), "all tracks in one line, as in Java"
    assert "trackType=UNKNOWN" in lines[-1]
    mqadmin("queryMsgById", "-i", "nonsense", script=script, status=1)


def test_direct_consumption_and_resend(mqadmin: Mqadmin) -> None:
    """Fault: `mqadmin queryMsgById -s` resent the message under a new unique id."""

    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.answer(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResult(spent_time_ms=7))

    message_id = "0A00000100002A9F0000000000000000"
    lines = mqadmin("queryMsgById", "-i", message_id, "-g", "g", "-d", "client", script=script)
    shown = "order=false, autoCommit=true, consumeResult=null, remark=null, spentTimeMills=7"
    assert lines == [f"ConsumeMessageDirectlyResult [{shown}]"]
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert request.ext_field("msgId") == message_id
    (line,) = mqadmin("queryMsgById", "-i", message_id, "-s", "true", script=script)
    assert "SEND_OK" in line and "msgId=AA" in line
    images = [image for queue in mqadmin.cluster.brokers["broker-a"].records.values() for image in queue]
    assert len(images) == 3 and sum(b"UNIQ_KEY\x01AA" in image for image in images) == 2


def test_query_by_key_compares_the_text(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used twice here
    lines = mqadmin("queryMsgByKey", "-t", "T", "-k", "k1", script=script)
    assert lines[1:] == [f"{'AA':<50} {0:>4} {0:>40}"]
    mqadmin("queryMsgByKey", "-t", "T", "-k", "k", script=script, status=4)


def test_query_by_unique_key_and_by_offset(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used four times here
    assert f"{'Queue ID:':<20} 1" in mqadmin("queryMsgByUniqueKey", "-t", "T", "-i", "BB", script=script)
    mqadmin("queryMsgByUniqueKey", "-t", "T", "-i", "CC", script=script, status=4)
    offset = ("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "1", "-o")
    assert "WARN: No Consumer" in mqadmin(*offset, "0", script=script)
    mqadmin(*offset, "9", script=script, status=4)


def test_queries_inflate_only_what_they_show(mqadmin: Mqadmin) -> None:
    """Fault: A query inflated all messages of an answer at once: 64 of a few KiB could take 4 GiB."""
    size = 16 << 20
    bomb = compress(bytes(size))

    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, RMQ_SYS_TRACE_TOPIC=1)
        broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList())
        for topic in ("T", "RMQ_SYS_TRACE_TOPIC"):
            for _ in range(4):
                broker.store(topic, 0, bomb, b"KEYS\x01ID\x02UNIQ_KEY\x01ID\x02", sys_flag=COMPRESSED)

    def peak_of(*argv: str, status: int = 0) -> int:
        tracemalloc.start()
        try:
            mqadmin(*argv, script=script, status=status)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_of("queryMsgByKey", "-t", "T", "-k", "ID") < size
    assert peak_of("queryMsgTraceById", "-i", "ID", status=4) < size
    assert peak_of("queryMsgByUniqueKey", "-t", "T", "-i", "ID", "-a") < 4 * size, "one after the other"


def test_print_messages(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used often here
    lines = mqadmin("printMsg", "-t", "T", script=script)
    assert lines[0] == "minOffset=0, maxOffset=1, MessageQueue [topic=T, brokerName=broker-a, queueId=0]"
    assert lines[1].startswith("MSGID: AA ") and lines[1].endswith("BODY: first")
    assert lines[2] == "-" * 56
    assert len([line for line in mqadmin("printMsg", "-t", "T", "-s", "B", script=script) if "MSGID" in line]) == 1
    queue = ("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0")
    assert mqadmin(*queue, "-f", "true", script=script) == [f"Tag: {'A':<30} Count: 1"]
    assert "NOT PRINT BODY" in mqadmin(*queue, "-p", "true", script=script)[0]
    mqadmin("printMsg", "-t", "T", "-b", "yesterday", script=script, status=2)


def test_an_end_after_the_last_message_leaves_out_none(mqadmin: Mqadmin) -> None:
    """The offset that a broker finds for such a time is the one of the last message.
    Fault: `mqadmin printMsg` with an end time after the last message left out the last message of each queue."""

    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.store("T", 1, b"third", b"UNIQ_KEY\x01CC\x02TAGS\x01B")
        broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda request, channel: RemotingCommand.response(
            header=OffsetResponseHeader(
                offset=broker.next_offset("T", SearchOffsetRequestHeader.of(request).queue_id) - 1
            )
        )

    for end, count in (("2000000000000", 3), ("1000", 0)):
        lines = mqadmin("printMsg", "-t", "T", "-e", end, script=script)
        assert len([line for line in lines if line.startswith("MSGID")]) == count
        queue = ("-a", "broker-a", "-i", "1", "-e", end, "-p", "true")
        assert len(mqadmin("printMsgByQueue", "-t", "T", *queue, script=script)) == max(count - 1, 0)
        lines = mqadmin("consumeMessage", "-t", "T", "-e", end, script=script)
        assert len([line for line in lines if line.startswith("MSGID")]) == count


def test_consume_message(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used often here
    lines = mqadmin("consumeMessage", "-t", "T", script=script)
    assert lines[0] == "Consume ok" and lines[1].startswith("MSGID: ")
    assert lines[2].endswith("print msg finished. status=NO_NEW_MSG, offset=1") and len(lines) == 6
    assert [line[:11] for line in mqadmin("consumeMessage", "-t", "T", "-c", "1", script=script)] == [
        "Consume ok",
        "MSGID: AA M",
    ]
    gone = mqadmin("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "1", "-o", "9", script=script)
    assert gone == ["MessageQueue [topic=T, brokerName=broker-a, queueId=1] no matched msg, offset=9"]
    queue = ("-b", "broker-a", "-i", "1", "-o", "0")
    one = mqadmin("consumeMessage", "-t", "T", *queue, "--output", "json", script=script)
    assert json.loads(one[0])["body"] == "second"
    mqadmin("consumeMessage", "-t", "T", "-b", "broker-z", script=script, status=4)
    assert "The broker[broker-z] not exist" in mqadmin.error
    mqadmin("consumeMessage", "-t", "T", "-i", "1", script=script, status=2)
    assert "Please set the brokerName before queueId!" in mqadmin.error
    mqadmin("consumeMessage", "-t", "T", "-o", "1", script=script, status=2)
    assert "Please set queueId before offset!" in mqadmin.error
    assert not mqadmin.error.startswith("unexpected")


def test_query_cq(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        found = QueryConsumeQueueResponseBody(
            min_queue_index=0, max_queue_index=2, queue_data=[ConsumeQueueData(physic_offset=378, physic_size=189)]
        )
        cluster.add_broker(T=1).answer(RequestCode.QUERY_CONSUME_QUEUE, found)

    shown = "physicOffset=378, physicSize=189, tagsCode=0, extendDataJson='null', bitMap='null', eval=false, msg='null'"
    assert mqadmin("queryCq", "-t", "T", "-q", "0", "-i", "5", script=script) == [
        "Queue data: ",
        "max: 2, min: 0",
        "=" * 38,
        "idx: 5",
        f"ConsumeQueueData{{{shown}}}",
        "=" * 38,
    ]


def test_send_message(mqadmin: Mqadmin) -> None:
    lines = mqadmin("sendMessage", "-t", "T", "-p", "hé", "-k", "a b", "-c", "Tag", script=one_broker)
    assert lines[1].split()[:3:2] == ["broker-a", "SEND_OK"]
    broker = mqadmin.cluster.brokers["broker-a"]
    (image,) = [image for images in broker.records.values() for image in images]
    assert "hé".encode() in image and b"KEYS\x01a b" in image and b"TAGS\x01Tag" in image
    lines = mqadmin("sendMessage", "-t", "T", "-p", "x", "-b", "broker-a", "-i", "1", script=one_broker)
    assert lines[1].split()[1] == "1"
    mqadmin("sendMessage", "-t", "T", "-p", "x", "-i", "1", script=one_broker, status=2)
    assert "Broker name must be set if the queue is chosen!" in mqadmin.error
    mqadmin("sendMessage", "-t", "T", "-p", "x", "-b", "none", "-i", "1", script=one_broker, status=4)
    assert "The broker[none] not exist" in mqadmin.error

    def refused(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1).refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)

    assert mqadmin("sendMessage", "-t", "T", "-p", "x", script=refused, status=1)[1].split() == [
        "Unknown",
        "Unknown",
        "Failed",
        "None",
    ]


def test_measurements(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, **{"broker-a": 1})

        async def slow(request: RemotingCommand, channel: Any) -> RemotingCommand:
            await trio.sleep(0.01)
            return broker.send(request, channel)

        broker.answers[RequestCode.SEND_MESSAGE_V2] = slow

    lines = mqadmin("checkMsgSendRT", "-t", "T", "-a", "3", script=script)
    assert [line.split()[2:] for line in lines[1:4]] == [["true", "10"]] * 3
    assert lines[4] == "Avg RT: 10.00"
    for line in mqadmin("sendMsgStatus", "-b", "broker-a", "-c", "2", script=script):
        assert line.startswith("rt=10ms, SendResult=SendResult [sendStatus=SEND_OK, msgId=")
    lines = mqadmin("clusterRT", "-a", "2", "--rounds", "2", script=script)
    assert [line.split() for line in lines[1:]] == [["DefaultCluster", "broker-a", "10.00", "2", "0"]] * 2
    (line,) = mqadmin("clusterRT", "-a", "1", "-p", "true", "--rounds", "1", "-m", "room", script=script)
    assert line.endswith("|room|DefaultCluster|broker-a|10")
    mqadmin("clusterRT", "-c", "nope", "--rounds", "1", script=script, status=4)
