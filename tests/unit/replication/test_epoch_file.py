"""The file with the epochs of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.failover.rules.epochs import EpochList, EpochsInvalid
from rocketpy.replication.epoch_file import SIZE_MAX, EpochFile


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    assert file.read() == EpochList()
    epochs = EpochList().opened(7, 0).opened(8, 8000)
    file.write(epochs)
    assert file.read() == epochs and file.path.name == "epochFileCheckpoint"
    file.write(epochs.until(7999))
    assert file.read() == EpochList().opened(7, 0)


def test_an_older_list_is_never_taken_for_a_damaged_one(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.write(EpochList().opened(7, 0))
    file.write(EpochList().opened(7, 0).opened(8, 8000))
    whole = file.path.read_bytes()
    for damaged in (whole[:-2], whole.replace(b"8000", b"8001"), b"", b"\xff" + whole, whole + b"\n" * SIZE_MAX):
        file.path.write_bytes(damaged)
        with pytest.raises(EpochsInvalid):
            file.read()


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    replace, fsync = os.replace, os.fsync
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("name"), replace(*paths)))
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), fsync(fd)))
    file = EpochFile(tmp_path)
    for epochs in (EpochList().opened(1, 0), EpochList().opened(1, 0).opened(2, 9)):
        file.write(epochs)
        assert steps == ["sync", "name", "sync"]
        steps.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["epochFileCheckpoint"]


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"cannot read .*epochFileCheckpoint"):
        file.read()
    with pytest.raises(StoreError, match=r"cannot write .*epochFileCheckpoint"):
        file.write(EpochList())


def test_a_file_that_is_far_too_long_is_not_read_as_a_list(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.path.write_bytes(b"0" * (SIZE_MAX + 1))
    with pytest.raises(EpochsInvalid, match=f"has more than {SIZE_MAX} bytes"):
        file.read()
