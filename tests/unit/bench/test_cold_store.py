"""A store leaves memory, and what of it is in memory is known; what the kernel counts of reads is per read and byte."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from rocketpy.bench import cold, proc
from tests.support.page_cache import is_in_memory

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """On a disk: the files of a file system in memory stay there."""
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(os.urandom(MIB))
    with (log / "00000000001073741824").open("wb") as sparse:
        sparse.truncate(4 * MIB)  # allocated, nothing written
    return log.parent


def test_files_that_hold_nothing_are_left_out(store: Path) -> None:
    assert [path.name for path in cold.files(store)] == ["00000000000000000000"]


def test_a_store_leaves_memory_and_comes_back(store: Path) -> None:
    (path,) = cold.files(store)
    path.read_bytes()
    assert cold.cached_share(store) == 1
    cold.drop(store)
    assert cold.cached_share(store) == (1 if is_in_memory(store) else 0)
    path.read_bytes()
    assert cold.cached_share(store) == 1


def test_pages_that_somebody_maps_stay(store: Path) -> None:
    """So a running broker must be stopped first."""
    (path,) = cold.files(store)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:1] and sum(mapped[at] for at in range(0, MIB, 4096)) >= 0
        cold.drop(store)
        assert cold.cached_share(store) == 1


def test_raw_reads_are_counted(store: Path) -> None:
    assert cold.raw_reads_per_s(store / "commitlog", seconds=0.5) >= (0 if is_in_memory(store) else 2)


def test_no_raw_reads_of_nothing(tmp_path: Path) -> None:
    assert cold.raw_reads_per_s(tmp_path, seconds=0.05) == 0


def test_figures_are_per_read_and_per_byte() -> None:
    assert cold.figures((1_000, 5), (9_192, 8), reads=2, delivered_bytes=8_192) == {
        "disk_bytes_per_read": 4096,
        "disk_bytes_per_byte": 1.0,
        "disk_waits_per_read": 1.5,
    }
    assert set(cold.figures((0, 0), (0, 0), 0, 0).values()) == {0}


def test_what_this_process_reads_from_a_disk_is_counted(store: Path) -> None:
    (path,) = cold.files(store)
    cold.drop(store)
    before = proc.read_bytes([os.getpid()]), proc.major_faults([os.getpid()])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[at] for at in range(0, MIB, 4096)) >= 0
    after = proc.read_bytes([os.getpid()]), proc.major_faults([os.getpid()])
    if not is_in_memory(store):
        assert after[0] - before[0] >= MIB and after[1] > before[1]
