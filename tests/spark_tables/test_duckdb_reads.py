"""DuckDB reads the tables of archives by its extensions, `delta_scan` and `iceberg_scan`: each row is the store's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.tables import DELTA, ICEBERG, Format
from tests.spark_tables.conftest import ROOT
from tests.spark_tables.stores import TOPICS, Row, make_days, select, stored_rows
from tests.spark_tables.test_spark_reads import BROKER, archive

ANSWERS_S = 300.0


@pytest.fixture(scope="module")
def duckdb() -> Path:
    """The directory of the DuckDB that ROCKETPY_DUCKDB names by its version."""
    version = os.environ.get("ROCKETPY_DUCKDB")
    if version is None:
        pytest.skip("no DuckDB with extensions: run `make test-tables`")
    return ROOT / f"build/duckdb-{version}"


def rows_of(duckdb: Path, statement: str) -> list[Row]:
    program = Path(__file__).with_name("duckdb_process.py")
    path = f"{duckdb}:{program.parent}"  # -P: only what is named here comes before the installed packages
    done = subprocess.run(
        [sys.executable, "-P", str(program), statement],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=ANSWERS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows: list[Row] = json.loads(done.stdout)
    return rows


def table_of(kind: Format, target: Path) -> str:
    """Return what stands after FROM; catalog.db names the newest metadata of a table of Iceberg."""
    if kind is DELTA:
        return f"delta_scan('{target}')"
    return f"iceberg_scan('{ICEBERG.table(target).metadata_location}')"


def test_each_column_of_each_row_is_the_store_s(kind: Format, duckdb: Path, tmp_path: Path) -> None:
    """Records with any legal field, over two runs with several commits; then merged, and old files removed."""
    make_days(tmp_path / "s", 150)
    make_days(tmp_path / "more", 240)
    for store, upkeep in (("s", ()), ("more", ()), ("more", ("--compact", "--vacuum", "0"))):
        archive(kind, tmp_path / store, tmp_path / "t", *upkeep)
        rows = rows_of(duckdb, select(table_of(kind, tmp_path / "t")))
        assert rows == stored_rows(tmp_path / store, BROKER) != []


def test_rows_of_a_topic_are_chosen(kind: Format, duckdb: Path, tmp_path: Path) -> None:
    """A name that the table's paths escape."""
    make_days(tmp_path / "s", 90)
    archive(kind, tmp_path / "s", tmp_path / "t")
    rows = rows_of(duckdb, select(table_of(kind, tmp_path / "t"), where=f"topic = '{TOPICS[1]}'"))
    assert rows == stored_rows(tmp_path / "s", BROKER, TOPICS[1:2]) != []
