"""Archives as tables: each record once over runs and kills, read back by others; upkeep is the libraries'."""

from __future__ import annotations

import datetime
import json
import pkgutil
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

from rocketpy.admin.cli import main as mqadmin
from rocketpy.cli.command_line import cli
from rocketpy.errors import ConfigError, ConnectionLost, RocketError, StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import Bounds, Cluster
from rocketpy.spark.jobs import table_archive
from rocketpy.spark.jobs.table_archive import ROWS_SCHEMA, archive_store, archive_topics
from tests.spark.following import Following
from tests.spark.tables import BUCKET, DELTA, FORMATS, ICEBERG, Format, logged, places, s3_server
from tests.spark.test_archive_topics import send
from tests.spark.test_segments import make_store
from tests.support.broker import RunningBroker, running_broker
from tests.support.etcd import free_ports

BROKER = "b"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker({"defaultTopicQueueNums": "3"}) as started:
        yield started


@pytest.fixture(params=FORMATS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param  # type: ignore[no-any-return]  # pytest's Any


def run(kind: Format, words: list[str]) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["pipeline", "archive", "--format", kind.name, *words])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_kill_of_a_run_leaves_each_record_once(kind: Format, tmp_path: Path, chance: random.Random) -> None:
    """SIGKILL at a random moment, also within a commit; `make kill-pipeline` does many."""
    make_store(tmp_path / "s", 300)
    target = tmp_path / "a"
    wanted = chance.randint(1, 8)  # files; a commit has two
    words = ("--format", kind.name, "--broker", BROKER, "--commit-bytes", "4000", str(tmp_path / "s"))
    with Following(target, *words) as following:
        following.wait_until(lambda: len(list(target.rglob("*.parquet"))) >= wanted)
        time.sleep(chance.uniform(0, 0.1))
    rows = places(kind.rows(target))
    assert rows == logged(tmp_path / "s")[: len(rows)], "rows and position are one commit"
    archive_store(archive := kind.opened(target), tmp_path / "s", BROKER)
    assert archive.report.rows == 300 - len(rows)
    assert places(kind.rows(target)) == logged(tmp_path / "s")


def test_duckdb_and_pandas_read_the_table(kind: Format, broker: RunningBroker, tmp_path: Path) -> None:
    """A topic with a name that a path must escape; runs go on after each other, and queues keep their positions.

    DuckDB gets the files of the table's newest version; tests/spark_tables reads tables with its extensions.
    """
    topic, orders, target = f"%RETRY%{kind.name}", f"Orders-{kind.name}", tmp_path / "t"
    words = ["-n", broker.namesrv, "-t", topic, "-t", orders, str(target)]
    send(broker, topic, 30)
    send(broker, orders, 10)
    report = run(kind, ["--commit-bytes", "3000", *words])
    assert report["rows"] == 40 and report["commits"] > 2
    assert (run(kind, words)["rows"], run(kind, words)["commits"]) == (0, 0)
    send(broker, topic, 25)
    assert run(kind, words)["rows"] == 25
    counts = duckdb.sql(
        "SELECT topic, count(*), count(DISTINCT (queueId, queueOffset)), min(octet_length(body)) > 0 "
        f"FROM read_parquet({kind.files(target)}, hive_partitioning = {kind.name == 'delta'}) GROUP BY topic ORDER BY 1"
    ).fetchall()
    assert counts == [(topic, 55, 55, True), (orders, 10, 10, True)]
    frame = kind.rows(target).to_pandas()
    frame = frame[frame["topic"] == topic]
    assert len(frame) == 55 and set(frame["keys"]) == {f"k{n}" for n in range(30)}
    assert str(frame["storeTimestamp"].dtype) == "datetime64[us, UTC]"


def test_rows_that_others_have_appended_meanwhile_are_refused(kind: Format, tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    first, second = kind.opened(tmp_path / "a"), kind.opened(tmp_path / "a")
    archive_store(first, tmp_path / "s", BROKER)
    with pytest.raises(StoreError, match=r"another run has .* meanwhile"):
        archive_store(second, tmp_path / "s", BROKER)
    assert places(kind.rows(tmp_path / "a")) == logged(tmp_path / "s")


COMMITS = {  # by the name of a format
    "delta": ("rocketpy.spark.jobs.delta_archive", "write_deltalake"),
    "iceberg": ("pyiceberg.table.Transaction", "commit_transaction"),
}


def test_rows_that_others_have_appended_after_a_commit_are_refused(
    kind: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A run that was overtaken between two of its commits appended the rows of the other run again."""
    make_store(tmp_path / "s", 60)
    first = kind.opened(tmp_path / "a")
    module, name = COMMITS[kind.name]
    commit = getattr(pkgutil.resolve_name(module), name)

    def overtaken(*args: Any, **given: Any) -> Any:
        done = commit(*args, **given)
        monkeypatch.undo()
        archive_store(kind.opened(tmp_path / "a"), tmp_path / "s", BROKER)
        return done

    monkeypatch.setattr(f"{module}.{name}", overtaken)
    with pytest.raises(StoreError, match=r"another run has archived .* meanwhile"):
        archive_store(first, tmp_path / "s", BROKER, commit_bytes=4000)
    assert places(kind.rows(tmp_path / "a")) == logged(tmp_path / "s")


def test_retention_that_overtakes_an_archive(kind: Format, tmp_path: Path) -> None:
    """A run was cut short, and records that it has not read are deleted."""
    make_store(tmp_path / "s", 300)
    every, target = logged(tmp_path / "s"), tmp_path / "a"
    archive_store(kind.opened(target), tmp_path / "s", BROKER, commit_bytes=4000, is_stopped=lambda: True)
    archived = places(kind.rows(target))
    assert archived == every[: len(archived)]
    while logged(tmp_path / "s")[0][1] <= archived[-1][1]:
        min((tmp_path / "s/commitlog").iterdir()).unlink()
    min((tmp_path / "s/commitlog").iterdir()).unlink()
    with pytest.raises(StoreError, match="what was between is deleted; --allow-gap goes on without it"):
        archive_store(kind.opened(target), tmp_path / "s", BROKER)
    archive_store(kind.opened(target), tmp_path / "s", BROKER, allow_gap=True)
    assert places(kind.rows(target)) == archived + logged(tmp_path / "s")


def test_retention_that_overtakes_an_archive_of_topics(
    kind: Format,
    broker: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Brokers say that queues begin later than the table ends; one queue is new."""
    topic, connection = f"Late-{kind.name}", {"nameServer": broker.namesrv}
    send(broker, topic, 30)
    archive_topics(kind.opened(tmp_path / "a"), (topic,), connection)
    words = ["updateTopic", "-n", broker.namesrv, "-b", broker.address, "-t", topic, "-r", "4", "-w", "4"]
    assert mqadmin(words) in (None, 0)
    bounds, added = Cluster.bounds, MessageQueue(topic, "broker-a", 3)

    def later(cluster: Any, queues: Any) -> dict[MessageQueue, Bounds]:
        now = bounds(cluster, queues)
        return {one: Bounds(now[one].max_offset + 7, now[one].max_offset + 9) for one in now} | {added: Bounds(5, 6)}

    monkeypatch.setattr(Cluster, "bounds", later)
    with pytest.raises(StoreError, match="what was between is deleted; --allow-gap goes on without it"):
        archive_topics(kind.opened(tmp_path / "a"), (topic,), connection)
    archive_topics(kind.opened(tmp_path / "a"), (topic,), connection, allow_gap=True)
    assert len(re.findall(r"queue [012] of .*: 7 of the offsets \d+ to \d+ were deleted", caplog.text)) == 3
    assert f"queue 3 of topic {topic} on broker-a: 5 of the offsets 0 to 5 were deleted" in caplog.text
    assert kind.rows(tmp_path / "a").num_rows == 30


def test_compaction_vacuum_and_time_travel(kind: Format, tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    target = tmp_path / "a"
    words = ["--broker", BROKER, "--commit-bytes", "2000", str(tmp_path / "s"), str(target)]
    first = run(kind, words)
    before = kind.files(target)
    report = run(kind, ["--compact", *words])
    assert report["merged_files"] == len(before) > len(after := kind.files(target))
    assert places(kind.rows(target, first["version"])) == places(kind.rows(target)) == logged(tmp_path / "s")
    assert run(kind, ["--compact", *words])["merged_files"] == 0
    assert run(kind, ["--vacuum", "1", *words])["vacuumed_files"] == 0, "the versions are younger"
    assert run(kind, ["--vacuum", "0", *words])["vacuumed_files"] >= report["merged_files"]
    assert {str(path) for path in target.rglob("*.parquet")} == set(after)
    assert places(kind.rows(target)) == logged(tmp_path / "s")
    make_store(tmp_path / "more", 90)
    assert run(kind, [*words[:-2], str(tmp_path / "more"), str(target)])["rows"] == 30, "the position is kept"


def test_an_iceberg_table_is_partitioned_by_topic_and_day(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    archive_store(ICEBERG.opened(tmp_path / "a"), tmp_path / "s", BROKER)
    (topic, day) = ICEBERG.table(tmp_path / "a").spec().fields
    assert (topic.name, str(topic.transform), day.name, str(day.transform)) == ("topic", "identity", "dt", "day")
    (file, *_) = ICEBERG.table(tmp_path / "a").scan("storeTimestamp < '2023-11-15T00:00:00+00:00'").plan_files()
    assert "/topic=A/dt=2023-11-14/" in file.file.file_path


def test_tables_of_other_schemas_get_the_columns_that_they_lack(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    lacking = [field for field in DELTA.opened(tmp_path / "new").table.schema().to_arrow() if field.name != "bodyCRC"]
    own = pa.field("reviewed", pa.bool_())
    schema = pa.schema([*(pa.field(field) for field in lacking), own])
    deltalake.DeltaTable.create(str(tmp_path / "d"), schema, partition_by=["topic", "dt"])
    archive_store(DELTA.opened(tmp_path / "d"), tmp_path / "s", BROKER)
    with ICEBERG.opened(tmp_path / "i").table.update_schema() as update:
        update.delete_column("bodyCRC")
        update.add_column("reviewed", ICEBERG.table(tmp_path / "i").schema().find_type("topic"))
    archive = ICEBERG.opened(tmp_path / "i")
    archive_store(archive, tmp_path / "s", BROKER, commit_bytes=2000)
    archive.compact()
    for rows in (DELTA.rows(tmp_path / "d"), ICEBERG.rows(tmp_path / "i")):
        assert set(ROWS_SCHEMA.names) <= set(rows.column_names)
        assert rows["bodyCRC"].null_count == 0 and rows["reviewed"].null_count == rows.num_rows == 60


def test_an_iceberg_table_that_others_maintain_or_roll_back(tmp_path: Path) -> None:
    """A commit meets a compaction by another program; an older snapshot has the position of that time."""
    make_store(tmp_path / "s", 60)
    make_store(tmp_path / "more", 90)
    table = ICEBERG.opened(tmp_path / "a")
    archive_store(table, tmp_path / "s", BROKER, commit_bytes=2000)
    ICEBERG.opened(tmp_path / "a").compact()
    archive_store(table, tmp_path / "more", BROKER)
    assert places(ICEBERG.rows(tmp_path / "a")) == logged(tmp_path / "more")
    ICEBERG.table(tmp_path / "a").delete("topic == 'A'")  # a snapshot without positions
    archive_store(table := ICEBERG.opened(tmp_path / "a"), tmp_path / "more", BROKER)
    assert table.report.rows == 0
    table.table.manage_snapshots().rollback_to_snapshot(table.table.snapshots()[0].snapshot_id).commit()
    archive_store(ICEBERG.opened(tmp_path / "a"), tmp_path / "more", BROKER)
    assert places(ICEBERG.rows(tmp_path / "a")) == logged(tmp_path / "more")


def test_an_iceberg_table_whose_snapshots_others_expire(tmp_path: Path) -> None:
    """The table itself has the positions, which count while it has as many rows as when they were written."""
    make_store(tmp_path / "s", 60)
    make_store(tmp_path / "more", 90)
    archive_store(ICEBERG.opened(tmp_path / "a"), tmp_path / "s", BROKER, commit_bytes=2000)

    def change(make: Callable[[Any], None]) -> None:
        """Make a snapshot without positions, and expire all others."""
        make(table := ICEBERG.table(tmp_path / "a"))
        table.maintenance.expire_snapshots().older_than(datetime.datetime.now(datetime.UTC)).commit()
        assert len(ICEBERG.table(tmp_path / "a").snapshots()) == 1

    change(lambda table: table.append(ROWS_SCHEMA.empty_table()))
    archive_store(ICEBERG.opened(tmp_path / "a"), tmp_path / "more", BROKER)
    assert places(ICEBERG.rows(tmp_path / "a")) == logged(tmp_path / "more")
    change(lambda table: table.append(table.scan(limit=1).to_arrow()))
    with pytest.raises(StoreError, match="no snapshot says how far it is archived"):
        ICEBERG.opened(tmp_path / "a")


def test_an_iceberg_table_of_another_program_is_refused(tmp_path: Path) -> None:
    table = ICEBERG.opened(tmp_path / "a").table
    table.append(ROWS_SCHEMA.empty_table())
    with pytest.raises(StoreError, match="no snapshot says how far it is archived"):
        ICEBERG.opened(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"--storage-option uri=.*which catalog\?"):
        ICEBERG.opened("s3://lake/a")


def test_a_catalog_that_does_not_answer_is_asked_again_by_the_next_run(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = {"type": "rest", "uri": f"http://127.0.0.1:{port}/"}
    with pytest.raises(ConnectionLost, match="the catalog does not answer") as raised:
        ICEBERG.opened(tmp_path / "a", **options)
    assert raised.value.retriable


def test_a_catalog_that_cannot_be_read_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one would make a second table of the same rows.
    Fault: A catalog in SQLite that was damaged or gone counted as one that does not answer, or was made anew."""
    make_store(tmp_path / "s", 60)
    make_store(tmp_path / "more", 90)
    target, catalog = tmp_path / "a", tmp_path / "a/catalog.db"
    target.mkdir()
    uri = f"sqlite:///{catalog}?timeout=0.01"
    archive_store(table := ICEBERG.opened(target, uri=uri), tmp_path / "s", BROKER)
    monkeypatch.setattr("rocketpy.spark.jobs.iceberg_archive.LOCK_WAIT_S", 0.01)
    locked = f"another program has locked the catalog .*{catalog}.*: database is locked"
    with closing(sqlite3.connect(catalog)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for run in (
            lambda: ICEBERG.opened(target),
            lambda: ICEBERG.opened(target, uri=uri),
            lambda: archive_store(table, tmp_path / "more", BROKER),
        ):
            with pytest.raises(ConnectionLost, match=locked):
                run()
    image = catalog.read_bytes()
    catalog.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match=f"{catalog} cannot be read or written: file is not a database"):
        ICEBERG.opened(target)
    for left in (b"", None):
        catalog.unlink() if left is None else catalog.write_bytes(left)
        with pytest.raises(StoreError, match=f"its catalog {catalog} is gone: restore it"):
            ICEBERG.opened(target)
    catalog.mkdir()
    with pytest.raises(StoreError, match=f"{catalog} cannot be read or written: unable to open database file"):
        ICEBERG.opened(target)
    catalog.rmdir()
    catalog.write_bytes(image)
    archive_store(ICEBERG.opened(target), tmp_path / "more", BROKER)
    assert places(ICEBERG.rows(target)) == logged(tmp_path / "more")


def test_archives_of_different_kinds_are_not_mixed(broker: RunningBroker, tmp_path: Path) -> None:
    send(broker, "Mixed", 5)
    connection = {"nameServer": broker.namesrv}
    archive_topics(DELTA.opened(tmp_path / "t"), ("Mixed",), connection)
    with pytest.raises(StoreError, match="is archived by its topics"):
        archive_store(DELTA.opened(tmp_path / "t"), broker.store, "broker-a", live_tail=True)
    archive_store(ICEBERG.opened(tmp_path / "s"), broker.store, "broker-a", live_tail=True)
    with pytest.raises(StoreError, match="is archived by its store"):
        archive_topics(ICEBERG.opened(tmp_path / "s"), ("Mixed",), connection)
    (tmp_path / "p/_rocketpy").mkdir(parents=True)
    for kind, name, other in ((DELTA, "p", "parquet"), (ICEBERG, "p", "parquet"), (ICEBERG, "t", "delta")):
        with pytest.raises(StoreError, match=f"is an archive of --format {other}"):
            kind.opened(tmp_path / name)
    with pytest.raises(StoreError, match="is an archive of --format iceberg"):
        DELTA.opened(tmp_path / "s")
    for words, message in (
        (["--format", "delta", "--skip-damage", "s"], "--skip-damage: does not belong to --format delta"),
        (["--format", "delta", "--table", "a.b", "s"], "--table: does not belong to --format delta"),
        (["--vacuum", "7", "s"], "--vacuum: does not belong to --format parquet"),
        (["t"], "t is an archive of --format delta: name another directory"),
        (["s"], "s is an archive of --format iceberg"),
        (["s3://lake/t"], "s3://lake/t is in an object store, where --format parquet cannot commit: use delta or"),
    ):
        target = words.pop() if "://" in words[-1] else str(tmp_path / words.pop())
        command = ["pipeline", "archive", "--inline", *words, "--broker", "broker-a", str(broker.store), target]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 2 and message in done.stderr, done.output


def test_a_killed_first_run_of_topics_marks_its_broker(
    kind: Format, broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: When a first run of topics was killed between two commits, an archive of its broker's store appended the
    same rows again."""

    class Killed(Exception):
        pass

    module, archive, topic = table_archive.__name__, kind.opened(tmp_path / "t"), f"Killed-{kind.name}"
    append, read_part = type(archive).append, table_archive.read_part

    def killed(self: Any, *args: Any) -> None:
        append(self, *args)
        raise Killed

    def in_tens(*args: Any) -> Iterator[Any]:
        for batch in read_part(*args):
            yield from (batch.slice(at, 10) for at in range(0, batch.num_rows, 10))

    send(broker, topic, 60)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(type(archive), "append", killed)
        patch.setattr(f"{module}.mean_message_bytes", lambda *_: 1)  # one part, many commits
        patch.setattr(f"{module}.read_part", in_tens)
        archive_topics(archive, (topic,), {"nameServer": broker.namesrv}, commit_bytes=1000)
    assert 0 < len(kind.rows(tmp_path / "t")) < 60
    with pytest.raises(StoreError, match="is archived by its topics"):
        archive_store(kind.opened(tmp_path / "t"), broker.store, "broker-a", live_tail=True)
    archive_topics(kind.opened(tmp_path / "t"), (topic,), {"nameServer": broker.namesrv})
    assert len(set(places(kind.rows(tmp_path / "t")))) == len(kind.rows(tmp_path / "t")) == 60


@pytest.mark.parametrize(
    "address",
    ["postgres://me:s3c@ret@h/db", "sqlite:///file:/none/c.db?mode=ro&uri=true&password=s3c@ret"],
)
def test_errors_of_a_catalog_do_not_show_its_password(address: str) -> None:
    """Fault: An address that pyiceberg does not know was shown with its password."""
    with pytest.raises(RocketError) as caught:
        ICEBERG.opened("s3://lake/t", uri=address)
    assert "s3c" not in str(caught.value) and "ret" not in str(caught.value)


def test_an_object_store_that_is_away_is_named_without_a_password() -> None:
    options = {"aws_allow_http": "true", "aws_region": "us-east-1", "max_retries": "0"}
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s"}
    with pytest.raises(StoreError, match=r"http://me:\*\*\*@127\.0\.0\.1:1/lake"):
        DELTA.opened("s3://lake/t", **options, **keys, aws_endpoint="http://me:s3cret@127.0.0.1:1")


def test_tables_in_an_object_store(tmp_path: Path) -> None:
    """An S3 server in a process of its own, through the file systems of the libraries."""
    make_store(tmp_path / "s", 60)
    with s3_server(tmp_path) as url:
        for kind in FORMATS:
            target, options = f"s3://{BUCKET}/{kind.name}", kind.of_s3(url, tmp_path)
            chosen = [word for key, value in options.items() for word in ("--storage-option", f"{key}={value}")]
            words = [*chosen, "--broker", BROKER, "--commit-bytes", "2000", str(tmp_path / "s"), target]
            late = kind.opened(target, **options)
            assert run(kind, words)["commits"] > 3
            with pytest.raises(StoreError, match=r"another run has .* meanwhile"):
                archive_store(late, tmp_path / "s", BROKER)
            report = run(kind, ["--compact", "--vacuum", "0", *words])
            assert report["rows"] == 0 and report["merged_files"] > 3 and report["vacuumed_files"] > 3
            assert places(kind.rows(target, **options)) == logged(tmp_path / "s")
