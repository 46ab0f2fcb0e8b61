"""Queues found from their files alone: some files between others have pre-blank units only."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT
from rocketpy.store.recovery import queue_loading
from rocketpy.store.recovery.queue_loading import LoadedQueue, QueueFiles, load_queues

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


@pytest.mark.parametrize("read", [1, 7, UNITS])
def test_a_file_is_read_in_pieces(queue: Path, monkeypatch: pytest.MonkeyPatch, read: int) -> None:
    monkeypatch.setattr(queue_loading, "READ_UNITS_MIN", read)
    monkeypatch.setattr(queue_loading, "READ_UNITS_MAX", 2 * read)
    assert load(queue) == LoadedQueue(0, 305, 305 * SIZE)


def test_units_after_a_file_that_is_not_full_are_old_ones(queue: Path) -> None:
    write(queue, 1, b"".join(map(unit, range(UNITS, 60))))
    assert load(queue) == LoadedQueue(0, 60, 60 * SIZE)
    assert len(list(queue.iterdir())) == 2


@pytest.mark.parametrize(
    ("files", "max_offset"),
    [
        ([unit(0)], 1),
        ([unit(0), b""], 1),
        ([BLANK_UNIT * UNITS, unit(50) + BLANK_UNIT * (UNITS - 1), b""], 100),
        ([unit(0) + BLANK_UNIT * (UNITS - 1), BLANK_UNIT * UNITS, BLANK_UNIT * UNITS, b""], 50),
    ],
    ids=["one file", "an empty one", "blanks first", "blanks last"],
)
def test_the_end_of_few_files_is_found(tmp_path: Path, files: list[bytes], max_offset: int) -> None:
    for number, units in enumerate(files):
        write(tmp_path, number, units)
    loaded = load(tmp_path)
    assert loaded is not None and loaded.max_offset == max_offset


@pytest.mark.parametrize(("missing", "left"), [(4, [5, 6]), (5, [6])])
def test_files_before_a_missing_one_go(queue: Path, missing: int, left: list[int]) -> None:
    """Cleaning was removing them when the broker ended."""
    (queue / file_name(missing * FILE_SIZE)).unlink()
    assert load(queue) == LoadedQueue(304, 305, 305 * SIZE), "what is left before the last unit is blank"
    assert sorted(path.name for path in queue.iterdir()) == [file_name(number * FILE_SIZE) for number in left]


class Noted(DiskFiles):
    """Notes the directories that are synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_directory(self, directory: Path) -> None:
        self.synced.append(directory.name)
        super().sync_directory(directory)


@pytest.mark.parametrize(("count", "kept"), [(20, 1), (55, 2)])
def test_what_is_behind_the_end_is_zero_and_stays_away(queue: Path, count: int, kept: int) -> None:
    """Old units would come back with the next one: as its successors, and after a power failure as files."""
    files = Noted()
    assert QueueFiles(files, queue, FILE_SIZE).load(count * SIZE, 0) == LoadedQueue(0, count, count * SIZE)
    units = b"".join(path.read_bytes() for path in sorted(queue.iterdir()))
    assert units == b"".join(map(unit, range(count))).ljust(kept * FILE_SIZE, b"\0")
    assert files.synced == ["0"]


def test_a_queue_without_a_unit_goes_with_its_directory(queue: Path) -> None:
    files = Noted()
    assert QueueFiles(files, queue, FILE_SIZE).load(0, 0) is None
    assert not queue.exists() and files.synced == ["T"]


def test_a_queue_that_is_whole_is_not_touched(queue: Path) -> None:
    files = Noted()
    before = {path.name: path.stat().st_mtime_ns for path in queue.iterdir()}
    QueueFiles(files, queue, FILE_SIZE).load(LOG_END, 0)
    assert {path.name: path.stat().st_mtime_ns for path in queue.iterdir()} == before and files.synced == []


def test_a_queue_without_a_unit_goes_with_its_extension(queue: Path) -> None:
    root = queue.parent.parent
    extension = root.with_name(f"{root.name}_ext") / "T" / "0"
    extension.mkdir(parents=True)
    (extension / file_name(0)).write_bytes(b"x")
    control = ControlBlock(root.parent / f"{root.name}-control", 1 << 30)
    assert load_queues(DiskFiles(), root, FILE_SIZE, control, phy_limit=0, log_min_phy_offset=0) == 0
    assert list(control.queues()) == [] and not queue.exists() and not extension.exists()
    control.close()


def test_what_is_no_queue_is_left_alone(queue: Path) -> None:
    """An operator's files, and directories whose names are no numbers."""
    root = queue.parent.parent
    (root / "notes").write_text("x")
    (root / "T" / "1").write_text("x")
    for name in ("copy of 0", "\u0661", "-1"):
        (root / "T" / name).mkdir()
    control = ControlBlock(root.parent / f"{root.name}-control", 1 << 30)
    reached = load_queues(DiskFiles(), root, FILE_SIZE, control, phy_limit=LOG_END, log_min_phy_offset=7 * SIZE)
    assert reached == 305 * SIZE
    (state,) = control.queues()
    assert (state.topic, state.queue_id, state.min_offset, state.max_offset, state.next_offset) == ("T", 0, 7, 305, 305)
    assert (root / "notes").exists() and len(list((root / "T").iterdir())) == 5
    control.close()
