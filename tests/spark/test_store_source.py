"""The source rocketmq_store in a Spark session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rocketpy.spark
from rocketpy.spark.columns import COLUMNS, DIAGNOSTICS, arrow_schema, ddl_of
from tests.spark.test_segments import make_store


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, list[int]]:
    return str(tmp_path / "s"), make_store(tmp_path / "s", 60, units=True, zeros=100)


def test_a_store_is_a_table(spark: Any, store: tuple[str, list[int]]) -> None:
    path, places = store
    frame = rocketpy.spark.read(spark, "rocketmq_store", columns="all", path=path, splitBytes=1000)
    rows = frame.orderBy("physicalOffset").collect()
    assert [row.physicalOffset for row in rows] == places
    assert [bytes(row.body) for row in rows] == [b"%d" % n * 20 for n in range(60)]
    assert frame.rdd.getNumPartitions() > 5
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {"A": 40, "B": 20}


def test_sql_and_a_schema_choose_columns(spark: Any, store: tuple[str, list[int]]) -> None:
    path, places = store
    frame = spark.read.format("rocketmq_store").schema("body binary, queueId int").load(path)
    assert frame.columns == ["body", "queueId"] and frame.count() == 60
    frame.createOrReplaceTempView("log")
    assert spark.sql("select count(*) n from log where queueId = 1").first().n == 30
    assert len(places) == 60


def test_our_schema_is_the_one_that_spark_derives(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    names = tuple(COLUMNS)
    assert to_arrow_schema(StructType.fromDDL(ddl_of(names)), timezone="UTC") == arrow_schema(names)
    assert set(DIAGNOSTICS) < set(names)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"topic": "A"}, 'topic: unknown option; did you mean "topics"?'),
        ("body string", {}, "column body is binary, the schema says string: cast it after reading"),
        ("boddy binary", {}, 'the schema names "boddy", which is no column; did you mean "body"?'),
        (None, {"path": "/nowhere"}, "/nowhere is no store"),
    ],
)
def test_errors_say_what_to_do(
    spark: Any, store: tuple[str, list[int]], schema: str | None, options: dict[str, str], message: str
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("rocketmq_store").options(**{"path": store[0], **options})
    with pytest.raises(PySparkException, match=re.escape(message)):
        (reader.schema(schema) if schema else reader).load().count()
