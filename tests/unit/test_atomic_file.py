"""The tmp, bak, rename scheme: whole at every instant, and the backup is used."""

import json
from pathlib import Path

import pytest

from rocketpy.atomic_file import read_with_backup, write_atomically
from tests.support.synced import record_syncs


def test_write_keeps_the_old_content_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "new" / "f.json"
    write_atomically(path, b"1")
    assert not Path(f"{path}.bak").exists()
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2"
    assert Path(f"{path}.bak").read_bytes() == b"1"
    assert not Path(f"{path}.tmp").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    write_atomically(path, b"1")

    def fail(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"2")
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize(
    ("main", "backup", "value"),
    [(b"1", b"2", 1), (b"", b"2", 2), (b"{", b"2", 2), (None, b"2", 2), (b"1", b"{", 1), (None, None, None)],
)
def test_reading(tmp_path: Path, main: bytes | None, backup: bytes | None, value: int | None) -> None:
    path = tmp_path / "f.json"
    for name, data in ((path, main), (Path(f"{path}.bak"), backup)):
        if data is not None:
            name.write_bytes(data)
    assert read_with_backup(path, json.loads) == value


@pytest.mark.parametrize(("main", "backup"), [(b"{", None), (b"{", b"["), (b"", None), (None, b"{")])
def test_damage_is_not_a_first_start(tmp_path: Path, main: bytes | None, backup: bytes | None) -> None:
    path = tmp_path / "f.json"
    for name, data in ((path, main), (Path(f"{path}.bak"), backup)):
        if data is not None:
            name.write_bytes(data)
    with pytest.raises(ValueError, match=r"f\.json"):
        read_with_backup(path, json.loads)


def test_new_directories_are_on_the_disk_with_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The directory of the first topics.json was not synced before a new topic was answered."""
    synced = record_syncs(monkeypatch)
    write_atomically(tmp_path / "a" / "b" / "f.json", b"1")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_the_mode_is_that_of_the_caller_whatever_was_left(tmp_path: Path) -> None:
    path = tmp_path / "secrets.yml"
    Path(f"{path}.tmp").write_text("left by a crash")
    Path(f"{path}.tmp").chmod(0o666)
    write_atomically(path, b"1", keep_old=False, mode=0o640)
    assert path.read_bytes() == b"1" and path.stat().st_mode & 0o777 == 0o640
    write_atomically(path, b"2")
    assert path.stat().st_mode & 0o111 == 0 and path.stat().st_mode & 0o400
