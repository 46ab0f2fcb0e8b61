"""Spark reads the tables that `archive --format delta` and `iceberg` write, by the packages of these formats; every
row is compared with the store."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.tables import DELTA, Format
from tests.spark.test_archive_tables import BROKER, run
from tests.spark.test_archive_topics import send
from tests.spark_tables.sql import Sql, SqlError
from tests.spark_tables.stores import DAYS, TOPICS, Row, make_days, select, stored_rows
from tests.support.broker import RunningBroker

CATALOG = "default"  # as pyiceberg calls a catalog without a name; catalog.db has it in each row


def table_of(sql: Sql, kind: Format, target: Path) -> str:
    """Return the name of the table in a new session."""
    if kind is DELTA:
        sql.begin({})
        return f"delta.`{target}`"
    uri, warehouse = f"jdbc:sqlite:{target}/catalog.db", str(target.parent)
    sql.begin({CATALOG: {"type": "jdbc", "uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"}})
    return f"{CATALOG}.rocketmq.{target.name}"


def archive(kind: Format, store: Path, target: Path, *words: str) -> dict[str, Any]:
    """Run once, with commits of a few rows."""
    return run(kind, [*words, "--broker", BROKER, "--commit-bytes", "8000", str(store), str(target)])


def day_of(row: Row) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(row["storeTimestamp"] // 1_000_000))


def test_each_column_of_each_row_is_the_store_s(kind: Format, sql: Sql, tmp_path: Path) -> None:
    """Records with any legal field, of three topics and days, over two runs with several commits."""
    make_days(tmp_path / "s", 150)
    make_days(tmp_path / "more", 240)
    assert archive(kind, tmp_path / "s", tmp_path / "t")["commits"] > 3
    table = table_of(sql, kind, tmp_path / "t")
    assert sql.rows(select(table)) == (rows := stored_rows(tmp_path / "s", BROKER))
    archive(kind, tmp_path / "more", tmp_path / "t")
    table = table_of(sql, kind, tmp_path / "t")
    assert sql.rows(select(table)) == (more := stored_rows(tmp_path / "more", BROKER))
    assert 0 < len(rows) < len(more)


def test_rows_of_topics_are_those_that_the_broker_stored(
    kind: Format, sql: Sql, broker: RunningBroker, tmp_path: Path
) -> None:
    topics = (f"Orders-{kind.name}", f"%RETRY%{kind.name}")
    words = ["-n", broker.namesrv, "-t", topics[0], "-t", topics[1], str(tmp_path / "t")]
    for count in (40, 25):
        for topic in topics:
            send(broker, topic, count)
        assert run(kind, ["--commit-bytes", "3000", *words])["rows"] == count * 2
        rows = sql.rows(select(table_of(sql, kind, tmp_path / "t")))
        assert rows == stored_rows(broker.store, "broker-a", topics)
    assert len(rows) == 130


def test_a_query_opens_only_the_files_of_its_topic_and_day(kind: Format, sql: Sql, tmp_path: Path) -> None:
    make_days(tmp_path / "s", 300)
    archive(kind, tmp_path / "s", tmp_path / "t")
    table, rows = table_of(sql, kind, tmp_path / "t"), stored_rows(tmp_path / "s", BROKER)
    day = "CAST(date(storeTimestamp) AS string)"
    counts = sql.rows(f"SELECT topic, {day} day, count(body) found FROM {table} GROUP BY topic, {day}")
    assert {(row["topic"], row["day"]): row["found"] for row in counts} == Counter(
        (row["topic"], day_of(row)) for row in rows
    )
    times = f"storeTimestamp >= '{DAYS[1]} 00:00:00' AND storeTimestamp < '{DAYS[2]} 00:00:00'"
    chosen = f"topic = '{TOPICS[1]}' AND {times}" + (f" AND dt = '{DAYS[1]}'" if kind is DELTA else "")
    wanted = [row for row in rows if row["topic"] == TOPICS[1] and DAYS[1] == day_of(row)]
    files = kind.files(tmp_path / "t")
    needed = [path for path in files if f"dt={DAYS[1]}" in path and "RETRY" in path]
    assert 0 < len(needed) < len(files)
    for path in set(files) - set(needed):
        Path(path).rename(path + ".away")
    table = table_of(sql, kind, tmp_path / "t")
    assert sql.rows(select(table, where=chosen)) == wanted != []
    with pytest.raises(SqlError, match=r"(?i)not exist|not found"):
        sql.rows(select(table))


def test_versions_can_be_read_until_they_are_vacuumed(kind: Format, sql: Sql, tmp_path: Path) -> None:
    make_days(tmp_path / "s", 90)
    make_days(tmp_path / "more", 150)
    first = archive(kind, tmp_path / "s", tmp_path / "t")["version"]
    second = archive(kind, tmp_path / "more", tmp_path / "t")["version"]
    files = len(kind.files(tmp_path / "t"))
    report = archive(kind, tmp_path / "more", tmp_path / "t", "--compact")
    assert report["merged_files"] > len(kind.files(tmp_path / "t")) < files
    table = table_of(sql, kind, tmp_path / "t")
    rows, more = stored_rows(tmp_path / "s", BROKER), stored_rows(tmp_path / "more", BROKER)
    for version, wanted in ((first, rows), (second, more), (report["version"], more)):
        assert sql.rows(select(f"{table} VERSION AS OF {version}")) == wanted
    archive(kind, tmp_path / "more", tmp_path / "t", "--vacuum", "0")
    table = table_of(sql, kind, tmp_path / "t")
    with pytest.raises(SqlError, match=r"(?i)not exist|not found|cannot find"):
        sql.rows(select(f"{table} VERSION AS OF {first}"))
    assert sql.rows(select(table)) == more
