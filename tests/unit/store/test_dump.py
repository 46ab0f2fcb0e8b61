"""A store's parts as text and as JSON values: one line each, everything named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketpy.store.formats.unit import BLANK_SIZE, ConsumeQueueUnit
from rocketpy.store.inspection.dump import (
    StoreDump,
    damage_fields,
    describe_damage,
    describe_entry,
    describe_record,
    describe_unit,
    entry_fields,
    header_line,
    record_fields,
    state_fields,
    unit_fields,
)
from rocketpy.store.inspection.reader import Damage
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter


@pytest.fixture
def root(writer: StoreWriter, opened: OpenedStore) -> Path:
    for i in range(150):
        writer.put("T", i % 2, b"body %d" % i, b"TAGS\x01A\x02UNIQ_KEY\x01u%d" % i)
    return opened.paths.root


def test_a_record_is_one_line(root: Path) -> None:
    record = list(StoreDump(root).records())[3]
    line = describe_record(record)
    assert "T/1@1" in line and "UNIQ_KEY=u3" in line and "\n" not in line
    fields = record_fields(record)
    assert fields["bornHost"] == "192.168.1.10:50000" and fields["properties"] == {"TAGS": "A", "UNIQ_KEY": "u3"}
    assert json.loads(json.dumps(fields)) == fields


def test_damage_and_units_and_entries_are_lines(root: Path) -> None:
    store = StoreDump(root)
    damage = Damage(5, 7, "magic is 0", is_last=True)
    assert "DAMAGED: magic is 0" in describe_damage(damage) and damage_fields(damage)["damage"] == "magic is 0"
    assert describe_unit(3, ConsumeQueueUnit(0, BLANK_SIZE, 0)).split() == ["3", "blank"]
    queue = next(store.queues())
    offset, unit = next(iter(store.units(queue)))
    assert "size" in describe_unit(offset, unit)
    assert unit_fields(queue, offset, unit)["tagsCode"] == 65
    path, header = store.index_headers()[0]
    assert header is not None and "150 units" in header_line(path, header)
    entry = next(store.index_entries(path, 100))
    assert f"hash {entry.key_hash:>10}" in describe_entry(entry)
    assert entry_fields(path, entry)["number"] == 1


def test_stats(root: Path) -> None:
    stats = StoreDump(root).stats()
    assert (stats.records, stats.queues, stats.units, stats.index_keys) == (150, 2, 150, 150)
    assert stats.is_open and stats.log_begin == 0 and stats.log_end > 16_384
    assert stats.first_store_timestamp_ms == stats.last_store_timestamp_ms == 1_700_000_000_000
    assert [(topic.topic, topic.queues, topic.records) for topic in stats.topics] == [("T", 2, 150)]
    assert stats.topics[0].bytes == sum(record.size for record in StoreDump(root).records())


def test_files_and_state_name_everything(root: Path) -> None:
    """Holds: store, files of the directory."""
    store = StoreDump(root)
    names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    assert "abort" in names and "control" in names and f"commitlog/{0:020d}" in names
    fields = state_fields(store.state())
    assert fields["abort"] is True and fields["control"]["queue_count"] == 2 and fields["checkpoint"] is None
