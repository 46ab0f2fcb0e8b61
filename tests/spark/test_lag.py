"""The lag of streaming queries: as many messages, bytes and seconds as were stored and not read, also in Prometheus."""

from __future__ import annotations

import logging
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.client import Message, ProducerOptions, SendResult
from rocketpy.client.options import ClientOptions
from rocketpy.client.sync import Producer
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.lag import QueueLag, StreamLags, lag_text, lags_of
from rocketpy.spark.stream_metrics import StreamMetrics
from tests.support.broker import RunningBroker
from tests.support.etcd import free_ports
from tests.support.prometheus import needs_prometheus, running_prometheus
from tests.support.readers import readable
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

DEADLINE_S = 240.0


@pytest.fixture
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer("tests", ProducerOptions(name_servers=broker.namesrv, send_timeout=10)) as started:
        yield started


def send(producer: Producer, topic: str, queue: MessageQueue, count: int) -> list[SendResult]:
    return readable([producer.send(Message(topic, b"x" * 100), queue=queue) for _ in range(count)])


def test_the_lag_is_what_is_stored_behind_the_position(broker: RunningBroker, producer: Producer) -> None:
    queues = sorted(producer.queues("Behind"))
    begun_s = time.time()
    for queue, count in zip(queues, (7, 3, 0, 4), strict=True):
        send(producer, "Behind", queue, count)
    ended_s = time.time()
    cluster = CLUSTERS.get(ClientOptions(name_servers=broker.namesrv))
    ends = dict(zip(queues, (5, 3, 0, 0), strict=True)) | {MessageQueue("Gone", "broker-a", 0): 5}
    lags = lags_of(cluster, ends, ended_s + 10)
    assert [lags[queue].messages for queue in queues] == [2, 0, 0, 4] and len(lags) == 4
    sizes = {lags[queue].size // lags[queue].messages for queue in (queues[0], queues[3])}  # type: ignore[operator]
    assert len(sizes) == 1 and 200 < sizes.pop() < 400, "as large as their records"
    assert lags[queues[1]] == QueueLag(0, 0, 0.0)
    for queue in (queues[0], queues[3]):
        assert 10 <= (lags[queue].age_s or 0) + 0.002 <= 10 + ended_s - begun_s + 0.002
    assert re.fullmatch(r"6 messages, 0\.0 MB, 1\d s behind", lag_text(lags))


def test_brokers_that_do_not_answer_leave_the_lag_out(caplog: pytest.LogCaptureFixture) -> None:
    lags = StreamLags()
    nowhere = ClientOptions(name_servers="127.0.0.1:1", api_timeout=0.5)
    lags.started("q", nowhere)
    lags.progressed("q", {MessageQueue("T", "b", 0): 3}, 3, 0.5)
    with caplog.at_level(logging.WARNING):
        assert lags.now() == {}
    assert "the lag of query q is unknown: " in caplog.text
    lags.ended("q")
    snapshot = lags.snapshot()
    assert [(one.is_running, one.rows, one.batch_s) for one in snapshot.queries.values()] == [(False, 3, 0.5)]
    assert snapshot.unread == []


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def start(spark: Any, broker: RunningBroker, topic: str, out: Path, **options: str) -> Any:
    given = {"nameServer": broker.namesrv, "topic": topic, "startingOffsets": "earliest", "columns": "min", **options}
    writer = spark.readStream.format("rocketmq").options(**given).load().writeStream.format("noop").queryName(topic)
    return writer.option("checkpointLocation", str(out / "checkpoint"))


def test_prometheus_sees_the_lag_of_a_query_fall_to_zero_and_grow(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    queues = sorted(producer.queues("Falling"))
    for queue in queues:
        send(producer, "Falling", queue, 10)
    metrics = StreamMetrics(spark, port=0, nameServer=broker.namesrv)
    assert metrics.endpoint is not None
    port = metrics.endpoint.port

    def lag(queues: str) -> float | None:
        time.sleep(0.1)
        return scrape(port).get(f'rocketpy_spark_lag_messages{{query="Falling",queues="{queues}",topic="Falling"}}')

    try:
        query = start(spark, broker, "Falling", tmp_path, maxOffsetsPerTrigger="8")
        query = query.trigger(processingTime="1 hour").start()
        wait_until(lambda: lag("sum") == 32, "the lag after the first batch", DEADLINE_S)
        assert (lag("min"), lag("avg"), lag("max")) == (8, 8, 8)
        query.stop()
        query = start(spark, broker, "Falling", tmp_path).trigger(processingTime="0 seconds").start()
        wait_until(lambda: lag("sum") == 0, "the end of the topic", DEADLINE_S)
        assert all(not source["metrics"] for source in query.lastProgress["sources"]), "if Spark asks now, tell it"
        query.stop()
        send(producer, "Falling", queues[0], 5)
        wait_until(lambda: lag("sum") == 5, "new messages of a stopped query", DEADLINE_S)
        found = scrape(port)
        assert found['rocketpy_spark_running{query="Falling"}'] == 0
        assert found['rocketpy_spark_rows_total{query="Falling"}'] == 40
    finally:
        metrics.close()


@needs_prometheus
def test_every_panel_of_the_dashboard_shows_something(
    spark: Any, broker: RunningBroker, producer: Producer, tmp_path: Path
) -> None:
    for queue in producer.queues("Panels"):
        send(producer, "Panels", queue, 10)
    (own,) = free_ports(1)
    metrics = StreamMetrics(spark, port=0, nameServer=broker.namesrv)
    assert metrics.endpoint is not None
    query = start(spark, broker, "Panels", tmp_path, maxOffsetsPerTrigger="8").trigger(processingTime="1 second")
    started = query.start()
    try:
        with running_prometheus(tmp_path, own, {"rocketpy-spark": [metrics.endpoint.port]}) as prometheus:
            prometheus.wait_until_panels_have_data(ROOT / "deploy/grafana/spark.json")
    finally:
        started.stop()
        metrics.close()
