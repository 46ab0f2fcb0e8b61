"""Iceberg tables in a REST catalog, that of Iceberg's own project: read by Spark, exact through kills of both sides."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.errors import StoreError
from rocketpy.spark.jobs.table_archive import archive_store
from tests.spark.following import Following
from tests.spark.tables import ICEBERG, places
from tests.spark.test_archive_tables import BROKER, run
from tests.spark_tables.rest_catalog import RestCatalog
from tests.spark_tables.sql import Sql
from tests.spark_tables.stores import make_days, select, stored_rows
from tests.support.waiting import wait_until

KILLS = 4
RECORDS = 800
DEADLINE_S = 900.0


def words_of(catalog: RestCatalog, store: Path) -> list[str]:
    options = [word for key, value in catalog.options.items() for word in ("--storage-option", f"{key}={value}")]
    return [*options, "--broker", BROKER, "--commit-bytes", "8000", str(store)]


def stored_places(store: Path) -> list[tuple[str, int]]:
    return [(row["topic"], row["physicalOffset"]) for row in stored_rows(store, BROKER)]


def test_spark_reads_a_table_of_a_rest_catalog(catalog: RestCatalog, sql: Sql, tmp_path: Path) -> None:
    """Two runs, a compaction and a vacuum; versions before the vacuum are there until then."""
    make_days(tmp_path / "s", 90)
    make_days(tmp_path / "more", 150)

    def archive(name: str, *words: str) -> dict[str, Any]:
        return run(ICEBERG, [*words, *words_of(catalog, tmp_path / name), str(tmp_path / "read")])

    first = archive("s")
    assert first["commits"] > 3 and archive("s")["rows"] == 0
    assert archive("more", "--compact")["merged_files"] > 3
    sql.begin({"shop": catalog.options})
    table = "shop.rocketmq.read"
    assert sql.rows(select(f"{table} VERSION AS OF {first['version']}")) == stored_rows(tmp_path / "s", BROKER)
    assert sql.rows(select(table)) == stored_rows(tmp_path / "more", BROKER)
    assert archive("more", "--vacuum", "0")["vacuumed_files"] > 3
    sql.begin({"shop": catalog.options})
    assert sql.rows(select(table)) == stored_rows(tmp_path / "more", BROKER)
    assert len(sql.rows(f"SELECT * FROM {table}.snapshots")) == 1


def test_of_two_runs_the_catalog_refuses_the_second(catalog: RestCatalog, tmp_path: Path) -> None:
    make_days(tmp_path / "s", 60)
    first, second = (ICEBERG.opened(tmp_path / "two", **catalog.options) for _ in range(2))
    archive_store(first, tmp_path / "s", BROKER)
    with pytest.raises(StoreError, match=r"another run has .* meanwhile"):
        archive_store(second, tmp_path / "s", BROKER)
    rows = places(ICEBERG.rows(tmp_path / "two", **catalog.options))
    assert rows == stored_places(tmp_path / "s")


@attrs.define
class Rounds:
    """Kills of runs that archive a store, and of their catalog."""

    catalog: RestCatalog
    target: Path
    wanted: list[tuple[str, int]]
    chance: random.Random

    def rows(self) -> list[tuple[str, int]]:
        """Return the table's rows, which are always the first ones of the store."""
        found = places(ICEBERG.rows(self.target, **self.catalog.options))
        assert found == self.wanted[: len(found)], "rows and position are one commit"
        return found

    def is_whole(self) -> bool:
        return len(self.rows()) == len(self.wanted)

    def files(self) -> int:
        return len(list(self.target.rglob("*.parquet")))

    def play(self, following: Following, reports: int) -> None:
        """Wait for some files or for the end of a run; then perhaps kill the catalog, and wait for the next commit."""
        files = self.files() + self.chance.randint(1, 40)
        wait(following, lambda: self.files() >= files or reports_of(following) > reports, "files")
        time.sleep(self.chance.uniform(0, 0.1))
        if self.chance.random() < 0.7:
            self.catalog.kill()
            time.sleep(self.chance.uniform(0, 1))
            self.catalog.start()
            before = len(self.rows())
            wait(following, lambda: len(self.rows()) > before or self.is_whole(), "a commit")


def reports_of(following: Following) -> int:
    """Count the runs that have archived something, in all processes so far."""
    return following.text().count('"rows"')


def wait(following: Following, holds: Callable[[], bool], what: str) -> None:
    """Wait while the process lives."""

    def looked() -> bool:
        time.sleep(0.02)
        assert following.process.poll() is None, following.text()
        return holds()

    wait_until(looked, what, DEADLINE_S)


def test_kills_of_runs_and_of_the_catalog_lose_and_repeat_no_row(catalog: RestCatalog, tmp_path: Path) -> None:
    """SIGKILL at random, also within a commit whose answer then never comes; a run outlives its catalog.

    Fault: `archive --continuous --format iceberg` ended when its catalog did not answer.
    """
    print("seed", seed := random.randrange(1 << 32))
    make_days(tmp_path / "s", RECORDS)
    rounds = Rounds(catalog, tmp_path / "killed", stored_places(tmp_path / "s"), random.Random(seed))
    words = ("--format", "iceberg", *words_of(catalog, tmp_path / "s"))
    reports = 0
    for _ in range(KILLS):
        with Following(rounds.target, *words) as following:
            if not rounds.is_whole():
                rounds.play(following, reports)
            reports = reports_of(following)
    with Following(rounds.target, *words) as following:
        wait(following, rounds.is_whole, "all rows")
        assert following.stop() == 0, following.text()
