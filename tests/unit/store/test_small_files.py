"""checkpoint, delay levels, allocation, disk ratio, file names: the small parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import ConfigError, DiskFull, StoreError
from rocketpy.store.allocate import allocate_ahead
from rocketpy.store.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from rocketpy.store.delay_level import parse_delay_levels
from rocketpy.store.disk import disk_ratio
from rocketpy.store.files import DiskFiles, DiskUsage, file_name, numbered_files
from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.unit import rounded_file_size
from tests.support.store_writer import StoreWriter

FILES = DiskFiles()


def test_checkpoint_bytes(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_checkpoint(FILES, path) == StoreCheckpoint()
    checkpoint = StoreCheckpoint(1_700_000_000_123, 1_700_000_000_120, 1_699_999_000_000)
    write_checkpoint(FILES, path, checkpoint)
    assert path.read_bytes()[:24].hex() == "0000018bcfe5687b0000018bcfe568780000018bcfd625c0"
    assert path.stat().st_size == 4096 and read_checkpoint(FILES, path) == checkpoint


def test_checkpoint_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(24) + b"x" * 16 + bytes(4056))
    write_checkpoint(FILES, path, StoreCheckpoint(1, 2, 3))
    assert path.read_bytes()[24:40] == b"x" * 16 and path.stat().st_size == 4096


def test_delay_levels() -> None:
    levels = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    assert len(levels) == 18 and levels[2] == 10_000 and levels[17] == 7_200_000
    assert parse_delay_levels("2d") == [172_800_000]


@pytest.mark.parametrize("text", ["1", "s", "1x", "-1s", "1s two"])
def test_delay_levels_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)


def test_allocation_waits_until_the_file_is_mostly_full(writer: StoreWriter, opened: OpenedStore) -> None:
    directory = opened.paths.commitlog
    assert allocate_ahead(opened.control, directory) == 0  # the very first
    writer.put(body=b"x" * 8_000)
    assert allocate_ahead(opened.control, directory) is None
    writer.put(body=b"x" * 2_000)
    assert allocate_ahead(opened.control, directory) == 16_384
    assert allocate_ahead(opened.control, directory) == 16_384  # found, not made again
    assert (directory / file_name(16_384)).stat().st_size == 16_384
    for _ in range(2):
        writer.put(body=b"x" * 7_000)
    assert len(list(directory.iterdir())) == 2


def test_allocation_that_cannot_be_is_an_error(opened: OpenedStore, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot make the next file"):
        allocate_ahead(opened.control, blocked)


@pytest.mark.parametrize(("free", "usable", "ratio"), [(500, 500, 0.5), (500, 495, 0.51), (0, 0, 1.0), (1000, 1000, 0)])
def test_disk_ratio_is_rounded_up(free: int, usable: int, ratio: float) -> None:
    class Disk(DiskFiles):
        def usage(self, path: Path) -> DiskUsage:
            return DiskUsage(1000, free, usable)

    assert disk_ratio(Disk(), Path("/")) == ratio


def test_disk_ratio_of_a_missing_path(tmp_path: Path) -> None:
    assert disk_ratio(FILES, tmp_path / "none") == -1


def test_queue_file_sizes_are_whole_units() -> None:
    assert [rounded_file_size(size) for size in (1, 20, 21, 6_000_000)] == [20, 20, 40, 6_000_000]


def test_wipe_and_is_zero(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5_000 + bytes(200_000))
    assert FILES.is_zero(path, 5_000) and not FILES.is_zero(path, 4_999) and FILES.is_zero(path, 205_000)
    FILES.wipe(path, 10)
    assert path.read_bytes() == b"x" * 10 + bytes(204_990)


def test_errors_are_one_line_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"cannot read {tmp_path / 'none'}: No such file"):
        FILES.read(tmp_path / "none", 0, 1)
    with pytest.raises(DiskFull, match="cannot write /dev/full: No space left"):
        FILES.write(Path("/dev/full"), 0, b"x")
    (tmp_path / "directory").mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        numbered_files(FILES, tmp_path, 10)
