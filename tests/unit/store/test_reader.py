"""A directory read from outside: selections, what goes away meanwhile, and the way past damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.record import StoredRecord
from rocketpy.store.files import file_name
from rocketpy.store.inspection.reader import DEFAULT_SLOTS, Damage, StoreReader, guess_slots, next_record
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import Put, StoreWriter


@pytest.fixture
def puts(writer: StoreWriter) -> list[Put]:
    return [writer.put("T", i % 3, b"body %d" % i, b"KEYS\x01k%d" % i) for i in range(200)]


@pytest.fixture
def reader(puts: list[Put], opened: OpenedStore) -> StoreReader:
    return StoreReader(opened.paths.root)


def test_records_from_an_offset_on(reader: StoreReader, puts: list[Put]) -> None:
    offsets = [put.phy_offset for put in puts]
    assert [record.phy_offset for record in reader.records()] == offsets
    assert [record.phy_offset for record in reader.records(offsets[150])] == offsets[150:]
    assert [record.phy_offset for record in reader.records(offsets[150] + 1)] == offsets[151:]
    assert list(reader.records(1 << 40)) == []


def test_one_record_by_its_offset(reader: StoreReader, puts: list[Put]) -> None:
    record = reader.record_at(puts[7].phy_offset)
    assert record is not None and record.queue_offset == puts[7].queue_offset
    assert reader.record_at(1 << 40) is None
    with pytest.raises(RecordCorrupt):
        reader.record_at(puts[7].phy_offset + 1)


def test_the_walk_goes_on_behind_damage(reader: StoreReader, puts: list[Put], opened: OpenedStore) -> None:
    first, last = puts[10], max((put for put in puts if put.phy_offset < 16_384), key=lambda put: put.phy_offset)
    path = opened.paths.commitlog / file_name(0)
    with path.open("r+b") as file:
        for put in (first, last):
            file.seek(put.phy_offset + 4)
            file.write(b"\0")
    found = list(reader.walk())
    damage = [part for part in found if isinstance(part, Damage)]
    assert [(part.phy_offset, part.is_last) for part in damage] == [(first.phy_offset, False), (last.phy_offset, True)]
    assert damage[0].size == first.size and "magic" in damage[0].reason
    assert [part.phy_offset for part in found if isinstance(part, StoredRecord)] == [
        put.phy_offset for put in puts if put not in (first, last)
    ]
    with pytest.raises(RecordCorrupt, match=f"record at {first.phy_offset}"):
        list(reader.records())


def test_a_record_in_a_body_is_none(reader: StoreReader, puts: list[Put], opened: OpenedStore) -> None:
    """Its offset is not where it lies."""
    with reader.image(opened.paths.commitlog / file_name(0)) as image:
        assert image is not None
        assert next_record(image, 0, 0) == puts[1].phy_offset
        assert next_record(image, 0, 5) == len(image)


def test_queues_and_units(reader: StoreReader, puts: list[Put]) -> None:
    assert [queue.name for queue in reader.queues()] == ["T/0", "T/1", "T/2"]
    (queue,) = reader.queues("T", 1)
    units = list(reader.units(queue))
    assert [offset for offset, _ in units] == list(range(67))
    assert [unit.phy_offset for _, unit in units] == [put.phy_offset for put in puts[1::3]]
    assert list(reader.units(queue, 60)) == units[60:]
    assert list(reader.queues("other")) == list(reader.queues("T", 9)) == []


def test_queues_are_in_the_order_of_their_numbers(reader: StoreReader, opened: OpenedStore) -> None:
    for name in ("10", "9", "x", "٣"):
        (opened.paths.consumequeue / "T" / name).mkdir()
    assert [queue.queue_id for queue in reader.queues("T")] == [0, 1, 2, 9, 10]


def test_index_entries(reader: StoreReader) -> None:
    (path, header), *_ = reader.index_headers()
    assert header is not None and header.index_count == 201
    entries = list(reader.index_entries(path, 100))
    assert [entry.number for entry in entries] == list(range(1, 201))
    assert all(entry.previous < entry.number for entry in entries)


def test_slots_are_told_by_the_size_where_they_can_be() -> None:
    assert guess_slots(420_000_040) == DEFAULT_SLOTS
    assert guess_slots(40 + 4 * 100 + 20 * 400) == 100
    assert guess_slots(40 + 4 * 100 + 20 * 401) is None and guess_slots(40) is None


def test_files_that_go_meanwhile_are_passed_over(reader: StoreReader, opened: OpenedStore, puts: list[Put]) -> None:
    walk = reader.walk()
    next(walk)
    (opened.paths.commitlog / file_name(16_384)).unlink()
    assert sum(1 for _ in walk) < len(puts) - 1
    with reader.image(opened.paths.root / "none") as image:
        assert image is None


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a directory"):
        StoreReader(tmp_path / "none")
    with pytest.raises(StoreError, match="is no store"):
        StoreReader(tmp_path)
    (tmp_path / "file").write_bytes(struct.pack(">q", 1))
    with pytest.raises(StoreError, match="not a directory"):
        StoreReader(tmp_path / "file")
