"""The options that would save work are named, by the plans that Spark makes; why the sources take no filters, and
give no dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

import rocketpy.spark
from rocketpy.spark.advice import LISTENER, advice, advice_of, advise
from tests.spark.test_segments import make_store

DEADLINE_MS = 60_000
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TOPICS = """\
Project [body#8]
+- Filter (((isnotnull(storeTimestamp#10) AND (queueId#2 = 3)) AND (storeTimestamp#10 >= 2026-01-01 00:00:00.001)) \
AND (((storeTimestamp#10 <= 2026-01-02 00:00:00) AND tags#7 IN (a,b)) AND (queueOffset#3L > 5)))
   +- RelationV2[topic#0, queueId#2, queueOffset#3L, tags#7, body#8, storeTimestamp#10] rocketmq
"""


@pytest.fixture(scope="module")
def store(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("advice") / "store"
    make_store(root, 60)
    return rocketpy.spark.read(spark, "rocketmq_store", path=str(root))


def test_options_of_topics() -> None:
    assert list(advice_of(TOPICS, "UTC")) == [
        "rocketmq reads 6 columns for 5: set the option columns=queueId,queueOffset,tags,body,storeTimestamp",
        'rocketmq reads rows without queueId = 3, too: set the option assign={"TOPIC": {"BROKER": [3]}}',
        "rocketmq reads rows without storeTimestamp >= 2026-01-01 00:00:00.001, too: set the option "
        "startingTimestamp=1767225600001",
        "rocketmq reads rows without storeTimestamp <= 2026-01-02 00:00:00, too: set the option "
        "endingTimestamp=1767312000001",
        "rocketmq reads rows without queueOffset > 5, too: set the option startingOffsets (JSON)",
        "rocketmq reads rows without tags = a,b, too: set the option subExpression=a || b",
    ]
    assert "startingTimestamp=1767222000001" in " ".join(advice_of(TOPICS, "Europe/Berlin"))
    assert "ingTimestamp=" not in " ".join(advice_of(TOPICS, "+01:00")), "Python has no zone of this name"
    either = TOPICS.replace(") AND (storeTimestamp", ") OR (storeTimestamp")
    assert len(list(advice_of(either, "UTC"))) == 1, "a part of a condition with OR saves nothing"


def test_conditions_that_no_option_has() -> None:
    """Fault: A condition that compares a store time with another column ended explain with a ValueError."""
    for condition in (
        "(storeTimestamp#10 >= bornTimestamp#9)",
        "(queueOffset#3L > physicalOffset#4L)",
        "(storeTimestamp#10 >= +12026-01-01 00:00:00)",
    ):
        plan = f"Filter {condition}\n+- RelationV2[queueOffset#3L, storeTimestamp#10] rocketmq\n"
        assert list(advice_of(plan, "UTC")) == []


def test_real_plans(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "rocketmq_store reads 11 columns for"
    counted = store.where("queueId = 1 AND topic IN ('T', 'U')").groupBy("topic").count()
    rocketpy.spark.explain(counted)
    printed = capsys.readouterr().out
    assert "BatchScan rocketmq_store" in printed and "Optimized" not in printed
    assert f"rocketpy: {columns} 2: set the option columns=topic,queueId\n" in printed
    assert "rocketpy: rocketmq_store reads rows without queueId = 1, too: set the option queueIds=1\n" in printed
    assert "set the option topics=T,U\n" in printed
    assert advice(store) == [] == advice(store.limit(3)), "all columns are wanted"
    assert advice(store.selectExpr("count(*)")) == [f"{columns} 0: set the option columns=queueId"]
    both = store.select("tags", "queueOffset").join(store.select("body", "queueOffset"), "queueOffset")
    assert advice(both) == [
        f"{columns} 2: set the option columns={names}" for names in ("queueOffset,tags", "queueOffset,body")
    ]


def test_a_stream(spark: Any, tmp_path: Path) -> None:
    make_store(tmp_path / "store", 10)
    stream = spark.readStream.format("rocketmq_store").option("path", str(tmp_path / "store")).load()
    expected = [
        "rocketmq_store reads 11 columns for 2: set the option columns=queueId,body",
        "rocketmq_store reads rows without queueId = 1, too: set the option queueIds=1",
    ]
    assert advice(stream.where("queueId = 1").select("body")) == expected
    assert advice(spark.sql("SELECT body FROM {source} WHERE queueId = 1", source=stream)) == expected


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "rocketpy.spark.advice"]


def test_the_log_has_each_option_once(
    spark: Any, store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queries that nobody explains, also in SQL; not of views, which read nothing.
    Fault: A query that read more than it used was not told of unless its user called explain."""
    assert advise(spark) is spark, "the fixture's session does so already"
    bus = spark.sparkContext._jsc.sc().listenerBus()
    bus.waitUntilEmpty(DEADLINE_MS)
    caplog.clear()
    monkeypatch.setattr(getattr(spark, LISTENER), "_told", set())
    for _ in range(2):
        store.where("queueId = 1").count()
    store.createOrReplaceTempView("advised")
    spark.sql("SELECT sum(queueOffset) FROM advised").write.parquet(str(tmp_path / "out"))
    store.count()
    bus.waitUntilEmpty(DEADLINE_MS)
    less = "would read less: rocketmq_store reads"
    assert told(caplog) == [
        f"query count {less} 11 columns for 1: set the option columns=queueId",
        f"query count {less} rows without queueId = 1, too: set the option queueIds=1",
        f"query command {less} 11 columns for 1: set the option columns=queueOffset",
        f"query count {less} 11 columns for 0: set the option columns=queueId",
    ]


class Filtering(DataSource):
    """Ten numbers; takes filters over them."""

    @classmethod
    def name(cls) -> str:
        return "filtering"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: Any) -> DataSourceReader:
        return FilteringReader()


class FilteringReader(DataSourceReader):
    def __init__(self) -> None:
        self.wanted = set(range(10))

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, EqualTo):
                self.wanted = {one.value}
            yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in self.wanted)


def test_pushdown_leaks_in_spark(spark: Any) -> None:
    """While this holds, the sources take no filters: they would lose rows of other queries of a DataFrame."""
    spark.dataSource.register(Filtering)
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = spark.read.format("filtering").load()
        assert (frame.where("n = 3").count(), frame.count()) == (1, 1), "10 is right: then use pushFilters"
    finally:
        spark.conf.set(PUSHDOWN, "false")


class Encoded(DataSource):
    """Two texts, as numbers with a dictionary."""

    @classmethod
    def name(cls) -> str:
        return "encoded"

    def schema(self) -> str:
        return "topic string"

    def reader(self, schema: Any) -> DataSourceReader:
        return EncodedReader()


class EncodedReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield pa.record_batch({"topic": pa.array(["a", "b"]).dictionary_encode()})


def test_spark_takes_no_dictionaries(spark: Any) -> None:
    """While this holds, topic, tags and brokerName are written out for each row (ADR 103)."""
    spark.dataSource.register(Encoded)
    with pytest.raises(PySparkException, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
        spark.read.format("encoded").load().collect()
