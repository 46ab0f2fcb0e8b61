"""Archives as Delta tables: each record once over runs and kills, read back by others; upkeep is the library's."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import StoreError
from rocketpy.spark.jobs.delta_archive import SCHEMA, DeltaArchive, archive_store, archive_topics
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.following import Following
from tests.spark.test_archive_topics import send
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker, running_broker

BROKER = "b"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"defaultTopicQueueNums": "3"}) as started:
        yield started


def opened(target: Path) -> DeltaArchive:
    return DeltaArchive.opened(str(target), {})


def archived(target: Path) -> list[tuple[str, int]]:
    """(topic, phy offset) of each row, by the log's order, as the table's log names the files."""
    if not deltalake.DeltaTable.is_deltatable(str(target)):
        return []
    rows = deltalake.DeltaTable(str(target)).to_pyarrow_table(columns=["topic", "physicalOffset"])
    return sorted(
        zip(rows["topic"].to_pylist(), rows["physicalOffset"].to_pylist(), strict=True), key=lambda row: row[1]
    )


def logged(root: Path) -> list[tuple[str, int]]:
    return [(record.topic, record.phy_offset) for record in StoreReader(root).records()]


def run(words: list[str]) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["pipeline", "archive", "--format", "delta", *words])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_kills_of_a_run_leave_each_record_once(tmp_path: Path) -> None:
    """SIGKILL at random moments; a run that goes on follows the store until SIGTERM."""
    make_store(tmp_path / "all", 600)
    shutil.copytree(tmp_path / "all", tmp_path / "s")
    for path in (later := sorted((tmp_path / "s/commitlog").iterdir())[-3:]):
        path.unlink()
    target, chance = tmp_path / "a", random.Random()
    words = ("--format", "delta", "--broker", BROKER, "--commit-bytes", "4000", str(tmp_path / "s"))
    seen = 0
    for _ in range(2):
        with Following(target, *words) as following:
            wanted = seen + chance.randint(1, 150)
            following.wait_until(lambda: len(archived(target)) >= min(wanted, 500))  # noqa: B023  # called here alone
        rows = archived(target)
        seen = len(rows)
        assert rows == logged(tmp_path / "s")[:seen], "rows and position are one commit"
    with Following(target, *words) as following:
        following.wait_until(lambda: archived(target) == logged(tmp_path / "s"))
        for path in later:
            shutil.copy(tmp_path / "all/commitlog" / path.name, tmp_path / "copy")
            (tmp_path / "copy").rename(path)
        following.wait_until(lambda: archived(target) == logged(tmp_path / "all"))
        assert following.stop() == 0, following.text()


def test_duckdb_and_pandas_read_the_table(broker: RunningBroker, tmp_path: Path) -> None:
    """A topic with a name that a path must escape; runs go on after each other, and queues keep their positions."""
    topic, target = "%RETRY%Shop", tmp_path / "t"
    words = ["-n", broker.namesrv, "-t", topic, "-t", "Orders", str(target)]
    send(broker, topic, 30)
    send(broker, "Orders", 10)
    report = run(["--commit-bytes", "3000", *words])
    assert report["rows"] == 40 and report["commits"] > 2
    assert (run(words)["rows"], run(words)["commits"]) == (0, 0)
    send(broker, topic, 25)
    assert run(words)["rows"] == 25
    table = deltalake.DeltaTable(str(target))
    counts = duckdb.sql(
        "SELECT topic, count(*), count(DISTINCT (queueId, queueOffset)), min(octet_length(body)) > 0 "
        f"FROM read_parquet({table.file_uris()}, hive_partitioning = true) GROUP BY topic ORDER BY topic"
    ).fetchall()
    assert counts == [(topic, 55, 55, True), ("Orders", 10, 10, True)]
    frame = table.to_pandas(filters=[("topic", "=", topic)])
    assert len(frame) == 55 and set(frame["keys"]) == {f"k{n}" for n in range(30)} and frame["dt"].notna().all()
    assert str(frame["storeTimestamp"].dtype) == "datetime64[us, UTC]"


def test_rows_that_others_have_appended_meanwhile_are_refused(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    first, second = opened(tmp_path / "a"), opened(tmp_path / "a")
    archive_store(first, tmp_path / "s", BROKER)
    with pytest.raises(StoreError, match="another run has archived the same messages meanwhile"):
        archive_store(second, tmp_path / "s", BROKER)
    assert archived(tmp_path / "a") == logged(tmp_path / "s")


def test_compaction_vacuum_and_time_travel_are_the_librarys(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    words = ["--broker", BROKER, "--commit-bytes", "2000", str(tmp_path / "s"), str(tmp_path / "a")]
    assert run(words)["commits"] > 3
    before = deltalake.DeltaTable(str(tmp_path / "a"))
    report = run(["--compact", *words])
    assert report["merged_files"] == len(before.file_uris()) > len(opened(tmp_path / "a").table.file_uris())
    assert len(deltalake.DeltaTable(str(tmp_path / "a"), version=1).to_pyarrow_table()) < 60
    assert before.to_pyarrow_table().num_rows == 60, "a reader keeps its version"
    assert run(["--vacuum", "0", *words])["vacuumed_files"] == report["merged_files"]
    assert archived(tmp_path / "a") == logged(tmp_path / "s")
    make_store(tmp_path / "more", 90)
    assert run([*words[:-2], str(tmp_path / "more"), str(tmp_path / "a")])["rows"] == 30, "the position is kept"


def test_a_table_of_an_older_schema_gets_the_new_columns(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    old = pa.schema([field for field in SCHEMA if field.name not in ("msgId", "bodyCRC")])
    deltalake.DeltaTable.create(str(tmp_path / "a"), old, partition_by=["topic", "dt"])
    archive_store(opened(tmp_path / "a"), tmp_path / "s", BROKER)
    rows = deltalake.DeltaTable(str(tmp_path / "a")).to_pyarrow_table()
    assert set(rows.column_names) == set(SCHEMA.names) and rows["bodyCRC"].null_count == 0


def test_archives_of_different_kinds_are_not_mixed(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Mixed", 5)
    connection = {"nameServer": broker.namesrv}
    archive_topics(opened(tmp_path / "t"), ("Mixed",), connection)
    with pytest.raises(StoreError, match="is archived by its topics"):
        archive_store(opened(tmp_path / "t"), broker.store, "broker-a", live_tail=True)
    archive_store(opened(tmp_path / "s"), broker.store, "broker-a", live_tail=True)
    with pytest.raises(StoreError, match="is archived by its store"):
        archive_topics(opened(tmp_path / "s"), ("Mixed",), connection)
    (tmp_path / "p/_rocketpy").mkdir(parents=True)
    with pytest.raises(StoreError, match="is an archive of --format parquet"):
        opened(tmp_path / "p")
    for words, message in (
        (["--format", "delta", "--skip-damage"], "--skip-damage: does not belong to --format delta"),
        (["--vacuum", "7"], "--vacuum: does not belong to --format parquet"),
        (["--inline"], "is a Delta table: use --format delta"),
    ):
        command = ["pipeline", "archive", *words, "--broker", "broker-a", str(broker.store), str(tmp_path / "s")]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 2 and message in done.stderr, done.output
