"""The manifests of an archive: what is committed is on the disk, with the names of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.spark.jobs.archive_log import ArchivedFile, ArchiveLog, Manifest
from tests.support.synced import record_syncs

DAY = "topic=T/dt=2026-11-22"


def pending_file(log: ArchiveLog, name: str) -> ArchivedFile:
    """A file of this run, as a worker leaves it."""
    path = log.pending / DAY / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    return ArchivedFile(f"{DAY}/{name}", 1, 4, {"0": [0, 0]})


def test_names_of_published_files_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last manifest's files are published again after a power failure, so those before must be there.
    Fault: Names of archive files were not synced, so an archive could lack files after a power failure."""
    with ArchiveLog.opened(tmp_path, "b") as log:
        file = pending_file(log, "1.parquet")
        synced = record_syncs(monkeypatch)
        log.commit(Manifest(0, 10, [file]))
        assert {log.directory, tmp_path, tmp_path / "topic=T", tmp_path / DAY} <= set(synced)
        merged = pending_file(log, "2.parquet")
        synced.clear()
        log.commit(Manifest(10, 10, [merged], removed=[file.path]))
        assert tmp_path / DAY in synced
    assert [path.name for path in (tmp_path / DAY).iterdir()] == ["2.parquet"]


def test_a_manifest_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    """On a file system without locks a second run could have committed it: its rows would be lost."""
    with ArchiveLog.opened(tmp_path, "b") as log:
        (log.directory / "00000001.json").write_text("of another run")
        with pytest.raises(StoreError, match=r"cannot write .*00000001\.json: File exists"):
            log.commit(Manifest(0, 10, []))
        assert (log.directory / "00000001.json").read_text() == "of another run"
