"""An official broker 4.9.7 is sink and source: rows, times, streams with kills, topics made again, retention."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener

import rocketpy.spark
from rocketpy.admin.cli import main as mqadmin
from rocketpy.cli.command_line import cli
from rocketpy.client import Message, ProducerOptions, PullOptions, StartFrom
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer, PullConsumer
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.data_lost import MessagesMissing, TopicRemade
from rocketpy.spark.group_progress import read_document
from rocketpy.spark.options import parse_options
from rocketpy.spark.slices import read_slices
from rocketpy.spark.stream import TopicStreamReader
from rocketpy.spark.topic_options import TopicOptions
from tests.interop import toolchain
from tests.interop.brokers import wait_until
from tests.interop.java_broker import JavaBroker, running_java_broker
from tests.spark.conftest import MUST_RUN
from tests.spark.test_exactness import last_batch, until
from tests.spark.times import check_times
from tests.support.readers import DEADLINE_S

EARLIEST = {"startingOffsets": "earliest"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCHES, IN_BATCH = 3, 300  # of each queue
Document = dict[str, Any]
"""The offsets in a checkpoint."""


@pytest.fixture(scope="module")
def broker() -> Iterator[JavaBroker]:
    """The official broker. Its log files are small, and retention deletes all but the last one when it is told to."""
    settings = {"mappedFileSizeCommitLog": str(256 << 10), "maxMessageSize": str(64 << 10)}
    settings |= {"fileReservedTime": "0", "defaultTopicQueueNums": "2", "deleteCommitLogFilesInterval": "1"}
    try:
        with running_java_broker(settings) as started:
            yield started
    except toolchain.Missing as missing:
        if MUST_RUN:
            raise
        pytest.skip(f"{missing}: the official broker needs a JDK and Maven")


class Lags(StreamingQueryListener):
    """The messages by which Spark's own progress shows a query behind, one number for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        (source,) = event.progress.sources
        latest, end = read_document(source.latestOffset), read_document(source.endOffset)
        assert latest is not None and end is not None
        self.seen.append(sum(at - end.ends.get(queue, 0) for queue, at in latest.ends.items()))

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def send(broker: JavaBroker, topic: str, numbers: range, size: int = 10) -> None:
    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        sent = [producer.send(Message(topic, (b"%d " % number).ljust(size, b"."))) for number in numbers]
    ends: dict[MessageQueue, int] = {}
    for result in sent:
        ends[result.queue] = max(ends.get(result.queue, 0), result.queue_offset + 1)
    wait_for_ends(broker, ends)


def wait_for_ends(broker: JavaBroker, ends: dict[MessageQueue, int]) -> None:
    """Wait until readers see messages up to these offsets: the official broker, too, acknowledges them before."""
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
    assert cluster.wait_for(ends, DEADLINE_S) == {}


def admin(broker: JavaBroker, command: str, *words: str) -> None:
    assert mqadmin([command, "-n", broker.namesrv, *words]) in (None, 0)


def test_rows_come_back_as_they_were_written(spark: Any, broker: JavaBroker) -> None:
    values = "cast(id AS string)"
    rows = spark.range(300).selectExpr(
        f"{values} AS body", f"array('k', {values}) AS keys", "'t' AS tags", f"map('n', {values}) AS properties"
    )
    where = {"nameServer": broker.namesrv, "topic": "JavaRows"}
    rows.write.format("rocketmq").mode("append").options(**where, batchRecords=20).save()
    frame = rocketpy.spark.read(spark, columns="all", **where)
    chosen = ("cast(body AS string) b", "keys", "tags", "properties['n'] n", "msgId", "queueId")
    found = frame.selectExpr(*chosen).collect()
    assert sorted(int(row.b) for row in found) == list(range(300)) and len({row.msgId for row in found}) == 300
    assert all((row.keys, row.tags, row.n) == (f"k {row.b}", "t", row.b) for row in found)
    assert len({row.queueId for row in found}) > 1
    tagged = rocketpy.spark.read(spark, columns="body", subExpression="t || u", **where)
    assert tagged.count() == 300 and rocketpy.spark.read(spark, columns="body", subExpression="u", **where).count() == 0


def make_topic(broker: JavaBroker, topic: str, count: int) -> list[MessageQueue]:
    admin(broker, "updateTopic", "-b", broker.address, "-t", topic, "-r", str(count), "-w", str(count))
    queues = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv)).queues({topic}, DEADLINE_S)
    assert len(queues) == count
    return sorted(queues)


def send_bursts(broker: JavaBroker, topic: str) -> list[MessageQueue]:
    """Send batches to three queues. The broker stores a batch in one millisecond, and by time it finds any of them."""
    queues = make_topic(broker, topic, 3)
    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        for _ in range(BATCHES):
            for queue in queues:
                producer.send_batch([Message(topic, b"1")] * IN_BATCH, queue=queue)
    wait_for_ends(broker, dict.fromkeys(queues, BATCHES * IN_BATCH))
    return queues


def test_times_are_exact_in_every_queue(spark: Any, broker: JavaBroker) -> None:
    stored = check_times(spark, broker.namesrv, "JavaBursts", send_bursts(broker, "JavaBursts"))
    assert min(Counter(stored).values()) >= IN_BATCH


def test_the_client_and_mqadmin_find_the_first_of_a_millisecond(broker: JavaBroker) -> None:
    """mqadmin writes the offsets of a group without members itself; it finds the group by its retry topic."""
    make_topic(broker, "%RETRY%java-reset", 1)
    queues, stored = send_bursts(broker, "JavaTimes"), dict[tuple[MessageQueue, int], int]()
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
    options = PullOptions(name_servers=broker.namesrv, start=StartFrom("CONSUME_FROM_FIRST_OFFSET"))
    with PullConsumer("java-times", options) as consumer:
        consumer.subscribe("JavaTimes")

        def all_came() -> bool:
            found = consumer.poll(max_messages=1000, timeout=1.0)
            stored.update({(one.queue, one.queue_offset): one.store_timestamp_ms for one in found})
            return len(stored) == len(queues) * BATCHES * IN_BATCH

        wait_until(all_came, "all messages")
        times = set(stored.values())
        for time_ms in sorted(times | {max(times) + 1, min(times) - 1}):
            before = {queue: sum(of == queue and at < time_ms for (of, _), at in stored.items()) for queue in queues}
            when = EPOCH + timedelta(milliseconds=time_ms)
            assert {queue: consumer.offset_for_time(queue, when) for queue in queues} == before
            cluster.commit("java-reset", dict.fromkeys(queues, 0))
            admin(broker, "resetOffsetByTime", "-g", "java-reset", "-t", "JavaTimes", "-s", str(time_ms))
            assert cluster.committed("java-reset", queues) == before


def test_a_stream_from_topic_to_topic_outlives_a_kill_of_the_broker(
    spark: Any, broker: JavaBroker, tmp_path: Path
) -> None:
    """Each message is in the target, those of a repeated batch twice; Spark's listener sees the lag fall to zero."""
    send(broker, "JavaFrom", range(200))
    options = {"nameServer": broker.namesrv, "columns": "body", "startingOffsets": "earliest", "topic": "JavaFrom"}
    frame = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger=40).load()
    sink = frame.writeStream.format("rocketmq").options(nameServer=broker.namesrv, topic="JavaTo")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds")
    lags, query = Lags(), sink.start()
    spark.streams.addListener(lags)

    def is_reached(batch: int) -> bool:
        nonlocal query
        query = query if query.isActive else sink.start()  # as a supervisor does
        return last_batch(tmp_path, "commits") >= batch

    try:
        until(lambda: is_reached(1), "the second batch")
        broker.kill_all()
        broker.start()
        send(broker, "JavaFrom", range(200, 300))
        until(lambda: is_reached(7) and lags.seen[-1:] == [0], "the last batch")
    finally:
        query.stop()
        spark.streams.removeListener(lags)
    assert max(lags.seen) > 0

    def copied() -> set[int]:
        rows = rocketpy.spark.read(spark, nameServer=broker.namesrv, topic="JavaTo", columns="body").collect()
        return {int(bytes(row.body).split()[0]) for row in rows}

    until(lambda: copied() >= set(range(300)), "all messages in the target")  # readers see them a moment later
    assert copied() == set(range(300))


def read_on(
    broker: JavaBroker, topic: str, at: dict[str, Any] | None, **given: str
) -> tuple[dict[str, Any], list[int]]:
    """Read what is there after a checkpoint, as a stream does in driver and executors. Returns the next checkpoint."""
    options = parse_options(TopicOptions, {"nameServer": broker.namesrv, "topic": topic, **EARLIEST, **given})
    reader = TopicStreamReader(options, ("body",))
    start = at or reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = [] if end == start else reader.partitions(start, end)
    batches = [batch for task in tasks for batch in read_slices(options, ("body",), task.value)]
    return end, [int(body.split()[0]) for batch in batches for body in batch.column(0).to_pylist()]


def test_a_topic_that_is_deleted_and_made_again(broker: JavaBroker) -> None:
    """The official broker counts its offsets from 0 again, so the old positions are within the new topic."""
    send(broker, "JavaAgain", range(50))
    at, found = read_on(broker, "JavaAgain", None)
    assert sorted(found) == list(range(50))
    admin(broker, "deleteTopic", "-c", "DefaultCluster", "-t", "JavaAgain")
    send(broker, "JavaAgain", range(50, 130))
    with pytest.raises(TopicRemade, match="but the topic was deleted and made again since"):
        read_on(broker, "JavaAgain", at)
    at, found = read_on(broker, "JavaAgain", at, failOnDataLoss="false")
    assert sorted(found) == list(range(50, 130))
    assert read_on(broker, "JavaAgain", at) == (at, [])


@pytest.mark.parametrize("name", ["parquet", "delta", "iceberg"])
def test_an_archive_of_a_topic_that_is_deleted_and_made_again(broker: JavaBroker, tmp_path: Path, name: str) -> None:
    """Fault: An archive left out messages of a topic that was made again and has grown beyond the archived offsets."""
    topic, commands = f"JavaArchived-{name}", ["pipeline", "archive", "--inline", "--format", name]

    def archive(target: str, *words: str) -> Result:
        where = ["-n", broker.namesrv, "-t", topic, *words, str(tmp_path / target)]
        return CliRunner().invoke(cli, [*commands, *where])

    send(broker, topic, range(50))
    assert json.loads(archive("a").stdout)["rows"] == 50
    send(broker, topic, range(50, 60))
    assert json.loads(archive("a").stdout)["rows"] == 10
    admin(broker, "deleteTopic", "-c", "DefaultCluster", "-t", topic)
    send(broker, topic, range(60, 200))
    for words in ([], ["--allow-gap"]):
        done = archive("a", *words)
        assert done.exit_code == 2 and f"were deleted and made again since, or its store was replaced: {topic}" in (
            done.stderr
        )
    assert json.loads(archive("other").stdout)["rows"] == 140


def test_retention_and_a_new_queue(broker: JavaBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Messages of the queue were deleted before a stream has seen it."""
    send(broker, "JavaOld", range(20), 3000)
    at, found = read_on(broker, "JavaOld", None)
    assert sorted(found) == list(range(20))
    admin(broker, "updateTopic", "-b", broker.address, "-t", "JavaOld", "-r", "3", "-w", "3")
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
    wait_until(lambda: len(cluster.queues({"JavaOld"})) == 3, "the new queue")
    send(broker, "JavaOld", range(20, 400), 3000)

    def has_deleted() -> bool:  # from each queue: the broker looks every ten seconds
        admin(broker, "deleteExpiredCommitLog", "-b", broker.address)
        return all(one.min_offset > 20 for one in cluster.bounds(cluster.queues({"JavaOld"})).values())

    wait_until(has_deleted, "retention")
    with pytest.raises(MessagesMissing, match="of topic JavaOld on broker-a: "):
        read_on(broker, "JavaOld", at)
    _, found = read_on(broker, "JavaOld", at, failOnDataLoss="false")
    assert sorted(found) == list(range(min(found), 400)) and min(found) > 80
    lost = re.findall(r"queue (\d) of topic JavaOld on broker-a: \d+ of the offsets (\d+) to \d+", caplog.text)
    assert {int(queue) for queue, _ in lost} == {0, 1, 2} and ("2", "0") in lost
