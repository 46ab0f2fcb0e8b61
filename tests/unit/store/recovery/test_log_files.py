"""The files of the log at recovery: which of them are the log, where a scan starts and ends, and the cut."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.recovery import log_files
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.log_files import NOTHING_MISSING, Durable, LogFiles
from tests.support.log_images import BORN_MS, Image, image_of, record

SIZE = 4096
MIB = 1 << 20


class Noted(DiskFiles):
    """Counts the directories that are synced, and the files that are written."""

    synced = wiped = 0

    def sync_directory(self, directory: Path) -> None:
        self.synced += 1
        super().sync_directory(directory)

    def wipe(self, path: Path, position: int) -> None:
        self.wiped += 1
        super().wipe(path, position)


def write(root: Path, number: int, count: int, *, is_last: bool = False) -> Image:
    """A file of the log with so many records, of queue `number`, stored at BORN_MS + 10 * number."""
    records = [
        record("T", bytes([number, i]) * 50, queue_id=number, store_timestamp_ms=BORN_MS + 10 * number)
        for i in range(count)
    ]
    image = image_of(records, number * SIZE, file_size=None if is_last else SIZE)
    (root / file_name(number * SIZE)).write_bytes(image.data.ljust(SIZE, b"\0"))
    return image


def log_of(root: Path, numbers: Sequence[int], *, empty: Sequence[int] = ()) -> LogFiles:
    for number in numbers:
        write(root, number, 10)
    for number in empty:
        (root / file_name(number * SIZE)).write_bytes(bytes(SIZE))
    return LogFiles(root, Noted(), SIZE)


def numbers_of(root: Path) -> list[int]:
    return sorted(int(path.name) // SIZE for path in root.iterdir())


def test_a_name_between_two_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / file_name(SIZE + 1)).write_bytes(bytes(SIZE))
    with pytest.raises(StoreError, match="does not begin at a multiple of 4096 bytes"):
        LogFiles(tmp_path, DiskFiles(), SIZE)


@pytest.mark.parametrize(
    ("phy_offset", "begin"),
    [
        (SIZE, 1),
        (3 * SIZE, 1),
        (5 * SIZE, 5),
        (7 * SIZE, 5),
        (0, None),
        (SIZE - 1, None),
        (3 * SIZE + 1, None),
        (8 * SIZE, None),
    ],
)
def test_the_part_that_contains_an_offset(tmp_path: Path, phy_offset: int, begin: int | None) -> None:
    """Or after whose last file it comes."""
    log = log_of(tmp_path, [1, 2, 5, 6])
    assert log.begin(-1) == 5 * SIZE, "the newest part, if nothing else is known"
    assert log.take_run(phy_offset) is (begin is not None)
    if begin is not None:
        assert log.begin(-1) == begin * SIZE


def test_a_log_without_files_contains_0(tmp_path: Path) -> None:
    log = log_of(tmp_path, [])
    assert log.take_run(0) and not log.take_run(1)
    assert (log.begin(7), log.start_after_clean_exit(), log.newest_stored_by(BORN_MS)) == (7, 0, 0)
    assert log.first_store_timestamp_ms(0) == 0


@pytest.mark.parametrize(("flushed", "begin"), [(50, 5), (49, 2), (20, 2), (19, 0), (-1, 0)])
def test_the_newest_part_that_was_flushed(tmp_path: Path, flushed: int, begin: int) -> None:
    log = log_of(tmp_path, [0, 2, 3, 5])
    log.take_flushed_run(BORN_MS + flushed)
    assert log.begin(-1) == begin * SIZE


def test_a_part_without_records_was_not_flushed(tmp_path: Path) -> None:
    log = log_of(tmp_path, [0], empty=[2])
    log.take_flushed_run(BORN_MS)
    assert log.begin(-1) == 0


@pytest.mark.parametrize(
    ("numbers", "empty", "start"),
    [([0, 1], [], 0), ([0, 1, 2, 3], [], 1), ([0, 1, 2], [3, 4], 2), ([0, 1], [2, 3, 4, 5], 1), ([], [0, 1, 2, 3], 0)],
)
def test_a_scan_after_a_clean_stop_begins_in_the_third_last_file(
    tmp_path: Path, numbers: list[int], empty: list[int], start: int
) -> None:
    assert log_of(tmp_path, numbers, empty=empty).start_after_clean_exit() == start * SIZE


@pytest.mark.parametrize(("limit", "start"), [(30, 3), (29, 2), (9, 0), (-1, 0)])
def test_the_newest_file_that_was_stored_by_a_time(tmp_path: Path, limit: int, start: int) -> None:
    log = log_of(tmp_path, [0, 1, 2, 3], empty=[4])
    assert log.newest_stored_by(BORN_MS + limit) == start * SIZE
    assert log.first_store_timestamp_ms(3 * SIZE + 77) == BORN_MS + 30 and log.first_store_timestamp_ms(9 * SIZE) == 0


@pytest.mark.parametrize("step", [1, SIZE, log_files.SCAN_STEP])
def test_a_scan_in_steps_finds_the_same(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "SCAN_STEP", step)
    log_of(tmp_path, [0, 1])
    last = write(tmp_path, 2, 3, is_last=True)
    log = LogFiles(tmp_path, DiskFiles(), SIZE)
    control = ControlBlock(tmp_path.parent / f"{tmp_path.name}-control", SIZE)
    queue = control.add_queue(b"T", 0)
    queue.max_phy_offset, queue.next_offset = SIZE, 10  # queue 1 lacks all, and queue 2
    found = log.scan(0, queues=control)
    assert (found.end, found.records) == (2 * SIZE + len(last.data), 23)
    assert (found.missing, found.gap, found.last_store_timestamp_ms) == (SIZE, NOTHING_MISSING, BORN_MS + 20)
    assert log.scan(found.end).last_store_timestamp_ms == 0 and log.scan_s > 0
    control.close()


@pytest.mark.parametrize("step", [1, log_files.SCAN_STEP])
def test_the_first_gap_of_all_steps_is_kept(tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "SCAN_STEP", step)
    log_of(tmp_path, [0, 2])
    image = write(tmp_path, 1, 10)
    log = LogFiles(tmp_path, DiskFiles(), SIZE)
    control = ControlBlock(tmp_path.parent / f"{tmp_path.name}-control", SIZE)
    second = SIZE + image.records[1]  # the queue lacks the record before it
    found = log.scan(second, queues=control)
    assert (found.missing, found.gap, found.end) == (second, second, 3 * SIZE)
    control.close()


def test_a_scan_of_a_log_without_files(tmp_path: Path) -> None:
    found = log_of(tmp_path, []).scan(0)
    assert (found.end, found.records, found.missing) == (0, 0, NOTHING_MISSING)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    log = log_of(tmp_path, [0])
    (tmp_path / file_name(0)).unlink()
    (tmp_path / file_name(0)).mkdir()  # no directory can be mapped
    for read in (lambda: log.scan(0), lambda: log.is_boundary(1)):
        with pytest.raises(StoreError, match="cannot read the log in"):
            read()


def test_a_scan_ends_at_the_first_record_that_may_be_torn(tmp_path: Path) -> None:
    image = write(tmp_path, 0, 3, is_last=True)
    torn = image_of([record("T", b"x", properties=b"KEYS\x01k\x00")], len(image.data))
    (tmp_path / file_name(0)).write_bytes((image.data + torn.data).ljust(SIZE, b"\0"))
    log = LogFiles(tmp_path, DiskFiles(), SIZE)
    end = len(image.data) + len(torn.data)
    assert log.scan(0, flags=lib.RP_SCAN_CRC).end == end
    assert log.scan(0, durable=Durable(len(image.data), 0)).end == len(image.data)
    assert log.scan(0, durable=Durable(end, 0)).end == end
    assert log.scan(0, durable=Durable(0, BORN_MS + 1)).end == end


def test_a_long_scan_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_files, "PROGRESS_INTERVAL_S", 0)
    monkeypatch.setattr(log_files, "SCAN_STEP", MIB)
    caplog.set_level(logging.INFO)
    for number in (0, 1):
        (tmp_path / file_name(number * MIB)).write_bytes(image_of([record()], number * MIB, file_size=MIB).data)
    LogFiles(tmp_path, DiskFiles(), MIB).scan(0)
    said = [line.partition(",")[0] for line in caplog.messages]
    assert said == [f"progress of scanning the log: {done} of 2 MiB" for done in (1, 2, 2)]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_boundaries_are_ends_of_records_and_of_files(tmp_path: Path, is_damaged: bool) -> None:
    """Also after a record whose body is damaged: the log goes on behind it."""
    log_of(tmp_path, [0])
    image = write(tmp_path, 1, 3, is_last=True)
    if is_damaged:
        file = tmp_path / file_name(SIZE)
        file.write_bytes(file.read_bytes().replace(bytes([1, 0]) * 50, bytes(100)))
    log = LogFiles(tmp_path, DiskFiles(), SIZE)
    ends = {SIZE + at for at in image.records} | {SIZE + len(image.data)}
    assert {at for at in range(SIZE, SIZE + len(image.data) + 9) if log.is_boundary(at)} == ends
    assert log.scan(0).end == max(ends)


@pytest.mark.parametrize("clean", [False, True])
def test_an_empty_log_keeps_its_position_over_stops(config: MessageStoreConfig, clean: bool) -> None:
    """As after a power failure of which nothing was certain, behind files that were cleaned.
    Fault: A clean stop removed the only file of an empty log, and the next start began at 0."""
    start = 8 * config.mapped_file_size_commit_log
    log = Path(config.store_path_root_dir) / "commitlog"
    log.mkdir(parents=True)
    for number in (8, 9):  # the second one was pre-allocated
        path = log / file_name(number * config.mapped_file_size_commit_log)
        path.write_bytes(bytes(config.mapped_file_size_commit_log))
    for _ in range(3):
        opened = open_store(config)
        assert (opened.control.min_phy_offset, opened.control.published_phy_offset) == (start, start)
        close_store(opened, clean=clean)
        assert (log / file_name(start)).exists()


def test_a_cut_at_the_begin_of_the_only_file_keeps_its_name(tmp_path: Path) -> None:
    """Else a log whose earlier files were cleaned would begin at 0 again.
    Fault: A power failure could take the only file of a log, which then began at 0 again."""
    log = log_of(tmp_path, [8, 9])
    log.cut(8 * SIZE)
    assert numbers_of(tmp_path) == [8] and log.begin(0) == 8 * SIZE
    assert (tmp_path / file_name(8 * SIZE)).read_bytes() == bytes(SIZE)
    log.cut(7 * SIZE)
    assert numbers_of(tmp_path) == []


@pytest.mark.parametrize(
    ("end", "left"),
    [(0, [0]), (1, [0]), (SIZE, [0]), (SIZE + 1, [0, 1]), (2 * SIZE, [0, 1]), (6 * SIZE, [0, 1, 2, 5])],
)
def test_a_cut_leaves_nothing_behind_the_end(tmp_path: Path, end: int, left: list[int]) -> None:
    """In no part of the log; the first file stays, without content."""
    files = Noted()
    log_of(tmp_path, [0, 1, 2, 5, 6])
    before = {number: (tmp_path / file_name(number * SIZE)).read_bytes() for number in left}
    log = LogFiles(tmp_path, files, SIZE)
    log.take_run(6 * SIZE if end > 4 * SIZE else 0)
    log.cut(end)
    assert numbers_of(tmp_path) == left and files.synced == 1
    for number in left:
        kept = max(0, end - number * SIZE)
        after = (tmp_path / file_name(number * SIZE)).read_bytes()
        assert after == before[number][:kept].ljust(SIZE, b"\0")
    wiped = files.wiped
    log.cut(end)
    assert files.wiped == wiped == int(end % SIZE > 0 or end == 0), "zeros are not written again"
