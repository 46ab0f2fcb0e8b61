"""The inputs of `python -m bench.spark`: topics of a running broker, stores at rest, and Spark sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST
from rocketpy.spark import read, session

from .brokers import Broker, boot
from .spark_floor import FloorSource
from .spark_resent import ResentSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 8
SIZES = {"100 B": 100, "1 KiB": 1024}
TOPICS = {"100 B": "small", "1 KiB": "kib"}
SENT_S = 600.0
OF_SESSION = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL", "spark.driver.memory": "2g"}


def fill(broker: Broker, topic: str, queues: int, body: int, messages: int) -> None:
    """Send so many messages to the queues in turn.

    Raises:
        AssertionError: the broker has refused some.
    """
    broker.create_topic(topic, queues)
    workload = Workload(Mode.SEND, 16, 16, body, requests_max=messages)
    with Load(workload, host=HOST, port=broker.port, topic=topic, queues=queues) as load:
        load.run(SENT_S)
    with broker.control() as control:
        stored = sum(control.wait_for_offsets(topic, queues, messages))
    assert stored == messages, f"{messages - stored} of {messages} messages were refused: the machine is too busy"


def stopped_stores(directory: Path, messages: int) -> dict[str, Path]:
    """Make a store of each size of body, at rest."""
    stores = {}
    for size, topic in TOPICS.items():
        home = directory / topic
        home.mkdir()
        broker = boot("rocketpy", home)
        try:
            fill(broker, topic, QUEUES, SIZES[size], messages)
        finally:
            broker.stop()
        stores[size] = broker.store
    return stores


def start_spark(workers: int) -> SparkSession:
    started = session(f"local[{workers}]", name="rocketpy-bench", config=OF_SESSION, advises=False)
    for source in (FloorSource, ResentSource):
        started.dataSource.register(source)
    return started


def counted(frame: DataFrame, expected: int) -> int:
    """Read a DataFrame to its end. Spark counts the rows on their way.

    Raises:
        AssertionError: there are not as many as were sent.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    frame.observe(seen, f.count(f.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    assert seen.get["rows"] == expected, f"{seen.get['rows']} rows, {expected} were sent"
    return expected


def frame_rows(spark: SparkSession, source: str, expected: int, **options: Any) -> int:
    """Read from a source to the end. Returns, and raises: as `counted`."""
    return counted(read(spark, source, **options), expected)
