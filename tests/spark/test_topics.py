"""Topics of a real broker as tables and streams: what was sent is what is read, over restarts of both sides."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import rocketpy.spark
from rocketpy.admin.admin import Admin
from rocketpy.client import Message, ProducerOptions, SendResult
from rocketpy.client.cluster.brokers import Brokers
from rocketpy.client.sync import Producer
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.topic import TopicOffset
from rocketpy.remoting.command import RemotingCommand
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.options import parse_options
from rocketpy.spark.pulls import Pulls, Slice
from rocketpy.spark.slices import PullReader, read_slices
from rocketpy.spark.stored_queue import StoredQueue
from rocketpy.spark.topic_options import TopicOptions
from rocketpy.store.formats.unit import CQ_UNIT
from rocketpy.transport.blocking_connection import BlockingConnection
from tests.spark.test_advice import PUSHDOWN
from tests.spark.times import check_times
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import readable
from tests.support.waiting import wait_until

TIMEOUT_S = 300.0  # generous: the machine may be busy; nothing is measured here


@pytest.fixture(scope="module")
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as started:
        yield started


def send(producer: Producer, topic: str, first: int, count: int, **fields: Any) -> list[SendResult]:
    """Messages whose bodies are their numbers; the number is the key as well."""
    futures = [
        producer.send_soon(Message(topic, b"%d" % n, keys=(f"k{n}",), **fields)) for n in range(first, first + count)
    ]
    return readable([future.result() for future in futures])


def numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row.body)) for row in frame.select("body").collect())


def load(spark: Any, broker: RunningBroker, **options: Any) -> Any:
    return rocketpy.spark.read(spark, nameServer=broker.namesrv, **options)


def test_a_topic_is_a_table(spark: Any, broker: RunningBroker, producer: Producer) -> None:
    results = send(producer, "Batch", 0, 500, tags="blue", properties={"region": "eu"})
    rows = load(spark, broker, topic="Batch", columns="all", targetPartitionBytes=4096).collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(500))
    places = {(row.queueId, row.queueOffset): int(bytes(row.body)) for row in rows}
    assert places == {(result.queue.queue_id, result.queue_offset): n for n, result in enumerate(results)}
    by_number = {int(bytes(row.body)): row for row in rows}
    for n in (0, 250, 499):
        row, result = by_number[n], results[n]
        assert (row.topic, row.tags, row.keys, row.properties["region"]) == ("Batch", "blue", f"k{n}", "eu")
        assert (row.msgId, row.offsetMsgId) == (result.msg_id, result.offset_msg_id)
        assert row.brokerName == result.queue.broker_name


def test_tags_ranges_and_queues(spark: Any, broker: RunningBroker, producer: Producer) -> None:
    red = send(producer, "Chosen", 0, 40, tags="red")
    send(producer, "Chosen", 40, 40, tags="green")
    assert numbers(load(spark, broker, topic="Chosen", subExpression="green || x")) == list(range(40, 80))
    name = red[0].queue.broker_name
    half = json.dumps({"Chosen": {name: {"0": 5, "1": 10}}})
    assert load(spark, broker, topic="Chosen", startingOffsets=half, columns="min").count() == 80 - 15
    assert load(spark, broker, topic="Chosen", endingOffsets=half, columns="min").count() == 15 + 40
    assigned = json.dumps({"Chosen": {name: [3]}})
    rows = load(spark, broker, assign=assigned, columns="min").collect()
    assert {row.queueId for row in rows} == {3} and len(rows) == 20
    assert load(spark, broker, subscribePattern="Cho.*", columns="min").count() == 80
    later = int(time.time() * 1000) + 3_600_000
    assert load(spark, broker, topic="Chosen", endingTimestamp=later, columns="min").count() == 80
    young = load(spark, broker, topic="Chosen", startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert young.count() == 0
    assert load(spark, broker, topic="Chosen", startingTimestamp=1, columns="min").count() == 80


def test_times_are_exact_in_every_queue(spark: Any, broker: RunningBroker, producer: Producer) -> None:
    """The rows of each query are those that a scan of the whole store finds.
    Fault: startingTimestamp and endingTimestamp passed over messages that were stored in the same millisecond."""
    send(producer, "Bursts", 0, 4)
    queues = sorted(producer.queues("Bursts"))
    readable([producer.send_batch([Message("Bursts", b"1")] * 300, queue=queue) for _ in range(3) for queue in queues])
    check_times(spark, broker.namesrv, "Bursts", queues)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "Missing"}, "topic Missing does not exist (option waitForTopic waits for one)"),
        ({"topic": "Batch", "assign": "{}"}, "names no queue"),
        ({"topic": "Batch", "startingOffsets": '{"Batch": {"nowhere": {"0": 1}}}'}, "is not among those read"),
        ({"topic": "Batch", "startingTimestamp": "9999999999999"}, "has nothing stored at 9999999999999 or later"),
        ({"topic": "Batch", "maxPartition": "3"}, 'did you mean "maxPartitions"?'),
    ],
)
def test_errors_say_what_to_do(
    spark: Any, broker: RunningBroker, producer: Producer, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import PySparkException

    send(producer, "Batch", 1000, 1)
    with pytest.raises(PySparkException) as caught:
        load(spark, broker, **options).count()
    assert message in str(caught.value)


def test_a_query_that_starts_behind_the_end_of_a_queue_fails(
    spark: Any, broker: RunningBroker, producer: Producer
) -> None:
    """So does a group whose offsets are of a store that was replaced: no rows would be no answer.
    Fault: A batch query that starts behind the end of a queue gave no rows instead of an error."""
    from pyspark.errors import PySparkException

    name = send(producer, "Ahead", 0, 1)[0].queue.broker_name
    ahead = {"topic": "Ahead", "startingOffsets": json.dumps({"Ahead": {name: {"0": 1000}}})}
    with pytest.raises(PySparkException, match=f"queue 0 of topic Ahead on {name}: offset 1000 is wanted"):
        load(spark, broker, **ahead).count()
    assert load(spark, broker, failOnDataLoss=False, **ahead).count() <= 1


def stream(spark: Any, broker: RunningBroker, out: Path, **options: Any) -> Any:
    """A query that reads all that is there now into Parquet; it has ended when this returns."""
    query = start(spark, broker, out, {"availableNow": True}, **options)
    assert query.awaitTermination(TIMEOUT_S), "the query does not end"
    return query


def start(spark: Any, broker: RunningBroker, out: Path, trigger: dict[str, Any], **options: Any) -> Any:
    texts = {"nameServer": broker.namesrv, "startingOffsets": "earliest", **options}
    reader = spark.readStream.format("rocketmq").options(**{key: str(value) for key, value in texts.items()})
    writer = reader.load().writeStream.format("parquet").option("path", str(out / "data"))
    return writer.option("checkpointLocation", str(out / "checkpoint")).trigger(**trigger).start()


def written(spark: Any, out: Path) -> list[int]:
    return numbers(spark.read.parquet(str(out / "data")))


def test_a_stream_goes_on_where_it_stopped(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    send(producer, "Stream", 0, 300)
    first = stream(spark, broker, tmp_path, topic="Stream", maxOffsetsPerTrigger=120)
    assert len([entry for entry in first.recentProgress if entry.numInputRows]) == 3
    send(producer, "Stream", 300, 50)
    stream(spark, broker, tmp_path, topic="Stream")
    stream(spark, broker, tmp_path, topic="Stream")
    assert written(spark, tmp_path) == list(range(350))


def test_a_stream_goes_on_through_the_death_of_the_broker(spark: Any, tmp_path: Path) -> None:
    with running_broker() as broker:
        with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
            send(producer, "Killed", 0, 100)
        stream(spark, broker, tmp_path, topic="Killed")
        broker.kill_all()
        broker.start()
        with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
            send(producer, "Killed", 100, 100)
        stream(spark, broker, tmp_path, topic="Killed")
    assert written(spark, tmp_path) == list(range(200))


def test_a_batch_that_failed_is_read_again_exactly(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    """The query dies after its batch is planned and before it is done; more arrives; the batch stays what it was."""
    send(producer, "Again", 0, 100)
    stream(spark, broker, tmp_path, topic="Again")
    (tmp_path / "checkpoint/commits/0").unlink()
    (tmp_path / "checkpoint/commits/.0.crc").unlink(missing_ok=True)
    send(producer, "Again", 100, 100)
    stream(spark, broker, tmp_path, topic="Again")
    assert written(spark, tmp_path) == list(range(200))


def decoded(options: TopicOptions, wanted: Slice) -> list[tuple[int, bytes]]:
    """(offset, body) of what a task reads of a slice."""
    batches = read_slices(options, ("queueOffset", "body"), [wanted])
    return [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def queue_of(results: list[SendResult], queue_id: int) -> tuple[MessageQueue, list[tuple[int, bytes]]]:
    """A queue, and (offset, body) of what was sent to it."""
    sent = [(result.queue_offset, b"%d" % n) for n, result in enumerate(results) if result.queue.queue_id == queue_id]
    return next(result.queue for result in results if result.queue.queue_id == queue_id), sorted(sent)


def test_offsets_of_many_queues_come_in_one_answer(
    broker: RunningBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = send(producer, "Ends", 0, 50)[0].queue.broker_name
    cluster = CLUSTERS.get(
        parse_options(TopicOptions, {"nameServer": broker.namesrv, "topic": "Ends"}).client_options()
    )
    queues = cluster.queues(["Ends"])
    wait_until(lambda: sum(cluster.max_offsets(queues).values()) == 50)
    one_by_one, missing = cluster.bounds(queues), MessageQueue("Ends", name, 99)
    asked: list[MessageQueue] = []
    ask = Brokers.max_offset

    async def noted(self: Brokers, queue: MessageQueue) -> int:
        asked.append(queue)
        return await ask(self, queue)

    monkeypatch.setattr(Brokers, "max_offset", noted)
    monkeypatch.setattr("rocketpy.spark.cluster.TOGETHER_MIN", 1)
    assert cluster.bounds(queues) == one_by_one and cluster.max_offsets({*queues, missing}) == {
        missing: 0,
        **{queue: bound.max_offset for queue, bound in one_by_one.items()},
    }
    assert asked == [missing]

    async def refuse(self: Brokers, topic: str, broker_name: str) -> dict[MessageQueue, TopicOffset]:
        raise BrokerError(ResponseCode.NO_PERMISSION, "no")

    monkeypatch.setattr(Brokers, "topic_offsets", refuse)
    assert cluster.bounds(queues) == one_by_one and len(asked) == 1 + len(queues)


def delete(broker: RunningBroker, topic: str) -> None:
    async def main() -> None:
        async with Admin(options=ProducerOptions(name_servers=broker.namesrv)) as admin:
            await admin.delete_topic(topic, "DefaultCluster")

    trio.run(main)


def test_a_stream_outlives_one_of_its_topics(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    """Offsets of rocketpy's brokers continue in a topic that is made again: nothing of it is passed over.
    Fault: A stream ended when one of its topics was deleted, also with failOnDataLoss=false."""
    from pyspark.errors import StreamingQueryException

    send(producer, "Stays", 0, 40)
    send(producer, "Goes", 1000, 40)
    stream(spark, broker, tmp_path, subscribe="Stays,Goes")
    delete(broker, "Goes")
    send(producer, "Stays", 40, 40)
    with pytest.raises(StreamingQueryException, match=r"topic Goes on [^:]*: .*name a new checkpointLocation"):
        stream(spark, broker, tmp_path, subscribe="Stays,Goes")
    stream(spark, broker, tmp_path, subscribe="Stays,Goes", failOnDataLoss="false")
    assert written(spark, tmp_path) == [*range(80), *range(1000, 1040)]
    send(producer, "Goes", 2000, 80)
    stream(spark, broker, tmp_path, subscribe="Stays,Goes")
    assert written(spark, tmp_path) == [*range(80), *range(1000, 1040), *range(2000, 2080)]


def test_matches_behind_a_run_come_once(broker: RunningBroker, producer: Producer) -> None:
    """A broker that filters looks for as many matches as are asked for: beyond the run, where the next run begins.
    Fault: A filtered Spark query delivered messages twice where a broker had matched beyond a run."""
    pairs = [(send(producer, "Sparse", n, 1, tags="few" if n % 40 < 4 else "many")[0], n) for n in range(400)]
    options = parse_options(
        TopicOptions, {"nameServer": broker.namesrv, "topic": "Sparse", "subExpression": "few", "pullBatchSize": "8"}
    )
    queues = sorted({result.queue for result, _ in pairs})
    ends = {queue: sum(result.queue == queue for result, _ in pairs) for queue in queues}
    wanted = sorted((result.queue, result.queue_offset, b"%d" % n) for result, n in pairs if n % 40 < 4)
    for queue in queues:
        wait_until(lambda queue=queue: decoded(options, Slice(queue, 0, ends[queue])))  # type: ignore[misc]
        sent = [(offset, body) for other, offset, body in wanted if other == queue]
        assert decoded(options, Slice(queue, 0, ends[queue])) == sent
    batches = read_slices(options, ("body",), [Slice(queue, 0, ends[queue]) for queue in queues])
    assert [body for batch in batches for body in batch.column(0).to_pylist()] == [body for _, _, body in wanted]


def test_a_lost_connection_leaves_the_rest_to_the_slow_path(
    broker: RunningBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nothing happens direct pulls alone read; each message comes once in either case."""
    queue, sent = queue_of(send(producer, "Paths", 0, 800), 0)
    given = {"nameServer": broker.namesrv, "topic": "Paths", "pullBatchSize": "16", "maxBytesPerBatch": "1"}
    options, wanted = parse_options(TopicOptions, given), Slice(queue, 0, len(sent))
    wait_until(lambda: decoded(options, wanted) == sent)
    slow: list[Pulls] = []
    run = Pulls.run

    async def noted(pulls: Pulls) -> None:
        slow.append(pulls)
        await run(pulls)

    monkeypatch.setattr(Pulls, "run", noted)
    assert decoded(options, wanted) == sent and not slow
    receive, received = BlockingConnection.response, []

    def lose(connection: BlockingConnection, opaque: int) -> RemotingCommand:
        received.append(opaque)
        if len(received) == 4:
            connection._socket.shutdown(socket.SHUT_RDWR)
        return receive(connection, opaque)

    monkeypatch.setattr(BlockingConnection, "response", lose)
    assert decoded(options, wanted) == sent
    assert len(slow) == 1 and slow[0].slices[0].begin >= 3 * 16, "what had come is not read again"


def test_history_comes_from_files_and_the_rest_from_the_broker(
    broker: RunningBroker, producer: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, sent = queue_of(send(producer, "Filed", 0, 400, tags="blue"), 1)
    pulled: list[Slice] = []
    pull = PullReader.batches

    def noted(self: PullReader, slices: list[Slice]) -> Iterator[Any]:
        pulled.extend(slices)
        return pull(self, slices)

    monkeypatch.setattr(PullReader, "batches", noted)
    given = {"nameserver": broker.namesrv, "topic": "Filed"}
    with_path = parse_options(TopicOptions, {**given, "storePath": str(broker.store)})
    end = len(sent)
    units = broker.store / "consumequeue/Filed/1"

    def is_filed() -> bool:
        pulled.clear()
        return bool(units.is_dir() and decoded(with_path, Slice(queue, end - 1, end)) and not pulled)

    wait_until(is_filed)
    assert decoded(with_path, Slice(queue, 3, end)) == sent[3:]
    assert pulled == [], "all of it is in the files"
    for tag, count in (("blue", end), ("red", 0)):
        assert len(decoded(attrs.evolve(with_path, sub_expression=tag), Slice(queue, 0, end))) == count
    assert pulled == []

    copy = tmp_path / "copy"
    shutil.copytree(broker.store / "consumequeue", copy / "consumequeue")
    (copy / "commitlog").mkdir()
    log = min((broker.store / "commitlog").glob("0*"))
    subprocess.run(["cp", "--sparse=always", str(log), str(copy / "commitlog")], check=True)
    with (copy / "commitlog" / log.name).open("r+b") as file:  # the body of one message is not as it was
        place, size, _ = CQ_UNIT.unpack(next(units.iterdir()).read_bytes()[50 * 20 : 51 * 20])
        file.seek(place)
        at = place + file.read(size).index(sent[50][1], 84)
        file.seek(at)
        file.write(b"#")
    damaged = parse_options(TopicOptions, {**given, "storePath": json.dumps({queue.broker_name: str(copy)})})
    assert decoded(damaged, Slice(queue, 0, end)) == sent
    assert pulled == [Slice(queue, 50, end)]


def test_the_files_of_another_store_are_refused(broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    queue, sent = queue_of(send(producer, "Mixed", 0, 40), 0)
    with running_broker({"defaultTopicQueueNums": "4"}) as other:
        with Producer("tests", ProducerOptions(name_servers=other.namesrv, send_timeout=10)) as stranger:
            send(stranger, "Mixed", 100, 40)
        given = {"nameserver": broker.namesrv, "topic": "Mixed", "storePath": str(other.store)}
        options = parse_options(TopicOptions, given)
        unit = other.store / "consumequeue/Mixed/0"
        wait_until(lambda: list(StoredQueue(other.store, queue).images(0, 1, 1)) != [])
        assert unit.is_dir()
        with pytest.raises(ConfigError, match=f"storePath: .* is not the store of {queue.broker_name}: message 0"):
            decoded(options, Slice(queue, 0, len(sent)))


def test_a_table_and_a_stream_with_a_store_path(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    send(producer, "Shared", 0, 300)
    path = str(broker.store)
    assert numbers(load(spark, broker, topic="Shared", storePath=path)) == list(range(300))
    stream(spark, broker, tmp_path, topic="Shared", storePath=path, maxOffsetsPerTrigger=120)
    send(producer, "Shared", 300, 50)
    stream(spark, broker, tmp_path, topic="Shared", storePath=path)
    assert written(spark, tmp_path) == list(range(350))


@pytest.mark.parametrize(("is_pushed", "counts"), [("false", [40, 40, 40]), ("true", [40, 80, 80])])
def test_actions_of_a_frame_read_the_same_offsets(
    spark: Any, broker: RunningBroker, producer: Producer, is_pushed: str, counts: list[int]
) -> None:
    """Unless Spark may push filters: then it plans each query with a condition anew, and keeps that plan."""
    topic = f"Snapshot-{is_pushed}"
    send(producer, topic, 0, 40)
    frame = load(spark, broker, topic=topic, columns="min")
    assert frame.count() == 40
    send(producer, topic, 40, 40)
    spark.conf.set(PUSHDOWN, is_pushed)
    try:
        assert [frame.count(), frame.where("queueId >= 0").count(), frame.count()] == counts
    finally:
        spark.conf.unset(PUSHDOWN)


def test_a_failed_task_is_tried_again(spark: Any, broker: RunningBroker, producer: Producer) -> None:
    send(producer, "Tasks", 0, 200)
    frame = load(spark, broker, topic="Tasks", columns="min")

    def fail_once(rows: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for count, row in enumerate(rows):
            if count == 10 and context.attemptNumber() == 0:
                raise RuntimeError("this attempt ends here")
            yield int(bytes(row.body))

    found = frame.rdd.mapPartitions(fail_once).collect()
    assert sorted(found) == list(range(200))


def test_progress_is_reported_to_a_group(spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path) -> None:
    results = send(producer, "Reported", 0, 80)
    options = {"topic": "Reported", "consumerGroup": "lag", "commitToGroup": "true", "maxOffsetsPerTrigger": 40}
    stream(spark, broker, tmp_path, **options)
    from rocketpy.client.options import ClientOptions
    from rocketpy.spark.cluster import CLUSTERS

    queues = {result.queue for result in results}
    committed = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv)).committed("lag", queues)
    assert sum(offset or 0 for offset in committed.values()) == 40, "Spark does not tell of the last batch"
    rest = load(spark, broker, topic="Reported", startingOffsets="group", consumerGroup="lag")
    assert rest.count() == 40


def test_a_listener_reports_every_batch_to_a_group(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    from rocketpy.client.options import ClientOptions
    from rocketpy.spark.cluster import CLUSTERS
    from rocketpy.spark.group_progress import GroupProgress

    queues = {result.queue for result in send(producer, "Listened", 0, 80)}
    listener = GroupProgress(spark, "listener", nameServer=broker.namesrv)
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
    cluster.queues({"Listened"})

    def reported() -> bool:
        return sum(offset or 0 for offset in cluster.committed("listener", queues).values()) == 80

    try:
        stream(spark, broker, tmp_path, topic="Listened", maxOffsetsPerTrigger=40)
        wait_until(reported, "the report of the last batch")  # listeners are called after the query has gone on
    finally:
        spark.streams.removeListener(listener)


def test_offsets_of_other_sources_are_left_alone() -> None:
    from rocketpy.spark.group_progress import read_document

    assert read_document('{"q": {"T": {"b": {"0": 3}}}, "v": 1}') is not None
    assert [read_document(text) for text in (None, "", "3", "[]", '{"q": 1}', '{"T": {"0": 1}}', "no")] == [None] * 7
