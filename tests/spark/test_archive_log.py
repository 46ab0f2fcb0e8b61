"""The manifests of an archive: what is committed is on the disk, with the names of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def file_at(path: object, attempt: str = "") -> dict[str, Any]:
    return {"path": path, "rows": 1, "bytes": 4, "queues": {}, "attempt": attempt}


@pytest.mark.parametrize(
    "fields",
    [
        {"files": [], "removed": ["../precious"]},
        {"files": [], "removed": [f"{DAY}/../../../precious"]},
        {"files": [], "removed": ["/precious"]},
        {"files": [], "removed": [""]},
        {"files": [], "removed": [7]},
        {"files": [file_at("../moved")]},
        {"files": [], "bad": [file_at("/moved")]},
        {"files": [file_at(f"{DAY}/1.parquet", "..")]},
        {"files": [file_at(f"{DAY}/1.parquet", "../../../precious")]},
        {"files": [file_at(f"{DAY}/1.parquet", "/")]},
    ],
)
def test_a_manifest_names_nothing_outside_of_the_archive(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Fault: A manifest of a stranger moved or deleted any file of the user who ran the job."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    archive = tmp_path / "archive"
    with ArchiveLog.opened(archive, "b") as log:
        manifest = {"version": 1, "begin": 0, "end": 1, **fields}
        (log.directory / "00000001.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"00000001\.json cannot be read: "), ArchiveLog.opened(archive, "b"):
        pass
    assert precious.read_text() == "kept"
