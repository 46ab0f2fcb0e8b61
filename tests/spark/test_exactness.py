"""A stream into a table that replaces repeated batches has every message once, whatever dies or changes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketpy.admin.cli import main as mqadmin
from rocketpy.client import Message, ProducerOptions
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.spark.cluster import CLUSTERS
from tests.spark.query_process import QueryProcess, start_query
from tests.support.broker import RunningBroker, running_broker
from tests.support.readers import readable
from tests.support.waiting import wait_until

DEADLINE_S = 300.0  # generous: the machine may be busy; nothing is measured here
until = partial(wait_until, within_s=DEADLINE_S, pause_s=0.01)
KILLS = 3
TRIES_MAX = 10
BODY_BYTES = 3000


@contextmanager
def producing(broker: RunningBroker) -> Iterator[Producer]:
    CLUSTERS.get(ClientOptions(name_servers=broker.namesrv)).queues({"TBW102"}, DEADLINE_S)  # it is registered
    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as producer:
        yield producer


def send(producer: Producer, topic: str, first: int, count: int) -> None:
    """Messages that begin with their numbers."""
    bodies = (b"%d " % number + b"." * BODY_BYTES for number in range(first, first + count))
    sent = [producer.send_soon(Message(topic, body)) for body in bodies]
    readable([one.result() for one in sent])


def written(spark: Any, out: Path) -> list[int]:
    return sorted(int(bytes(row.body).split()[0]) for row in spark.read.parquet(str(out / "data")).collect())


def finish(spark: Any, broker: RunningBroker, topic: str, out: Path, **options: str) -> None:
    """Read the rest in the session of the tests."""
    query = start_query(spark, broker.namesrv, topic, out, once=True, **options)
    assert query.awaitTermination(DEADLINE_S), "the query does not end"


def last_batch(out: Path, kind: str) -> int:
    """The newest batch that is planned (`offsets`) or done (`commits`); -1 before the first."""
    names = (path.name for path in (out / "checkpoint" / kind).glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def has_come_to(query: QueryProcess, out: Path, kind: str, batch: int) -> bool:
    """Whether the query is there; also when it has failed by itself, as a busy machine makes it."""
    return last_batch(out, kind) >= batch or query.process.poll() is not None


def test_kills_of_the_query_leave_no_gap_and_no_duplicate(spark: Any, tmp_path: Path, chance: random.Random) -> None:
    """kill -9 in the middle of a batch or right behind one, while more messages arrive."""
    out, count, kills = tmp_path / "out", 0, 0
    with running_broker({"defaultTopicQueueNums": "3"}) as broker, producing(broker) as producer:
        while kills < KILLS:
            send(producer, "Killed", count, 200)
            count += 200
            kind, more = chance.choice(("offsets", "commits")), chance.randint(1, 3)
            wanted = last_batch(out, kind) + more
            query = QueryProcess("local[2]", broker.namesrv, "Killed", out, "maxOffsetsPerTrigger=30")
            try:
                until(partial(has_come_to, query, out, kind, wanted), f"batch {wanted}")
                kills += query.process.poll() is None
            finally:
                query.kill()
            assert count < 200 * TRIES_MAX, query.text()
        finish(spark, broker, "Killed", out)
    assert written(spark, out) == list(range(count))


def test_a_kill_of_the_broker_during_a_stream(spark: Any, tmp_path: Path) -> None:
    """The query may fail while the broker is away; it is started again, as an operator would."""
    out = tmp_path / "out"
    with running_broker({"flushDiskType": "SYNC_FLUSH"}) as broker:
        with producing(broker) as producer:
            send(producer, "Restarted", 0, 100)
        query = start_query(spark, broker.namesrv, "Restarted", out, maxOffsetsPerTrigger="25")
        try:
            until(lambda: last_batch(out, "commits") >= 0 or not query.isActive, "the first batch")
            broker.kill_all()
            broker.start()
            with producing(broker) as producer:
                send(producer, "Restarted", 100, 100)
            until(lambda: last_batch(out, "commits") >= 7 or not query.isActive, "the last batch")
        finally:
            query.stop()
        finish(spark, broker, "Restarted", out)
    assert written(spark, out) == list(range(200))


def test_queues_that_are_added_during_a_stream(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with running_broker({"defaultTopicQueueNums": "2"}) as broker:
        with producing(broker) as producer:
            send(producer, "Grown", 0, 50)
        query = start_query(spark, broker.namesrv, "Grown", out, discoveryInterval="0s")
        try:
            until(lambda: last_batch(out, "commits") >= 0, "the first batch")
            more = ["-b", broker.address, "-t", "Grown", "-r", "6", "-w", "6"]
            assert mqadmin(["updateTopic", "-n", broker.namesrv, *more]) in (None, 0)
            cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
            until(lambda: len(cluster.queues({"Grown"})) == 6, "the route with six queues")
            with producing(broker) as producer:
                send(producer, "Grown", 50, 60)
            query.processAllAvailable()
        finally:
            query.stop()
        assert written(spark, out) == list(range(110))
        rows = spark.read.parquet(str(out / "data")).select("queueId").distinct().collect()
        assert {row.queueId for row in rows} == set(range(6))


@pytest.mark.parametrize("fails", [True, False])
def test_retention_overtakes_the_reader(spark: Any, tmp_path: Path, fails: bool) -> None:
    settings = {"mappedFileSizeCommitLog": str(256 << 10), "maxMessageSize": str(64 << 10)}  # many small files
    settings |= {"fileReservedTime": "0", "defaultTopicQueueNums": "1"}
    out = tmp_path / "out"
    with running_broker(settings) as broker:
        with producing(broker) as producer:
            send(producer, "Old", 0, 10)
            finish(spark, broker, "Old", out)
            send(producer, "Old", 10, 290)
        assert mqadmin(["deleteExpiredCommitLog", "-n", broker.namesrv, "-b", broker.address]) in (None, 0)
        cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))

        def first() -> int:
            return next(iter(cluster.bounds(cluster.queues({"Old"})).values())).min_offset

        until(lambda: first() > 10, "retention")
        options = {"failOnDataLoss": str(fails).lower()}
        if not fails:
            finish(spark, broker, "Old", out, **options)
            kept = written(spark, out)
            assert kept[:10] == list(range(10)) and kept[10:] == list(range(kept[10], 300)) and kept[10] > 10
            return
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException, match=r"queue 0 of topic Old on .*: offset 10 is wanted"):
            finish(spark, broker, "Old", out, **options)
    assert written(spark, out) == list(range(10))


def test_executors_in_processes_of_their_own(spark: Any, tmp_path: Path) -> None:
    """Two executors, as on a cluster: what is pickled, and what each process must open by itself."""
    out = tmp_path / "out"
    with running_broker({"defaultTopicQueueNums": "4"}) as broker, producing(broker) as producer:
        send(producer, "Spread", 0, 400)
        words = ("--once", "maxOffsetsPerTrigger=200", "minPartitions=4")
        query = QueryProcess("local-cluster[2,1,1024]", broker.namesrv, "Spread", out, *words)
        try:
            assert query.process.wait(DEADLINE_S) == 0, query.text()
        finally:
            query.kill()
    assert written(spark, out) == list(range(400))
