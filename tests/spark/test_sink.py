"""The sink: rows to messages, what is refused, and what a real broker has stored in the end."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

import rocketpy.spark
from rocketpy.errors import ConfigError, MessageInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import encode_properties
from rocketpy.spark.columns import COLUMNS as READ_COLUMNS
from rocketpy.spark.columns import DIAGNOSTICS, ddl_of
from rocketpy.spark.options import parse_options
from rocketpy.spark.outgoing import (
    COLUMNS,
    PLAIN,
    Outgoing,
    PlainRow,
    RowReader,
    RowRefused,
    SinkOptions,
    check_schema,
)
from rocketpy.spark.table_options import schema_with
from tests.support.broker import RunningBroker
from tests.support.readers import wait_for_readers


def options(**given: str) -> SinkOptions:
    return parse_options(SinkOptions, {"nameServer": "n:1", **given})


def messages(rows: list[dict[str, Any]], **given: str) -> list[Any]:
    return list(RowReader(options(**given), "q:1:0").messages(pa.RecordBatch.from_pylist(rows)))


def test_a_namespace_is_before_the_topics_that_brokers_know(spark: Any, broker: RunningBroker) -> None:
    rows = spark.range(20).selectExpr("cast(id as string) as body")
    options = {"nameServer": broker.namesrv, "namespace": "NS", "topic": "Named"}
    rows.write.format("rocketmq").mode("append").options(**options).save()
    inside = rocketpy.spark.read(spark, **options)
    outside = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic="NS%Named")
    assert inside.count() == outside.count() == 20
    by_pattern = rocketpy.spark.read(spark, nameServer=broker.namesrv, namespace="NS", subscribePattern="Nam.*")
    assert {row.topic for row in by_pattern.select("topic").collect()} == {"NS%Named"}


def test_rows_become_messages() -> None:
    rows: list[dict[str, Any]] = [
        {"topic": "T", "body": b"x", "tags": "t", "keys": "a b", "flag": 3, "shardingKey": "s"},
        {"topic": "U", "body": b"y", "delayLevel": 2, "brokerName": "b", "queueId": 1},
    ]
    first, second = messages([{**dict.fromkeys(rows[0] | rows[1]), **row} for row in rows])
    assert (first.message.topic, first.message.body, first.message.tags) == ("T", b"x", "t")
    assert (first.message.keys, first.message.flag, first.sharding_key) == (("a", "b"), 3, "s")
    assert first.message.properties == {"SPARK_ID": "q:1:0:0"}
    assert (second.queue, second.message.delay_level) == (MessageQueue("U", "b", 1), 2)
    assert second.message.properties == {"SPARK_ID": "q:1:0:1"}
    (later,) = messages([{"topic": "T", "body": b"z", "deliverTimeMs": 1_900_000_000_000}])
    assert later.message.deliver_at_ms == 1_900_000_000_000 and later.message.is_delayed
    (text,) = messages([{"body": "größer", "keys": ["k1", "k2"]}], topic="T", idempotenceKey="false")
    assert (text.message.body, text.message.keys) == ("größer".encode(), ("k1", "k2"))
    assert text.message.properties == {}


def test_a_message_keeps_its_id_and_born_timestamp() -> None:
    born = datetime(2024, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC)
    first, second, third = messages(
        [
            {"body": b"x", "msgId": "0A0B", "bornTimestamp": born},
            {"body": b"y", "msgId": None, "bornTimestamp": datetime(1970, 1, 1, 0, 0, 0, 2_999, tzinfo=UTC)},
            {"body": b"z", "msgId": None, "bornTimestamp": None},
        ],
        topic="T",
    )
    assert (first.message.msg_id, second.message.msg_id) == ("0A0B", None)
    assert [one.message.born_at_ms for one in (first, second, third)] == [1_709_251_199_999, 2, 0]
    (number,) = messages([{"body": b"x", "bornTimestamp": 5}], topic="T")
    assert number.message.born_at_ms == 5
    with pytest.raises(RowRefused, match="born_at_ms cannot be negative"):
        messages([{"body": b"x", "bornTimestamp": -1}], topic="T")
    with pytest.raises(RowRefused, match="msg_id is blank"):
        messages([{"body": b"x", "msgId": " "}], topic="T")


PLAIN_ROWS: list[dict[str, Any]] = [
    {"body": b"x"},
    {"body": b"x", "tags": "t", "keys": "a b", "flag": -3, "msgId": "0A0B", "bornTimestamp": 5},
    {"body": b"x", "tags": "größer", "keys": "k"},
    {"body": b"x", "tags": "", "keys": ""},
]
OTHER_ROWS: list[dict[str, Any]] = [
    {"body": b"x" * 4096},
    {"body": b"x", "keys": " a  b "},
    {"body": b"x", "topic": "%RETRY%g"},
]


@pytest.mark.parametrize("identified", ["true", "false"])
def test_plain_rows_are_the_messages_that_each_row_makes(identified: str) -> None:
    rows = [{**dict.fromkeys(PLAIN), "topic": "T", **row} for row in PLAIN_ROWS + OTHER_ROWS]
    made = messages(rows, idempotenceKey=identified)
    assert [type(one) for one in made] == [PlainRow] * len(PLAIN_ROWS) + [Outgoing] * len(OTHER_ROWS)
    reader = RowReader(options(idempotenceKey=identified), "q:1:0")
    expected = [reader.message(row).message for row in rows]
    assert [one.message for one in made] == [attrs.evolve(one, tags=one.tags or None) for one in expected]
    assert [one.row for one in made] == list(range(len(rows)))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"tags": "a\x01b"}, "property 'TAGS' holds one of the separators"),
        ({"keys": "a\x02b"}, "property 'KEYS' holds one of the separators"),
        ({"msgId": "\x02"}, "property 'UNIQ_KEY' holds one of the separators"),
    ],
)
def test_rows_that_sending_refuses_are_no_members(row: dict[str, Any], fault: str) -> None:
    """Only sending finds these faults, in a message of its own."""
    (one,) = messages([{"body": b"x", **row}], topic="T")
    assert isinstance(one, Outgoing)
    with pytest.raises(MessageInvalid, match=fault):
        encode_properties(one.message.to_properties())


def test_what_was_read_can_be_written() -> None:
    properties = pa.array([[("TAGS", "t"), ("UNIQ_KEY", "X"), ("region", "eu")]], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), properties], names=["body", "properties"])
    (one,) = RowReader(options(topic="T"), "r").messages(batch)
    assert one.message.properties == {"region": "eu", "SPARK_ID": "r:0"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"body": None, "topic": "T"}, "row 1 of this task (topic T): column body is null"),
        ({"body": b"", "topic": "T"}, "row 1 of this task (topic T): the message body is empty"),
        ({"body": b"x", "topic": None}, "row 1 of this task (topic None): column topic is null or empty"),
        ({"body": b"x", "topic": "a b"}, "row 1 of this task (topic a b): The specified topic[a b] contains"),
        ({"body": b"x" * 101, "topic": "T"}, "row 1 of this task (topic T): the message body has 101 bytes"),
        (
            {"body": b"x", "topic": "T", "delayLevel": 1, "deliverTimeMs": 5},
            "row 1 of this task (topic T): a message has at most one of delay_level, delay_ms and deliver_at_ms",
        ),
        ({"body": b"x", "topic": "T", "tags": "a||b"}, "row 1 of this task (topic T): a message can have one tag"),
        (
            {"body": b"x", "topic": "T", "delayLevel": 99},
            "row 1 of this task (topic T): column delayLevel is 99, levels",
        ),
        (
            {"body": b"x", "topic": "T", "delayLevel": -1},
            "row 1 of this task (topic T): column delayLevel is -1, levels",
        ),
    ],
)
def test_a_refused_row_is_named(row: dict[str, Any], message: str) -> None:
    good = {"body": b"x", "topic": "T"}
    with pytest.raises(RowRefused, match=re.escape(message)):
        messages([{**dict.fromkeys(row), **good}, row], maxMessageSize="100", batchBytes="100")


def test_a_time_that_python_does_not_have_is_named() -> None:
    """Fault: A row whose bornTimestamp is after the year 9999 failed a query without being named."""
    times = pa.array([0, 1 << 60], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), times], names=["body", "bornTimestamp"])
    with pytest.raises(RowRefused, match=r"row 1 of this task \(topic T\): column bornTimestamp: "):
        list(RowReader(options(topic="T"), "r").messages(batch))


def test_columns_that_cannot_be_sent_are_left_out_on_request() -> None:
    """Fault: A topic could not be copied without choosing its columns."""
    names = [name for name in READ_COLUMNS if name not in DIAGNOSTICS]
    schema = schema_with({}, ddl_of(names))
    given = options(topic="T", ignoreUnknownColumns="true")
    check_schema(schema, given)
    with pytest.raises(ConfigError, match=r'the sink has no column "queueOffset".*ignoreUnknownColumns=true'):
        check_schema(schema, options(topic="T"))
    row = dict.fromkeys(names) | {
        "topic": "S",
        "body": b"x",
        "queueOffset": 7,
        "brokerName": "b",
        "queueId": 9,
    }
    (one,) = messages([row], topic="T", ignoreUnknownColumns="true")
    assert (one.message.topic, one.message.body, one.queue) == ("T", b"x", None), "not in the queue it was read from"
    chosen = {"body": b"x", "brokerName": "b", "queueId": 9, "other": 1}
    (one,) = messages([chosen], topic="T", ignoreUnknownColumns="true")
    assert one.queue == MessageQueue("T", "b", 9)


def test_a_body_that_is_too_large_can_go_to_the_dead_letters() -> None:
    """Fault: A dead letter went to the queue number chosen by its row."""
    given = {"maxMessageSize": "100", "batchBytes": "100", "onTooLarge": "deadLetter", "deadLetterTopic": "Dead"}
    big, small = messages([{"body": b"b" * 101}, {"body": b"s"}], topic="T", **given)
    assert (big.message.topic, big.message.body) == ("Dead", b"b" * 100)
    assert big.message.properties["ORIGIN_TOPIC"] == "T" and big.message.properties["ORIGIN_SIZE"] == "101"
    assert small.message.topic == "T"
    chosen = {"body": b"b" * 101, "brokerName": "b", "queueId": 7, "shardingKey": "k"}
    (big,) = messages([chosen], topic="T", **given)
    assert (big.queue, big.sharding_key) == (None, None), "the dead letter topic may have no queue 7"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"onTooLarge": "deadLetter"}, "deadLetterTopic: is needed for onTooLarge=deadLetter"),
        ({"batchBytes": "5m"}, "batchBytes: must not be above maxMessageSize"),
        ({"delivery": "exactlyOnce"}, 'delivery: "exactlyOnce" is none of atLeastOnce'),
        ({"topics": "T"}, 'did you mean "topic"?'),
    ],
)
def test_wrong_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        options(**given)


def load(spark: Any, broker: RunningBroker, topic: str, columns: str = "all") -> list[Any]:
    frame = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic=topic, columns=columns)
    return list(frame.collect())


def write(frame: Any, broker: RunningBroker, **given: Any) -> None:
    frame.write.format("rocketmq").mode("append").options(nameServer=broker.namesrv, **given).save()


def test_a_frame_becomes_a_topic(spark: Any, broker: RunningBroker) -> None:
    frame = spark.range(0, 2000, numPartitions=3).selectExpr(
        "cast(id as string) body",
        "'blue' tags",
        "array('a', concat('k', id)) keys",
        "map('n', cast(id as string)) properties",
    )
    write(frame, broker, topic="Frame", batchRecords=100)
    rows = load(spark, broker, "Frame")
    assert sorted(int(row.body) for row in rows) == list(range(2000))
    assert all(row.properties["n"] == row.body.decode() and row.keys == f"a k{row.body.decode()}" for row in rows)
    assert {row.tags for row in rows} == {"blue"}
    assert len({row.properties["SPARK_ID"] for row in rows}) == 2000
    assert len({row.queueId for row in rows}) == 4


def test_ids_and_born_timestamps_are_kept(spark: Any, broker: RunningBroker) -> None:
    """Also of messages that travel together: those with one born timestamp."""
    frame = spark.range(0, 300, numPartitions=2).selectExpr(
        "cast(id as string) body", "concat('ID', id) msgId", "timestamp_millis(1700000000000 + id div 50) bornTimestamp"
    )
    write(frame, broker, topic="Kept")
    rows = load(spark, broker, "Kept", "body, msgId, bornTimestamp")
    assert len(rows) == 300
    for row in rows:
        number = int(row.body)
        assert row.msgId == f"ID{number}"
        assert round(row.bornTimestamp.timestamp() * 1000) == 1_700_000_000_000 + number // 50


def test_a_sharding_key_keeps_its_order(spark: Any, broker: RunningBroker) -> None:
    frame = spark.range(0, 600, numPartitions=1).selectExpr(
        "cast(id as string) body", "concat('s', id % 7) shardingKey", "map('s', concat('s', id % 7)) properties"
    )
    write(frame, broker, topic="Sharded", batchRecords=10)
    seen: dict[str, list[tuple[int, int, int]]] = {}
    for row in load(spark, broker, "Sharded"):
        seen.setdefault(row.properties["s"], []).append((row.queueId, row.queueOffset, int(row.body)))
    assert len(seen) == 7
    for places in seen.values():
        assert len({queue for queue, _, _ in places}) == 1
        assert [number for _, _, number in sorted(places)] == sorted(number for _, _, number in places)


def test_queues_large_bodies_and_delays(spark: Any, broker: RunningBroker) -> None:
    frame = spark.range(0, 20, numPartitions=1)
    name = "broker-a"
    chosen = frame.selectExpr("cast(id as string) body", f"'{name}' brokerName", "cast(id % 2 as int) queueId")
    write(chosen, broker, topic="Queues")
    assert Counter(row.queueId for row in load(spark, broker, "Queues")) == {0: 10, 1: 10}
    large = frame.selectExpr("repeat(cast(id as string), 5000) body")
    write(large, broker, topic="Large")
    rows = load(spark, broker, "Large")
    assert {bytes(row.body) for row in rows} == {b"%d" % n * 5000 for n in range(20)}
    assert all(row.sysFlag & 1 for row in rows), "bodies of 4 KiB and more travel compressed"


def test_a_task_that_is_repeated_sends_again_with_the_same_id(spark: Any, broker: RunningBroker) -> None:
    from pyspark.sql.functions import udf

    def fail_once(number: int) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if number == 450 and context.attemptNumber() == 0:
            raise RuntimeError("this attempt ends here")
        return str(number)

    failing = udf(fail_once, "string", useArrow=False)
    frame = spark.range(0, 500, numPartitions=1).select(failing("id").alias("body"))
    write(frame, broker, topic="Twice", batchRecords=50)
    rows = load(spark, broker, "Twice")
    by_id: dict[str, set[bytes]] = {}
    for row in rows:
        by_id.setdefault(row.properties["SPARK_ID"], set()).add(bytes(row.body))
    assert {int(body) for bodies in by_id.values() for body in bodies} == set(range(500))
    assert all(len(bodies) == 1 for bodies in by_id.values()) and len(by_id) == 500


def test_a_stream_goes_from_topic_to_topic(spark: Any, broker: RunningBroker, tmp_path: Path) -> None:
    write(spark.range(0, 300).selectExpr("cast(id as string) body"), broker, topic="Source")
    for _ in range(2):
        reader = spark.readStream.format("rocketmq").option("nameServer", broker.namesrv).option("topic", "Source")
        source = reader.option("startingOffsets", "earliest").option("columns", "body,keys,properties").load()
        writer = source.writeStream.format("rocketmq").option("nameServer", broker.namesrv).option("topic", "Copy")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
    wait_for_readers(broker.port)
    rows = load(spark, broker, "Copy")
    assert sorted(int(row.body) for row in rows) == list(range(300))
    assert all(row.properties["SPARK_ID"].split(":")[0] == str(query.id) for row in rows)


@pytest.mark.parametrize(
    ("columns", "mode", "message"),
    [
        ("'x' boddy", "append", 'the sink has no column "boddy"; did you mean "body"?'),
        ("'x' colour", "append", 'the sink has no column "colour". It takes'),
        ("1 body", "append", "column body must be binary or string, it is int: cast it"),
        ("'x' tags", "append", "a column body (binary or string) is needed"),
        ("'x' body, 1 queueId", "append", "the columns brokerName and queueId choose a queue together"),
        ("'x' body", "overwrite", "topics can only be appended to"),
        ("cast(null as string) body", "append", "row 0 of this task (topic T): column body is null"),
    ],
)
def test_errors_say_what_to_do(spark: Any, broker: RunningBroker, columns: str, mode: str, message: str) -> None:
    """Fault: Errors about an unknown column or topic ran two sentences together."""
    from pyspark.errors import PySparkException

    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        frame.write.format("rocketmq").mode(mode).options(nameServer=broker.namesrv, topic="T").save()
    assert message in str(caught.value)
    assert set(COLUMNS) >= {"body"}


def test_a_query_that_follows_a_write_finds_all_its_rows(spark: Any, broker: RunningBroker) -> None:
    """Fault: A broker acknowledges messages before readers see them, and the next query read 0 of 300 rows."""
    where = {"nameServer": broker.namesrv, "topic": "AtOnce"}

    def write() -> None:
        rows = spark.range(40).selectExpr("cast(id as string) as body")
        rows.write.format("rocketmq").mode("append").options(**where).save()

    write()  # makes the topic
    store, resumed = broker.workers()["store"], threading.Event()

    def resume() -> None:
        resumed.set()
        os.kill(store, signal.SIGCONT)

    later = threading.Timer(3.0, resume)  # a write takes a tenth of it
    os.kill(store, signal.SIGSTOP)  # the process by which readers see what is stored
    try:
        later.start()
        write()
        assert resumed.is_set()
    finally:
        later.join()
    assert rocketpy.spark.read(spark, **where).count() == 80


def test_a_write_waits_for_no_delayed_messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker keeps them in queues of its schedule: the offsets that it returns are not of their topic."""
    from rocketpy.spark import sink
    from rocketpy.spark.sink import Receipt, TaskReceipt, TaskWriter, TopicWriter

    asked: list[dict[MessageQueue, int]] = []

    class Cluster:
        def wait_for(self, ends: dict[MessageQueue, int], wait_s: float) -> dict[MessageQueue, int]:
            asked.append(ends)
            return {queue: end - 1 for queue, end in ends.items()}

    monkeypatch.setattr(sink, "CLUSTERS", {options().client_options(): Cluster()})
    queue, other = MessageQueue("T", "a", 1), MessageQueue("T", "a", 2)
    writer = TopicWriter(TaskWriter(options(), "run"))
    with caplog.at_level("INFO", logger="rocketpy.spark.sink"):
        writer.commit([TaskReceipt({queue: Receipt(3, delayed=3)}), None])
        assert asked == []
        writer.commit(
            [
                TaskReceipt({queue: Receipt(3, delayed=3)}),
                TaskReceipt({queue: Receipt(2, 5, 6), other: Receipt(1, 0, 0)}),
            ]
        )
    assert asked == [{queue: 7, other: 1}]
    assert caplog.messages[:3] == [
        f"batch write: stored 3 messages in {queue}, 3 delayed",
        f"batch write: stored 5 messages in {queue}, offsets 5 to 6, 3 delayed",
        f"batch write: stored 1 messages in {other}, offsets 0 to 0",
    ]
    assert caplog.messages[3] == f"batch write: {queue} is stored up to 7, and readers see it up to 6"


def test_the_log_of_a_failed_query_says_what_stays(caplog: pytest.LogCaptureFixture) -> None:
    from rocketpy.spark.sink import Receipt, TaskReceipt, TopicStreamWriter, TopicWriter

    receipts: Any = [TaskReceipt({MessageQueue("T", "a", 1): Receipt(3, 5, 9)}), None]
    tasks: Any = None
    with caplog.at_level("INFO", logger="rocketpy"):
        TopicWriter(tasks).abort(receipts)
        TopicStreamWriter(tasks).abort(receipts, 7)
    batch, micro_batch = caplog.messages
    queue = MessageQueue("T", "a", 1)
    stored = f"3 messages were already stored in {queue}, offsets 5 to 9; they stay"
    assert batch == f"batch write failed; {stored}"
    assert micro_batch == f"micro-batch 7 failed; {stored}, and the next try stores them again"
