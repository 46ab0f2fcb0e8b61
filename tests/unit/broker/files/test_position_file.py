"""The two slots of topics.position."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy.broker.files.position_file import FILE_BYTES, SLOT_BYTES, PositionFile, Slot, TableImage

TABLE, OTHER = TableImage.of([b"{", b"}"]), TableImage.of([b"{ }"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "topics.position"


def test_the_last_write_counts_and_speaks_of_its_table_alone(path: Path) -> None:
    slots = PositionFile(path)
    assert slots.position_of(TABLE) is None
    for position in (7, 900, 30):  # lowered: the log was cut
        slots.write(TABLE, position, sync=False)
        assert PositionFile(path).position_of(TABLE) == position
    assert PositionFile(path).position_of(OTHER) is None
    slots.write(OTHER, 31, sync=True)
    assert PositionFile(path).position_of(TABLE) is None and PositionFile(path).position_of(OTHER) == 31


def test_its_bytes(path: Path) -> None:
    PositionFile(path).write(TABLE, 0x0102, sync=True)
    data = path.read_bytes()
    assert len(data) == FILE_BYTES and not any(data[:SLOT_BYTES])
    expected = "524b5450 0000000000000001 0000000000000002 a3a6bf43 0000000000000102"
    assert data[SLOT_BYTES : SLOT_BYTES + 32].hex() == expected.replace(" ", "")
    assert Slot.decode(data[SLOT_BYTES:]) == Slot(1, TABLE, 0x0102)


@pytest.mark.parametrize("torn_at", range(0, 36, 5))
def test_a_torn_write_takes_the_older_slot(path: Path, torn_at: int) -> None:
    slots = PositionFile(path)
    slots.write(TABLE, 7, sync=True)
    slots.write(TABLE, 8, sync=True)
    whole = path.read_bytes()
    slots.write(TABLE, 9, sync=True)
    place = SLOT_BYTES  # of the write with number 3
    image = bytearray(path.read_bytes())
    image[place + torn_at : place + SLOT_BYTES] = b"\xff" * (SLOT_BYTES - torn_at)
    path.write_bytes(image)
    assert whole[:SLOT_BYTES] == bytes(image[:SLOT_BYTES])
    again = PositionFile(path)
    assert again.position_of(TABLE) == 8
    again.write(TABLE, 10, sync=False)
    assert PositionFile(path).position_of(TABLE) == 10


def test_writes_are_in_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So they need no space."""
    slots = PositionFile(path)
    slots.write(TABLE, 7, sync=True)
    inode = path.stat().st_ino
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    for position in range(8, 12):
        PositionFile(path).write(TABLE, position, sync=position == 9)
    assert path.stat().st_ino == inode and path.stat().st_size == FILE_BYTES and len(synced) == 1
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_that_cannot_be_made_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "fsync", full)
        path.parent.mkdir()
        PositionFile(path).write(TABLE, 7, sync=True)
    assert not list(path.parent.iterdir())
    path.write_bytes(b"short")  # somebody has cut it
    slots = PositionFile(path)
    assert slots.position_of(TABLE) is None
    slots.write(TABLE, 7, sync=True)
    assert slots.position_of(TABLE) == 7 and path.stat().st_size == FILE_BYTES


def test_a_file_names_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"{}")
    assert TableImage.of_file(tmp_path / "table") == TABLE
