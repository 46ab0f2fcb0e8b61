"""Tables of the catalog: made, filled and read by SQL, with options that the catalog keeps in their schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketpy.client import Message, ProducerOptions
from rocketpy.client.sync import Producer
from rocketpy.errors import ConfigError
from rocketpy.spark.columns import COLUMNS, ddl_of
from rocketpy.spark.store_source import StoreSource
from rocketpy.spark.table_options import (
    METADATA,
    options_of_new_table,
    options_of_table,
    parse_table_options,
    schema_with,
)
from rocketpy.spark.topic_source import TopicSource
from tests.spark.catalog_process import run_statements
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker
from tests.support.doc_examples import ROOT
from tests.support.readers import readable

PLAIN = StructType([StructField("body", BinaryType())])
CREATED = {  # as Spark 4.3 passes them
    "option.nameserver": "n:1",
    "option.topic": "T",
    "option.columns": "tags,body",
    "option.producergroup": "p",
    "nameserver": "n:1",
    "topic": "T",
    "owner": "somebody",
    "provider": "rocketmq",
    "comment": "c",
    "any.property": "x",
}


def test_the_schema_of_a_table_keeps_its_options() -> None:
    """Fault: CREATE TABLE failed at the option "option.nameserver"."""
    schema = TopicSource(CREATED).schema()
    assert schema.simpleString() == "struct<tags:string,body:binary>"
    kept = {"columns": "tags,body", "nameserver": "n:1", "producergroup": "p", "topic": "T"}
    assert json.loads(schema.fields[0].metadata[METADATA]) == kept
    again = StructType.fromJson(json.loads(schema.json()))
    assert options_of_table({}, again, "rocketmq") == kept
    assert options_of_table({"Topic": "U"}, again, "rocketmq") == kept | {"topic": "U"}
    source, sink = parse_table_options(kept)
    assert (source.topic, sink.topic, sink.producer_group) == ("T", "T", "p")
    assert sink.ignore_unknown_columns
    query = {"nameServer": "m:1", "topic": "U"}
    assert options_of_table(query, again, "rocketmq") is None, "a query with rows of the table"


def test_options_of_queries_are_not_a_tables() -> None:
    given = {"nameServer": "n:1", "topic": "T"}
    assert options_of_new_table(given) is None
    assert options_of_table(given, PLAIN, "rocketmq") is None
    with pytest.raises(ConfigError, match="unknown option"):
        TopicSource(given | {"producerGroup": "p"}).schema()


def test_errors_of_tables_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match="secretkey: the catalog would show it to everybody: use credentialsFile"):
        TopicSource(CREATED | {"option.secretkey": "s"}).schema()
    with pytest.raises(ConfigError, match='unknown option; did you mean "topic"'):
        TopicSource(CREATED | {"option.topik": "s"}).schema()
    with pytest.raises(ConfigError, match=r"nameServer: this option is required.*made with a list of columns"):
        TopicSource({}).reader(PLAIN)
    with pytest.raises(
        ConfigError, match=r"path: this option is required.*made with a list of columns.*rocketmq_store"
    ):
        StoreSource({}).reader(PLAIN)
    with pytest.raises(ConfigError, match="nameServer: this option is required"):
        TopicSource({"provider": "rocketmq", "owner": "somebody"}).schema()
    with pytest.raises(ConfigError, match='path: "hdfs://n/s" is no local directory: give it as file:///…'):
        StoreSource({"provider": "rocketmq_store", "path": "hdfs://n/s"}).schema()


def test_every_column_has_a_type() -> None:
    every = schema_with({}, ddl_of(list(COLUMNS)))
    assert [field.dataType.simpleString() for field in every] == [COLUMNS[name].ddl for name in every.names]


@pytest.fixture
def tables(spark: Any) -> Iterator[list[str]]:
    """Names of tables that are dropped in the end."""
    made: list[str] = []
    yield made
    for name in made:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_made_filled_and_read(spark: Any, broker: RunningBroker, tables: list[str]) -> None:
    """Fault: CREATE TABLE and spark.catalog.createTable failed, and tables without options could be read by nobody."""
    tables += ["made", "copied"]
    where = f"nameServer '{broker.namesrv}', topic 'Made', waitForTopic '30s'"
    spark.sql(f"CREATE TABLE made USING rocketmq OPTIONS ({where})")
    spark.sql("INSERT INTO made (body, tags) SELECT cast(concat('b', id) AS binary), 'blue' FROM range(50)")
    options = {"nameServer": broker.namesrv, "topic": "Copied", "columns": "all", "waitForTopic": "30s"}
    spark.catalog.createTable("copied", source="rocketmq", **options)
    spark.sql("INSERT INTO copied BY NAME SELECT * FROM made")
    for name in ("made", "copied"):
        rows = spark.sql(f"SELECT body, tags, topic FROM {name}").collect()
        assert sorted(bytes(row.body) for row in rows) == sorted(b"b%d" % n for n in range(50))
        assert {(row.tags, row.topic) for row in rows} == {("blue", name.capitalize())}
    none = spark.sql("SELECT * FROM copied WITH (endingTimestamp = '1')")
    assert none.count() == 0, "options of a query"
    copy = {"nameServer": broker.namesrv, "topic": "Plain", "ignoreUnknownColumns": "true"}
    spark.table("made").write.format("rocketmq").mode("append").options(**copy).save()
    plain = spark.read.format("rocketmq").options(nameServer=broker.namesrv, topic="Plain", waitForTopic="30s")
    assert plain.load().count() == 50


def test_a_table_is_read_in_a_new_session(java: None, broker: RunningBroker, tmp_path: Path) -> None:
    """Its options are in the catalog's schema: another JVM reads it by its name alone."""
    with Producer("makers", ProducerOptions(name_servers=broker.namesrv)) as producer:
        for number in range(5):
            readable([producer.send(Message("Kept", b"%d" % number, tags="blue"))])
    where = f"nameServer '{broker.namesrv}', topic 'Kept', columns 'tags,body'"
    assert run_statements(tmp_path, f"CREATE TABLE kept USING rocketmq OPTIONS ({where})") == []
    query = "SELECT count(tags), sum(cast(cast(body AS string) AS int)) FROM kept"
    assert run_statements(tmp_path, query) == [[5, 10]]


def test_a_store_is_a_table_of_the_catalog(spark: Any, tables: list[str], tmp_path: Path) -> None:
    """Fault: CREATE TABLE failed at the option "owner", and a table without options could be read by nobody."""
    tables += ["kept_log", "placed"]
    (path := tmp_path / "a store%20ö").mkdir()
    places = make_store(path, 60, units=True)
    spark.sql(f"CREATE TABLE kept_log USING rocketmq_store OPTIONS (path '{path}', topics 'A', columns 'all')")
    spark.sql(f"CREATE TABLE placed USING rocketmq_store LOCATION '{path}' OPTIONS (columns 'physicalOffset,crcOk')")
    assert spark.table("kept_log").count() == 40
    assert sorted(row.physicalOffset for row in spark.table("placed").collect()) == places
    assert spark.sql(f"SELECT * FROM kept_log WITH (endPhysicalOffset = '{places[3]}')").count() == 2
    stream = spark.readStream.table("kept_log").writeStream.format("memory").queryName("followed")
    stream.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("followed").count() == 40
    spark.sql("DROP TABLE placed")
    assert spark.table("kept_log").count() == 40, "the files are not the catalog's"


def test_the_table_of_a_store_on_the_page_is_read_in_a_new_session(java: None, tmp_path: Path) -> None:
    text = (ROOT / "docs/use/spark.md").read_text()
    (statement,) = re.findall(r"`(CREATE TABLE log USING rocketmq_store .*?)`", text)
    make_store(tmp_path / "s", 60, units=True)
    assert run_statements(tmp_path, statement.replace("/store", str(tmp_path / "s"))) == []
    assert run_statements(tmp_path, "SELECT count(body), count(DISTINCT topic) FROM log") == [[60, 2]]
    assert run_statements(tmp_path, "DROP TABLE log") == []
    assert any((tmp_path / "s/commitlog").iterdir())
