"""The door to the disk: wiping, looking for zeros, errors of one line."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketpy.errors import DiskFull, StoreError
from rocketpy.store.files import DiskFiles, file_name, numbered_files, store_error

FILES = DiskFiles()


def test_wipe_and_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5_000 + bytes(200_000))
    assert FILES.is_zero(path, 5_000) and not FILES.is_zero(path, 4_999) and FILES.is_zero(path, 205_000)
    FILES.wipe(path, 10)
    assert path.read_bytes() == b"x" * 10 + bytes(204_990)


def test_a_hole_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "file", []
    with path.open("wb") as file:
        file.write(bytes(4_096))
        file.truncate(8 << 20)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read.append(size) or pread(fd, size, at))
    assert FILES.is_zero(path, 0)
    assert sum(read) <= 65_536


def test_errors_are_one_line_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"cannot read {tmp_path / 'none'}: No such file"):
        FILES.read(tmp_path / "none", 0, 1)
    with pytest.raises(DiskFull, match="cannot write /dev/full: No space left"):
        FILES.write(Path("/dev/full"), 0, b"x")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        numbered_files(FILES, tmp_path, 10)


def test_a_store_of_another_user_names_both_and_the_remedy(tmp_path: Path) -> None:
    """As in a container, whose volume belongs to root."""
    denied = OSError(errno.EACCES, os.strerror(errno.EACCES))
    me, owner = os.geteuid(), tmp_path.stat().st_uid
    assert str(store_error(denied, tmp_path / "store/commitlog", "make")) == (
        f"cannot make {tmp_path}/store/commitlog: Permission denied: user {me} may not use {tmp_path} of user {owner}; "
        f"chown {me} {tmp_path} (of a container: the volume)"
    )


def test_a_file_that_is_wiped_keeps_its_size_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death in between would leave a file that no store takes.
    Fault: A death while a file was wiped left the file short, and the store could not be opened."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    sizes, pwrite = [], os.pwrite

    def tapped(descriptor: int, data: bytes, at: int) -> int:
        written = pwrite(descriptor, data, at)
        sizes.append(path.stat().st_size)
        return written

    def forbidden(descriptor: int, size: int) -> None:
        raise AssertionError("it was made shorter")

    monkeypatch.setattr(os, "pwrite", tapped)
    monkeypatch.setattr(os, "ftruncate", forbidden)
    FILES.wipe(path, 10)
    assert path.read_bytes() == b"x" * 10 + bytes(99_990) and set(sizes) == {100_000}


def test_names_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of directories that were made, and of files that were written with `sync`, the first time.
    Fault: Names of new directories, of `abort` and of removed files were not synced, so old files came back."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    FILES.make_directory(tmp_path / "a" / "b")
    assert set(synced) == {str(tmp_path), str(tmp_path / "a")}
    synced.clear()
    FILES.make_directory(tmp_path / "a" / "b")
    assert synced == []
    for expected in ([str(tmp_path / "f"), str(tmp_path)], [str(tmp_path / "f")]):
        FILES.write(tmp_path / "f", 0, b"x", sync=True)
        assert synced == expected
        synced.clear()
    FILES.sync_directory(tmp_path)
    assert synced == [str(tmp_path)]


def test_a_link_that_leads_nowhere_hides_nothing(tmp_path: Path) -> None:
    """A directory with one would be taken for an empty one, and a log in it for no log at all.
    Fault: A dangling link made its directory look empty, and the broker started as if it had no log."""
    (tmp_path / file_name(0)).write_bytes(b"12345678")
    (tmp_path / "lost").symlink_to("nowhere")
    assert [info.name for info in DiskFiles().entries(tmp_path)] == [file_name(0), "lost"]
    with pytest.raises(StoreError, match="lost"):
        numbered_files(DiskFiles(), tmp_path, 8)


def test_a_last_file_of_0_bytes_is_removed(tmp_path: Path) -> None:
    """An empty file that others follow is damage.
    Fault: A store whose Java broker was killed while it made a file could not be opened."""
    (tmp_path / file_name(0)).write_bytes(b"12345678")
    (tmp_path / file_name(8)).touch()
    assert numbered_files(FILES, tmp_path, 8) == [0] and not (tmp_path / file_name(8)).exists()
    (tmp_path / file_name(0)).write_bytes(b"")
    (tmp_path / file_name(8)).write_bytes(b"12345678")
    with pytest.raises(StoreError, match="has 0 bytes"):
        numbered_files(FILES, tmp_path, 8)
