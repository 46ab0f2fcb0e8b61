"""A file has its name when it is complete, and never before."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rocketpy.errors import DiskFull, StoreError
from rocketpy.store.replaced_file import durably_created, durably_replaced, replaced
from tests.support.synced import record_syncs


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("writing", [replaced, durably_replaced])
def test_the_old_file_is_there_until_the_new_one_is_complete(tmp_path: Path, writing: type) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with writing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        assert all(name == "f" or name.startswith(".") for name in names(tmp_path)), "Spark would read it"
    assert path.read_bytes() == b"new" and names(tmp_path) == ["f"]


@pytest.mark.parametrize("writing", [replaced, durably_replaced, durably_created])
def test_what_fails_leaves_nothing(tmp_path: Path, writing: type) -> None:
    with pytest.raises(DiskFull, match=r"cannot write .*/f: No space"), writing(tmp_path / "f") as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    with replaced(tmp_path / "f") as one, replaced(tmp_path / "f") as other:
        one.write(b"one")
        other.write(b"other")
    assert (tmp_path / "f").read_bytes() == b"one", "the later to end stays"


@pytest.mark.parametrize("writing", [durably_replaced, durably_created])
def test_the_file_is_on_the_disk_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: type
) -> None:
    synced = record_syncs(monkeypatch)
    with writing(tmp_path / "f") as file:
        file.write(b"new")
    file_path, directory = synced
    assert file_path.parent == tmp_path and file_path.name.endswith(".unfinished")
    assert directory == tmp_path


def test_a_created_file_replaces_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(StoreError, match="File exists"), durably_created(tmp_path / "f") as file:
        file.write(b"new")
    assert (tmp_path / "f").read_bytes() == b"old" and names(tmp_path) == ["f"]
