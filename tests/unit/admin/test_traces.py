"""queryMsgTraceById: what clients wrote about a message."""

from __future__ import annotations

import json
import zlib

from rocketpy.admin.commands.traces import RECORDS_MAX, TRACE_BYTES_MAX, TRACES_BYTES_MAX
from rocketpy.message.sys_flag import COMPRESSED
from rocketpy.message.trace import Pub, SubAfter, SubBefore
from tests.support.admin import Mqadmin
from tests.support.cluster import FakeCluster

SENT = Pub(1709288551127, "R", "pg", "T", "ID", "A", "k", "10.0.0.1:10911", 5, 12, 0, "OFF", True)
OTHER = Pub(1709288551127, "R", "pg", "T", "ANOTHER", "A", "k", "10.0.0.1:10911", 5, 12, 0, "OFF", True)
BEFORE = SubBefore(1709288551200, "R", "cg", "Q", "ID", 0, "k")


def after(group: str, *, is_success: bool = True) -> SubAfter:
    return SubAfter("Q", "ID", 3, is_success, "k", 0, 1709288551200, group)


def traced(cluster: FakeCluster) -> None:
    broker = cluster.add_broker(RMQ_SYS_TRACE_TOPIC=1, own_traces=1)
    sends = (SENT.encode() + OTHER.encode()).encode()
    broker.store("RMQ_SYS_TRACE_TOPIC", 0, sends, b"KEYS\x01ID ANOTHER\x02UNIQ_KEY\x01T1")
    records = [BEFORE, after("g1"), after("g2", is_success=False), after("g1")]
    consumptions = "".join(record.encode() for record in records).encode()
    broker.store("RMQ_SYS_TRACE_TOPIC", 0, consumptions, b"KEYS\x01ID\x02UNIQ_KEY\x01T2")


def test_sends_and_consumptions_by_group(mqadmin: Mqadmin) -> None:
    lines = [line.split() for line in mqadmin("queryMsgTraceById", "-i", "ID", script=traced)]
    assert lines[0] == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert lines[1][:2] == ["Pub", "pg"] and lines[1][-2:] == ["12ms", "success"]
    assert lines[2] == [], "the send of the other message is not shown"
    assert lines[3] == ["#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"]
    assert [(line[1], line[-1]) for line in lines if line[:1] == ["Sub"]] == [
        ("g1", "success"),
        ("g1", "success"),
        ("g2", "failed"),
    ]
    rows = mqadmin("queryMsgTraceById", "-i", "ID", "--output", "json", script=traced)
    assert json.loads(rows[0])["producer_group"] == "pg" and len(rows) == 4


def test_no_trace_is_status_4(mqadmin: Mqadmin) -> None:
    mqadmin("queryMsgTraceById", "-i", "UNKNOWN", script=traced, status=4)
    mqadmin("queryMsgTraceById", "-i", "ID", "-t", "own_traces", script=traced, status=4)
    mqadmin("queryMsgTraceById", "-i", "ID", "-t", "no_such_topic", script=traced, status=4)


def test_a_flood_of_traces_is_cut(mqadmin: Mqadmin) -> None:
    """Fault: 64 traces of 3 KB, sent by anybody, inflated to a million rows: the console stood still for minutes."""
    record = after("g1").encode().encode()
    body = zlib.compress(record * (TRACE_BYTES_MAX // len(record)))

    def flooded(cluster: FakeCluster) -> None:
        traced(cluster)
        for number in range(64):
            properties = b"KEYS\x01ID\x02UNIQ_KEY\x01F%d" % number
            cluster.brokers["broker-a"].store("RMQ_SYS_TRACE_TOPIC", 0, body, properties, sys_flag=COMPRESSED)

    rows = mqadmin("queryMsgTraceById", "-i", "ID", "--output", "json", script=flooded)
    assert len(rows) == 1 + RECORDS_MAX and json.loads(rows[0])["producer_group"] == "pg"
    assert "the oldest are shown" in mqadmin.error


def test_long_traces_are_read_up_to_their_bound(mqadmin: Mqadmin) -> None:
    other = OTHER.encode().encode()
    body = zlib.compress(other * (TRACE_BYTES_MAX // len(other)))

    def flooded(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(RMQ_SYS_TRACE_TOPIC=1)
        for number in range(1 + TRACES_BYTES_MAX // TRACE_BYTES_MAX):
            properties = b"KEYS\x01ID\x02UNIQ_KEY\x01F%d" % number
            broker.store("RMQ_SYS_TRACE_TOPIC", 0, body, properties, sys_flag=COMPRESSED)
        broker.store("RMQ_SYS_TRACE_TOPIC", 0, SENT.encode().encode(), b"KEYS\x01ID\x02UNIQ_KEY\x01T1")

    mqadmin("queryMsgTraceById", "-i", "ID", script=flooded, status=4)
