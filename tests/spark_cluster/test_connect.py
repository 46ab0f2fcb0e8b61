"""Spark Connect: the driver's JVM is behind a socket, and sources, sink, streams and bodies work as without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketpy.spark
from rocketpy.spark import bodies
from rocketpy.spark.stream_metrics import StreamMetrics
from tests.support.broker import RunningBroker
from tests.support.waiting import wait_until

DEADLINE_S = 240.0


@pytest.fixture(scope="module")
def remote(java: None) -> Iterator[Any]:
    """A session of a server on this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    yield rocketpy.spark.register(session)
    session.stop()


def test_topics_are_written_read_and_streamed(remote: Any, broker: RunningBroker, tmp_path: Path) -> None:
    where = {"nameServer": broker.namesrv, "topic": "Remote"}
    values = bodies.encode(remote.range(100), bodies.Json(), "struct(id)")
    values.select("body").write.format("rocketmq").mode("append").options(**where).save()
    frame = rocketpy.spark.read(remote, **where)
    assert bodies.decode(frame, bodies.Json("id int")).selectExpr("sum(value.id)").collect()[0][0] == 4950
    stream = remote.readStream.format("rocketmq").options(**where, startingOffsets="earliest", columns="min").load()
    metrics = StreamMetrics(remote, nameServer=broker.namesrv)
    writer = stream.writeStream.format("parquet").queryName("remote").option("path", str(tmp_path / "data"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(
            lambda: sum(lag.messages for lag in metrics.lags().get("remote", {"": _BEHIND}).values()) == 0,
            "the lag to fall to zero",
            DEADLINE_S,
        )
    finally:
        query.stop()
        metrics.close()
    assert remote.read.parquet(str(tmp_path / "data")).count() == 100


def test_an_error_is_one_line(remote: Any, broker: RunningBroker) -> None:
    with pytest.raises(Exception, match="does not exist") as raised:
        rocketpy.spark.read(remote, nameServer=broker.namesrv, topic="Nowhere").count()
    reason = rocketpy.spark.reason_of(raised.value)
    assert reason == "topic Nowhere does not exist (option waitForTopic waits for one)"


class _Behind:
    messages = 1


_BEHIND = _Behind()
