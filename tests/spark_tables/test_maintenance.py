"""Spark maintains tables of archives by the statements of their formats, and archives go on after it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from rocketpy.errors import StoreError
from rocketpy.spark.jobs import delta_archive, iceberg_archive
from rocketpy.spark.jobs.table_archive import archive_store
from tests.spark.tables import DELTA, ICEBERG, Format
from tests.spark.test_archive_tables import BROKER
from tests.spark_tables.sql import Sql
from tests.spark_tables.stores import make_days, select, stored_rows
from tests.spark_tables.test_spark_reads import CATALOG, archive, table_of

ADDED = ("bodyCRC", "bornHost")  # columns that an older version does not know
AGE_S = 30 * 86_400


def compact(sql: Sql, kind: Format, target: Path) -> None:
    """Merge all small files in Spark."""
    table, before = table_of(sql, kind, target), len(kind.files(target))
    if kind is DELTA:
        sql.rows(f"OPTIMIZE {table}")
    else:
        options = "options => map('min-input-files', '2')"
        sql.rows(f"CALL {CATALOG}.system.rewrite_data_files(table => 'rocketmq.{target.name}', {options})")
        sql.rows(f"CALL {CATALOG}.system.rewrite_manifests('rocketmq.{target.name}')")
    assert len(kind.files(target)) < before


def remove_old_versions(sql: Sql, kind: Format, target: Path) -> None:
    """Leave only the newest version, and its files, in Spark."""
    table, before = table_of(sql, kind, target), len(list(target.rglob("*.parquet")))
    if kind is DELTA:
        sql.rows(f"VACUUM {table} RETAIN 0 HOURS")
    else:
        given = f"table => 'rocketmq.{target.name}', older_than => current_timestamp(), retain_last => 1"
        sql.rows(f"CALL {CATALOG}.system.expire_snapshots({given})")
    assert len(list(target.rglob("*.parquet"))) < before


def read(sql: Sql, kind: Format, target: Path) -> list[dict[str, object]]:
    return sql.rows(select(table_of(sql, kind, target)))


def older(patched: pytest.MonkeyPatch) -> None:
    """Make this process the version that does not know the columns ADDED."""
    for module, name in ((delta_archive, "SCHEMA"), (iceberg_archive, "ROWS_SCHEMA")):
        fields = [field for field in getattr(module, name) if field.name not in ADDED]
        patched.setattr(module, name, pa.schema(fields))


def test_columns_that_were_added_to_a_table(
    kind: Format, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer version of rocketpy adds columns, another program one of its own; old rows have nothing there."""
    make_days(tmp_path / "s", 90)
    make_days(tmp_path / "more", 150)
    target = tmp_path / "t"
    with monkeypatch.context() as patched:
        older(patched)
        archive(kind, tmp_path / "s", target)
    table = table_of(sql, kind, target)
    assert not {row["col_name"] for row in sql.rows(f"DESCRIBE {table}")} & set(ADDED)
    sql.rows(f"ALTER TABLE {table} ADD COLUMNS (reviewed string)")
    archive(kind, tmp_path / "more", target)
    old, new = stored_rows(tmp_path / "s", BROKER), stored_rows(tmp_path / "more", BROKER)
    wanted = [{**row, **dict.fromkeys(ADDED)} for row in old] + new[len(old) :]
    assert read(sql, kind, target) == wanted
    compact(sql, kind, target)
    remove_old_versions(sql, kind, target)
    assert read(sql, kind, target) == wanted
    counts = f"SELECT count(*) rows, count(bodyCRC) added, count(reviewed) reviewed FROM {table}"
    assert sql.rows(counts) == [{"rows": len(new), "added": len(new) - len(old), "reviewed": 0}]


def test_an_archive_goes_on_after_maintenance(kind: Format, sql: Sql, tmp_path: Path) -> None:
    """Also a run that has opened the table before.
    Fault: An archive refused an Iceberg table whose snapshots of rocketpy another program had expired.
    Fault: `archive --compact` doubled rows of a Delta table that Spark had compacted, in topics that are not ASCII."""
    for number, name in enumerate("abcd"):
        make_days(tmp_path / name, 90 + 60 * number)
    target = tmp_path / "t"
    archive(kind, tmp_path / "a", target)
    opened = kind.opened(target)
    compact(sql, kind, target)
    assert archive(kind, tmp_path / "a", target)["rows"] == 0
    archive_store(opened, tmp_path / "b", BROKER, commit_bytes=8000)
    assert read(sql, kind, target) == stored_rows(tmp_path / "b", BROKER)
    compact(sql, kind, target)
    remove_old_versions(sql, kind, target)
    assert archive(kind, tmp_path / "b", target)["rows"] == 0, "the position is kept"
    archive(kind, tmp_path / "c", target)
    assert read(sql, kind, target) == stored_rows(tmp_path / "c", BROKER)
    archive(kind, tmp_path / "d", target, "--compact", "--vacuum", "0")
    assert read(sql, kind, target) == stored_rows(tmp_path / "d", BROKER)


def test_rows_that_spark_deletes_stay_deleted(kind: Format, sql: Sql, tmp_path: Path) -> None:
    make_days(tmp_path / "s", 90)
    make_days(tmp_path / "more", 150)
    target = tmp_path / "t"
    archive(kind, tmp_path / "s", target)
    sql.rows(f"DELETE FROM {table_of(sql, kind, target)} WHERE topic = 'Orders'")
    assert archive(kind, tmp_path / "s", target)["rows"] == 0
    archive(kind, tmp_path / "more", target, "--compact")
    old = len(stored_rows(tmp_path / "s", BROKER))
    rows = stored_rows(tmp_path / "more", BROKER)
    assert read(sql, kind, target) == [row for row in rows[:old] if row["topic"] != "Orders"] + rows[old:]


def test_files_of_killed_runs_are_removed_and_the_catalog_stays(sql: Sql, tmp_path: Path) -> None:
    """The catalog is in the directory of its table, where no metadata names it."""
    make_days(tmp_path / "s", 90)
    target = tmp_path / "t"
    archive(ICEBERG, tmp_path / "s", target)
    orphan = Path(ICEBERG.files(target)[0]).with_name("left.parquet")
    orphan.write_bytes(b"left by a killed run")
    for path in (orphan, target / "catalog.db"):
        os.utime(path, (time.time() - AGE_S, time.time() - AGE_S))
    table_of(sql, ICEBERG, target)

    def removed(words: str) -> set[str]:
        name = f"table => 'rocketmq.{target.name}'"
        rows = sql.rows(f"CALL {CATALOG}.system.remove_orphan_files({name}, {words})")
        return {Path(row["orphan_file_location"]).name for row in rows}

    assert removed("dry_run => true") == {"left.parquet", "catalog.db"}, "docs/use/spark.md warns of it"
    assert removed(f"location => '{target}/data'") == {"left.parquet"}
    assert not orphan.exists() and (target / "catalog.db").exists()
    assert read(sql, ICEBERG, target) == stored_rows(tmp_path / "s", BROKER)


def test_a_table_that_is_rolled_back_is_archived_again(sql: Sql, tmp_path: Path) -> None:
    """Positions of the newest snapshots are not those of an older one that has none."""
    for number, name in enumerate("ab"):
        make_days(tmp_path / name, 90 + 60 * number)
    target = tmp_path / "t"
    archive(ICEBERG, tmp_path / "a", target)
    compact(sql, ICEBERG, target)
    table = ICEBERG.table(target)
    merged = table.current_snapshot().snapshot_id
    archive(ICEBERG, tmp_path / "b", target)
    name = f"rocketmq.{target.name}"
    table_of(sql, ICEBERG, target)
    sql.rows(f"CALL {CATALOG}.system.rollback_to_snapshot('{name}', {merged})")
    archive(ICEBERG, tmp_path / "b", target)
    assert read(sql, ICEBERG, target) == stored_rows(tmp_path / "b", BROKER)
    sql.rows(f"CALL {CATALOG}.system.rollback_to_snapshot('{name}', {merged})")
    given = f"table => '{name}', older_than => current_timestamp(), retain_last => 1"
    sql.rows(f"CALL {CATALOG}.system.expire_snapshots({given})")
    with pytest.raises(StoreError, match="no snapshot says how far it is archived"):
        ICEBERG.opened(target)
