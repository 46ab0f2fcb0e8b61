"""verify finds what is wrong and nothing else; stats count; a record is one readable line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.store.dump import StoreDump, describe_record
from rocketpy.store.files import file_name
from rocketpy.store.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter


@pytest.fixture
def root(writer: StoreWriter, opened: OpenedStore) -> Path:
    for i in range(150):
        writer.put("T", i % 2, b"body %d" % i, b"TAGS\x01A\x02UNIQ_KEY\x01u%d" % i)
    return opened.paths.root


def test_a_sound_store_has_no_problems(root: Path) -> None:
    report = StoreDump(root).verify()
    assert (report.records, report.units, report.problems) == (150, 150, [])


def test_stats(root: Path) -> None:
    stats = StoreDump(root).stats()
    assert (stats.records, stats.queues, stats.units, stats.index_keys) == (150, 2, 150, 150)
    assert stats.is_open and stats.log_begin == 0 and stats.log_end > 16_384
    assert stats.first_store_timestamp_ms == stats.last_store_timestamp_ms == 1_700_000_000_000


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes((byte[0] ^ 1,)))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda root: flip(root / "commitlog" / file_name(0), 90), "CRC"),
        (lambda root: flip(root / "commitlog" / file_name(0), 35), "says that it is at"),
        (lambda root: flip(root / "commitlog" / file_name(0), 27), "queue offset"),
        (lambda root: flip(root / "consumequeue/T/0" / file_name(0), 7), "record at"),
        (lambda root: flip(root / "consumequeue/T/0" / file_name(0), 11), "names the record"),
        (lambda root: flip(root / "consumequeue/T/0" / file_name(0), 19), "tags code"),
        (lambda root: flip(root / "consumequeue/T/0" / file_name(0), 3), "behind the log's end"),
        (lambda root: (root / "consumequeue/T/1" / file_name(1000)).unlink(), "ends at offset 50"),
    ],
)
def test_damage_is_found(root: Path, spoil: Callable[[Path], None], text: str) -> None:
    spoil(root)
    problems = StoreDump(root).verify().problems
    assert any(text in str(problem) for problem in problems), problems


def test_records_from_an_offset(root: Path) -> None:
    dump = StoreDump(root)
    records = list(dump.records())
    assert list(dump.records(records[100].phy_offset)) == records[100:]
    line = describe_record(records[3])
    assert "T/1@1" in line and "UNIQ_KEY=u3" in line and "\n" not in line


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a directory"):
        StoreDump(tmp_path / "none")
