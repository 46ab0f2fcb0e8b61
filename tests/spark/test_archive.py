"""Archives of stores: every record once, over repeated, interrupted and refused runs."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.jobs import archive_files, running
from rocketpy.spark.jobs import compact as compact_module
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.archive_log import ArchiveLog, Manifest, files_of, manifests_of
from rocketpy.spark.jobs.compact import compact
from rocketpy.spark.jobs.inputs import Input
from rocketpy.store.files import file_name
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.test_segments import SEGMENT, make_store
from tests.support.log_images import image_of, record
from tests.unit.store.test_java_store import unpack


def rows(target: Path) -> list[tuple[str, int]]:
    """(topic, phy offset) of each row of the archive, by the log's order."""
    found = []
    for path in target.glob("topic=*/dt=*/*.parquet"):
        topic = path.parent.parent.name.removeprefix("topic=")
        found += [(topic, place) for place in pq.ParquetFile(path).read(["physicalOffset"])[0].to_pylist()]
    return sorted(found, key=lambda row: row[1])


def logged(root: Path) -> list[tuple[str, int]]:
    return [(record.topic, record.phy_offset) for record in StoreReader(root).records()]


def run(root: Path, target: Path, **given: Any) -> Any:
    return archive(None, root, target, broker="b", **{"split_bytes": 1000, **given})


def test_the_archive_of_a_store_of_java_is_a_table(spark: Any, tmp_path: Path) -> None:
    unpack("clean", tmp_path / "s")
    manifests = archive(spark, tmp_path / "s", tmp_path / "a", broker="b", split_bytes=5000)
    assert sum(manifest.rows for manifest in manifests) == 200
    assert rows(tmp_path / "a") == logged(tmp_path / "s")
    frame = spark.read.parquet(str(tmp_path / "a"))
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {"A": 134, "B": 66}
    bodies = {row.physicalOffset: bytes(row.body) for row in frame.select("physicalOffset", "body").collect()}
    assert bodies == {record.phy_offset: record.body for record in StoreReader(tmp_path / "s").records()}


def test_runs_go_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    make_store(tmp_path / "all", 60)
    shutil.copytree(tmp_path / "all", tmp_path / "s")
    later = sorted((tmp_path / "s/commitlog").iterdir())[2:]
    for path in later:
        path.unlink()
    (first,) = run(tmp_path / "s", tmp_path / "a")
    assert rows(tmp_path / "a") == logged(tmp_path / "s")
    assert run(tmp_path / "s", tmp_path / "a") == []
    for path in later:
        shutil.copy(tmp_path / "all/commitlog" / path.name, path)
    (second,) = run(tmp_path / "s", tmp_path / "a", split_bytes=700)
    assert second.begin == first.end
    assert rows(tmp_path / "a") == logged(tmp_path / "all")
    assert sum(file.rows for one in (first, second) for file in one.files) == 60


def test_rows_are_sorted_and_the_manifest_has_the_offsets(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    (manifest,) = run(tmp_path / "s", tmp_path / "a")
    for file in manifest.files:
        table = pq.ParquetFile(tmp_path / "a" / file.path).read()
        places = list(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
        assert places == sorted(places) and len(places) == file.rows
        assert file.bytes == (tmp_path / "a" / file.path).stat().st_size
        for queue, (low, high) in file.queues.items():
            offsets = [offset for queue_id, offset in places if queue_id == int(queue)]
            assert (low, high) == (min(offsets), max(offsets))


def test_offsets_are_stored_as_differences(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    (manifest,) = run(tmp_path / "s", tmp_path / "a")
    group = pq.ParquetFile(tmp_path / "a" / manifest.files[0].path).metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    as_differences = [column.path_in_schema for column in columns if "DELTA_BINARY_PACKED" in column.encodings]
    assert sorted(as_differences) == sorted(archive_files.DELTA_ENCODED)


def test_a_run_without_manifest_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path / "s", 60)

    def fail(*_: Any) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveLog, "commit", fail)
        with pytest.raises(OSError, match="killed here"):
            run(tmp_path / "s", tmp_path / "a")
    assert rows(tmp_path / "a") == []
    run(tmp_path / "s", tmp_path / "a", split_bytes=777)
    assert rows(tmp_path / "a") == logged(tmp_path / "s")
    assert list((tmp_path / "a/_rocketpy/b/pending").rglob("*.parquet")) == []


def test_a_run_that_ended_behind_its_manifest_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path / "s", 60)

    def fail(*_: Any) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveLog, "_publish", fail)
        with pytest.raises(OSError, match="killed here"):
            run(tmp_path / "s", tmp_path / "a")
    assert rows(tmp_path / "a") == []
    assert run(tmp_path / "s", tmp_path / "a") == []
    assert rows(tmp_path / "a") == logged(tmp_path / "s")


def test_a_long_run_that_was_cut_short_keeps_what_it_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits every `commit_bytes`; pieces are no longer than that."""
    make_store(tmp_path / "s", 60)
    commit, commits = ArchiveLog.commit, []

    def fail_later(log: ArchiveLog, manifest: Manifest) -> Manifest:
        commits.append(manifest)
        if len(commits) == 3:
            raise OSError("killed here")
        return commit(log, manifest)

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveLog, "commit", fail_later)
        with pytest.raises(OSError, match="killed here"):
            run(tmp_path / "s", tmp_path / "a", commit_bytes=2000)
    kept = rows(tmp_path / "a")
    assert kept and kept == logged(tmp_path / "s")[: len(kept)]
    following = run(tmp_path / "s", tmp_path / "a")
    assert following[0].begin == commits[1].end
    assert rows(tmp_path / "a") == logged(tmp_path / "s")


def test_a_task_that_runs_twice_does_not_change_what_a_manifest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs a slow task twice at once, and tasks of a driver that was killed go on for a while. Beside a broker
    the second attempt finds more records. Here it ends behind the first one, whose result counts.
    Fault: An archive task that ran twice could replace a file named by a manifest."""
    places = make_store(tmp_path / "s", 60)
    last = sorted((tmp_path / "s/commitlog").iterdir())[-1]
    whole, cut = last.read_bytes(), places[-3] - int(last.name)

    def twice(_: Any, work: Any, parts: Any) -> list[Any]:
        results = []
        for part in parts:
            last.write_bytes(whole[:cut] + bytes(len(whole) - cut))
            results.append(work(part))
            last.write_bytes(whole)
            work(part)
        return results

    with monkeypatch.context() as patched:
        patched.setattr(running, "run_parts", twice)
        run(tmp_path / "s", tmp_path / "a", live_tail=True)
    assert rows(tmp_path / "a") == logged(tmp_path / "s")[:-3]
    run(tmp_path / "s", tmp_path / "a", live_tail=True)
    assert rows(tmp_path / "a") == logged(tmp_path / "s")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    with ArchiveLog.opened(tmp_path / "a", "b"), pytest.raises(StoreError, match="another run archives broker b"):
        run(tmp_path / "s", tmp_path / "a")
    with pytest.raises(ConfigError, match="characters that do not suit a file name"):
        archive(None, tmp_path / "s", tmp_path / "a", broker="../b")
    run(tmp_path / "s", tmp_path / "a")
    make_store(tmp_path / "small", 5)
    with pytest.raises(StoreError, match="this is another store"):
        run(tmp_path / "small", tmp_path / "a")


def test_deleted_records_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Fault: An archive with `--allow-gap` did not say what it left out."""
    make_store(tmp_path / "s", 60)
    shutil.copytree(tmp_path / "s", tmp_path / "early")
    for path in sorted((tmp_path / "early/commitlog").iterdir())[1:]:
        path.unlink()
    run(tmp_path / "early", tmp_path / "a")
    for start in (0, SEGMENT):
        (tmp_path / "s/commitlog" / file_name(start)).unlink()
    with pytest.raises(StoreError, match=f"begins at {2 * SEGMENT}, and is archived up to"):
        run(tmp_path / "s", tmp_path / "a")
    assert not caplog.records
    run(tmp_path / "s", tmp_path / "a", allow_gap=True)
    assert f" to {2 * SEGMENT}, were deleted before they were archived" in caplog.text
    assert rows(tmp_path / "a") == logged(tmp_path / "early") + logged(tmp_path / "s")


def test_the_command_archives(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    command = ["pipeline", "archive", "--inline", "--broker", "b", str(tmp_path / "s"), str(tmp_path / "a")]
    done = CliRunner().invoke(cli, command)
    report = json.loads(done.stdout)
    assert done.exit_code == 0 and (report["rows"], report["begin"]) == (60, 0)
    assert json.loads(CliRunner().invoke(cli, command).stdout)["rows"] == 0
    missing = CliRunner().invoke(cli, [*command[:-2], str(tmp_path / "no"), str(tmp_path / "a")])
    assert missing.exit_code == 2 and "is no store" in missing.stderr
    nothing = CliRunner().invoke(cli, [*command[:-2], str(tmp_path / "no"), str(tmp_path / "new")])
    assert nothing.exit_code == 2 and not (tmp_path / "new").exists()


def test_bodies_that_grow_a_thousandfold_are_archived_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of the log with 60 MB of bodies in 60 kB: rows of one chunk at a time are in memory.
    Fault: `pipeline archive` inflated a whole piece of the log: 780 MiB from 0.8 MB."""
    bodies = [bytes([number]) * (1 << 20) for number in range(60)]
    records = [record("A", zlib.compress(body), sys_flag=0x301, queue_id=n % 2) for n, body in enumerate(bodies)]
    image = image_of(records)
    (tmp_path / "s/commitlog").mkdir(parents=True)
    (tmp_path / "s/commitlog" / file_name(0)).write_bytes(image.data)
    monkeypatch.setattr(archive_files, "CHUNK_BYTES", 8 << 20)
    sizes: list[int] = []
    write = archive_files._write_chunk
    monkeypatch.setattr(
        archive_files, "_write_chunk", lambda table, *given: sizes.append(table.nbytes) or write(table, *given)
    )
    (manifest,) = run(tmp_path / "s", tmp_path / "a", split_bytes=1 << 30)
    assert len(image.data) < 200_000 and len(sizes) > 6 and max(sizes) < 10 << 20
    assert [file.path for file in files_of([manifest])] == [file.path for file in manifest.files]
    found = [pq.ParquetFile(tmp_path / "a" / file.path).read(["physicalOffset", "body"]) for file in manifest.files]
    by_place = {place: body for one in found for place, body in zip(*(c.to_pylist() for c in one.columns), strict=True)}
    assert by_place == dict(zip(image.records, bodies, strict=True))


def test_a_body_beyond_the_bound_is_a_bad_row(tmp_path: Path) -> None:
    """It inflates to more than maxMessageSize: it is in the archive as it was stored, and in the side table."""
    stored = zlib.compress(bytes((64 << 20) + 1), 9)
    image = image_of([record("A", stored, sys_flag=0x301), record("A", b"fine")])
    (tmp_path / "s/commitlog").mkdir(parents=True)
    (tmp_path / "s/commitlog" / file_name(0)).write_bytes(image.data)
    (manifest,) = run(tmp_path / "s", tmp_path / "a")
    (bad,) = manifest.bad
    (row,) = pq.ParquetFile(tmp_path / "a" / bad.path).read().to_pylist()
    assert row["physicalOffset"] == 0 and "inflates to more than 67108864 bytes" in row["reason"]
    assert {bytes(one["body"]) for one in table_of(tmp_path / "a")} == {stored, b"fine"}


# --- compaction ---


def small_files(tmp_path: Path) -> Path:
    """An archive of many small files; returns it."""
    make_store(tmp_path / "s", 60)
    run(tmp_path / "s", tmp_path / "a")
    return tmp_path / "a"


def table_of(target: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in target.glob("topic=*/dt=*/*.parquet"):
        rows += [row | {"topic": path.parent.parent.name} for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def test_small_files_become_one(spark: Any, tmp_path: Path) -> None:
    target = small_files(tmp_path)
    before, count = table_of(target), len(list(target.glob("topic=*/dt=*/*.parquet")))
    merged = compact(spark, target, "b")
    assert merged is not None and len(merged.files) == 2 and len(merged.removed) == count > 4
    assert table_of(target) == before
    for file in merged.files:
        table = pq.ParquetFile(target / file.path).read()
        places = list(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
        assert places == sorted(places) and len(places) == file.rows
        assert file.queues == {
            str(queue): [min(o for q, o in places if q == queue), max(o for q, o in places if q == queue)]
            for queue, _ in places
        }
    files = files_of(manifests_of(target)["b"])
    assert {file.path for file in files} == {file.path for file in merged.files}
    assert compact(None, target, "b") is None
    assert run(tmp_path / "s", target) == []  # nothing new: the archive ends where it did


def test_files_are_merged_within_bounds(tmp_path: Path) -> None:
    target = small_files(tmp_path)
    before = table_of(target)
    files = files_of(manifests_of(target)["b"])
    largest = max(file.bytes for file in files)
    merged = compact(None, target, "b", file_bytes=3 * largest)
    assert merged is not None and all(file.bytes <= 3 * largest for file in merged.files)
    assert table_of(target) == before
    assert compact(None, target, "b", memory_bytes=1) is None


class Dead(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("behind_the_manifest", [False, True])
def test_a_compaction_that_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_the_manifest: bool
) -> None:
    target = small_files(tmp_path)
    before, count = table_of(target), len(list(target.glob("topic=*/dt=*/*.parquet")))

    def dying(*_: object) -> None:
        raise Dead

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveLog, "_publish" if behind_the_manifest else "commit", dying)
        if behind_the_manifest:  # opening publishes, too
            patched.setattr(ArchiveLog, "_read_last", lambda log: last_of(log))
        with pytest.raises(Dead):
            compact(None, target, "b")
    assert len(list(target.glob("topic=*/dt=*/*.parquet"))) == count and table_of(target) == before
    run(tmp_path / "s", target)
    assert table_of(target) == before
    expected = 2 if behind_the_manifest else count
    assert len(list(target.glob("topic=*/dt=*/*.parquet"))) == expected


def last_of(log: ArchiveLog) -> None:
    """Set what opening needs, without a manifest to publish."""
    (manifests,) = manifests_of(log.target).values()
    log.number, log.end = len(manifests), manifests[-1].end


def test_a_merged_file_that_lacks_rows_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = small_files(tmp_path)
    before = table_of(target)
    write = archive_files.write_table
    monkeypatch.setattr(compact_module, "write_table", lambda table, path: write(table.slice(1), path))
    with pytest.raises(StoreError, match=r"does not have the rows of \d+ files: nothing was changed"):
        compact(None, target, "b")
    assert table_of(target) == before


# --- what readers see ---


def read_back(spark: Any, target: Path, *topics: str) -> list[tuple[str, int]]:
    frame = Input(archive=target, topics=topics).frame(spark, ("topic", "physicalOffset"))
    return sorted(((row.topic, row.physicalOffset) for row in frame.collect()), key=lambda row: row[1])


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_readers_see_each_row_once_after_a_compaction_that_was_killed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """It dies behind its manifest: merged files are in their places, and those that they replace are, too.
    Fault: Readers of an archive counted rows twice after a kill during `archive --compact`."""
    target = small_files(tmp_path)
    replace, unlink, replaced = Path.replace, Path.unlink, list[Path]()

    def dying(path: Path, place: Path) -> Path:
        if "pending" in path.parts and path.suffix == ".parquet":
            if len(replaced) == moved:
                raise Dead
            replaced.append(place)
        return replace(path, place)

    def keeping(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".parquet":
            raise Dead
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dying)
        patched.setattr(Path, "unlink", keeping)
        with pytest.raises(Dead):
            compact(None, target, "b")
    assert len(replaced) == moved and len(manifests_of(target)["b"]) == 2
    assert read_back(spark, target) == logged(tmp_path / "s")
    run(tmp_path / "s", target)
    assert read_back(spark, target) == rows(target) == logged(tmp_path / "s")


def test_topics_that_an_archive_lacks_are_named(spark: Any, tmp_path: Path) -> None:
    target = small_files(tmp_path)
    known = sorted({topic for topic, _ in logged(tmp_path / "s")})
    assert read_back(spark, target, known[0]) == [row for row in logged(tmp_path / "s") if row[0] == known[0]]
    with pytest.raises(ConfigError, match=f"has no topic Nope.* It has {', '.join(known)}"):
        read_back(spark, target, known[0], "Nope")
