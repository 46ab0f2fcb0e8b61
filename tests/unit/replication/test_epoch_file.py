"""The file with the epochs of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.failover.rules.epochs import Epoch, EpochList, EpochsInvalid
from rocketpy.replication.epoch_file import SIZE_MAX, EpochFile, from_text, to_text
from tests.support.cases import cases


def listed(*entries: tuple[int, int]) -> EpochList:
    return EpochList(tuple(Epoch(number, start) for number, start in entries))


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


def test_the_file_is_that_of_rocketmq_5() -> None:
    """The example of its CheckpointFile: the CRC is of the lines, low 31 bits."""
    text = "2\n773307083\n7-7000\n8-8000\n"
    assert from_text(text) == listed((7, 7000), (8, 8000)) and to_text(listed((7, 7000), (8, 8000))) == text


def test_a_crc_of_0_is_not_checked() -> None:
    assert from_text("1\n0\n3-5\n") == listed((3, 5))


@cases(
    "text, complaint",
    [
        ("", "not a decimal integer"),
        ("1\n", "not a decimal integer"),
        ("1\n0\n", "0 entries, expected 1"),
        ("1\n0\n1-2\n2-3\n", "2 entries, expected 1"),
        ("2\n773307083\n7-7000\n8-8001\n", "expected 773307083"),
        ("1\n0\n7\n", "not a decimal integer"),
        ("1\n0\n7-x\n", "not a decimal integer"),
        ("1\n0\n-7-7\n", "not a decimal integer"),
        ("1\n0\n7-9223372036854775808\n", "not within"),
        ("2\n0\n7-5\n7-6\n", "epoch 7 from 6 cannot follow epoch 7 from 5"),
        ("2\n0\n7-5\n8-4\n", "epoch 8 from 4 cannot follow epoch 7 from 5"),
    ],
)
def test_a_damaged_file_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(EpochsInvalid, match=complaint):
        from_text(text)


def test_no_prefix_of_a_file_is_taken_for_the_whole() -> None:
    whole = to_text(listed((1, 0), (4, 900), (9, 900)))
    for size in range(len(whole) - 1):  # without the last line's end it is whole, too
        with pytest.raises(EpochsInvalid):
            from_text(whole[:size])
