"""From record to unit and key: golden bytes of store.md 15.5 and 15.6, and the rules of which record gets what."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.message.tags import string_hash
from rocketpy.store.files import file_name
from rocketpy.store.index_file import INDEX_UNIT, Index, index_files, limit_index, read_header
from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.message_store import MessageStore
from tests.support.store_writer import StoreWriter, small_config

NOW = 1_700_000_000_123


def unit_bytes(opened: OpenedStore, topic: str, queue_id: int, offset: int) -> bytes:
    path = opened.paths.consumequeue / topic / str(queue_id) / file_name(offset // 50 * 1000)
    assert path.stat().st_size == 1000
    return path.read_bytes()[offset % 50 * 20 :][:20]


@pytest.mark.parametrize("tag", ["TagA", "tag-with-a-very-long-name-0123456789", "标签", "polygenelubricants", "", "𝄞"])
def test_tags_code(writer: StoreWriter, opened: OpenedStore, tag: str) -> None:
    put = writer.put("T", 0, b"", f"TAGS\x01{tag}".encode())
    assert unit_bytes(opened, "T", 0, 0) == struct.pack(">qiq", 0, put.size, string_hash(tag) if tag else 0)


@pytest.mark.parametrize(
    ("delay", "code"),
    [("3", NOW + 10_000), ("99", NOW + 7_200_000), ("0", string_hash("A")), ("x", string_hash("A"))],
)
def test_units_of_the_delay_topic_hold_the_time_of_delivery(
    writer: StoreWriter, store: MessageStore, delay: str, code: int
) -> None:
    properties = f"DELAY\x01{delay}\x02TAGS\x01A".encode()
    writer.put("SCHEDULE_TOPIC_XXXX", 2, b"", properties, store_timestamp_ms=NOW)
    writer.put("Other", 2, b"", properties, store_timestamp_ms=NOW)
    assert store.consume_queue_units("SCHEDULE_TOPIC_XXXX", 2, 0, 1)[0].tags_code == code
    assert store.consume_queue_units("Other", 2, 0, 1)[0].tags_code == string_hash("A")


@pytest.mark.parametrize(("kind", "units", "keys"), [(0, 1, 1), (4, 0, 1), (8, 1, 1), (12, 0, 0)])
def test_transaction_kinds(writer: StoreWriter, store: MessageStore, kind: int, units: int, keys: int) -> None:
    writer.put("T", 0, b"", b"KEYS\x01k", sys_flag=kind)
    assert store.max_offset("T", 0) == units
    assert len(store.query_message("T", "k", 9, 0, 1 << 60).records) == keys


def test_a_queue_that_begins_in_the_middle_is_blank_before(writer: StoreWriter, opened: OpenedStore) -> None:
    writer.control.add_queue(b"T", 0).next_offset = 63
    put = writer.put("T", 0)
    directory = opened.paths.consumequeue / "T" / "0"
    assert [path.name for path in directory.iterdir()] == [file_name(1000)]
    assert {unit_bytes(opened, "T", 0, offset) for offset in range(50, 63)} == {
        bytes.fromhex("00000000000000007fffffff0000000000000000")
    }
    assert unit_bytes(opened, "T", 0, 63) == struct.pack(">qiq", 0, put.size, 0)
    assert not any((directory / file_name(1000)).read_bytes()[14 * 20 :])


def test_keys_are_split_at_single_spaces(writer: StoreWriter, store: MessageStore) -> None:
    writer.put("T", 0, b"", "UNIQ_KEY\x01u1\x02KEYS\x01 a  b 号码 ".encode())
    assert writer.dispatch.counts().keys == 4
    for key in ("u1", "a", "b", "号码"):
        assert len(store.query_message("T", key, 9, 0, 1 << 60).records) == 1
    assert store.query_message("T", "", 9, 0, 1 << 60).records == []


@pytest.fixture
def index_config(config: MessageStoreConfig) -> MessageStoreConfig:
    return small_config(Path(config.store_path_root_dir), max_hash_slot_num=10, max_index_num=5)


class TestIndexOfTheSpecification:
    """The small-file run of 15.6: 10 slots, 5 units, keys k0 k1 k2 in turn, 1.3 s apart, records of 119 bytes."""

    @pytest.fixture
    def config(self, index_config: MessageStoreConfig) -> MessageStoreConfig:
        return index_config

    def test_bytes(self, writer: StoreWriter, opened: OpenedStore, store: MessageStore) -> None:
        for i in range(5):
            properties = b"KEYS\x01k%d" % (i % 3)
            body = b"x" * (119 - 91 - len("TopicTest") - len(properties))
            assert writer.put("TopicTest", 0, body, properties, store_timestamp_ms=NOW + 1300 * i).size == 119
        first, second = index_files(opened_files := store.files, opened.paths.index)
        header = read_header(opened_files, first)
        assert header is not None and (header.slot_count, header.index_count) == (3, 5)
        assert header.begin_timestamp_ms == NOW and header.end_timestamp_ms == NOW + 3900
        image = first.read_bytes()
        units = [INDEX_UNIT.unpack_from(image, 80 + 20 * number) for number in range(1, 5)]
        assert units == [(2746023, 0, 0, 0), (2746024, 119, 1, 0), (2746025, 238, 2, 0), (2746023, 357, 3, 1)]
        slots = {slot: struct.unpack_from(">i", image, 40 + 4 * slot)[0] for slot in range(10)}
        assert slots == {**dict.fromkeys(range(10), 0), 3: 4, 4: 2, 5: 3}
        # The quirk of 6.3: counted from the end of the file before, though it begins a file.
        assert INDEX_UNIT.unpack_from(second.read_bytes(), 80 + 20) == (2746024, 476, 1, 0)
        assert len(store.query_message("TopicTest", "k1", 9, 0, 1 << 60).records) == 2
        newest = store.query_message("TopicTest", "k0", 1, 0, 1 << 60).records
        assert store.query_message("TopicTest", "k0", 9, NOW + 2000, NOW + 4000).records == newest

    def test_a_hash_without_an_absolute_value(self, writer: StoreWriter, store: MessageStore) -> None:
        writer.put("TopicTest", 0, b"", b"KEYS\x01tbaekxa")  # String.hashCode is Integer.MIN_VALUE
        assert len(store.query_message("TopicTest", "tbaekxa", 9, 0, 1 << 60).records) == 1

    def test_limit_index(self, writer: StoreWriter, opened: OpenedStore, store: MessageStore) -> None:
        for i in range(3):
            writer.put("T", 0, b"", b"KEYS\x01k%d" % i)
        (path,) = index_files(store.files, opened.paths.index)
        limit_index(store.files, opened.paths.index, 50)
        header = read_header(store.files, path)
        assert header is not None and header.end_phy_offset == 50
        limit_index(store.files, opened.paths.index, 90)
        assert read_header(store.files, path) == header


def test_index_of_a_directory_without_files(opened: OpenedStore, store: MessageStore) -> None:
    index = Index(opened.paths.index, 10, 5, store.files)
    found = index.query("T", "k", 9, 0, 1 << 60)
    assert (found.phy_offsets, found.last_update_timestamp_ms, found.last_update_phy_offset) == ([], 0, 0)
