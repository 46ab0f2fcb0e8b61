"""Queues found from their files alone: some files between others have pre-blank units only."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT
from rocketpy.store.recovery.queue_loading import LoadedQueue, QueueFiles

UNITS, SIZE = 50, 100  # units of a file, bytes of a record
FILE_SIZE = UNITS * CQ_UNIT.size
LOG_END = 1 << 40


def unit(number: int) -> bytes:
    return CQ_UNIT.pack(number * SIZE, SIZE, 0)


def write(directory: Path, number: int, units: bytes) -> None:
    (directory / file_name(number * FILE_SIZE)).write_bytes(units.ljust(FILE_SIZE, b"\0"))


def load(directory: Path, phy_limit: int = LOG_END) -> LoadedQueue | None:
    return QueueFiles(DiskFiles(), directory, FILE_SIZE).load(phy_limit, 0)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """60 units, then more than three files of blanks, then one more unit."""
    directory = tmp_path / "T" / "0"
    directory.mkdir(parents=True)
    write(directory, 0, b"".join(map(unit, range(UNITS))))
    write(directory, 1, b"".join(map(unit, range(UNITS, 60))) + BLANK_UNIT * 40)
    for number in range(2, 6):
        write(directory, number, BLANK_UNIT * UNITS)
    write(directory, 6, BLANK_UNIT * 4 + unit(304))
    return directory


def test_files_of_blanks_between_units_belong_to_the_queue(queue: Path) -> None:
    assert load(queue) == LoadedQueue(0, 305, 305 * SIZE)
    assert len(list(queue.iterdir())) == 7


def test_files_of_blanks_alone_hide_no_unit(queue: Path) -> None:
    """The last unit was of a record that a power failure took."""
    assert load(queue, 304 * SIZE) == LoadedQueue(0, 100, 60 * SIZE)
    assert len(list(queue.iterdir())) == 2, "a Java broker would count the blanks at the end"
