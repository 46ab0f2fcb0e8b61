"""The index byte for byte, and queries."""

from __future__ import annotations

import struct
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.tags import index_hash
from rocketpy.remoting.work import result_of
from rocketpy.store.formats.index_file import INDEX_UNIT, Index, index_files, limit_index, read_header
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter, small_config

NOW = 1_700_000_000_123


@pytest.fixture
def index_config(config: MessageStoreConfig) -> MessageStoreConfig:
    return small_config(Path(config.store_path_root_dir), max_hash_slot_num=10, max_index_num=5)


class TestSmallIndex:
    """A small index: 10 slots, 5 units, keys k0 k1 k2 in turn, 1.3 s apart, records of 119 bytes."""

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
        assert len(result_of(store.message_query("TopicTest", "k1", 9, 0, 1 << 60)).records) == 2
        newest = result_of(store.message_query("TopicTest", "k0", 1, 0, 1 << 60)).records
        assert result_of(store.message_query("TopicTest", "k0", 9, NOW + 2000, NOW + 4000)).records == newest

    def test_a_hash_without_an_absolute_value(self, writer: StoreWriter, store: MessageStore) -> None:
        writer.put("TopicTest", 0, b"", b"KEYS\x01tbaekxa")  # String.hashCode is Integer.MIN_VALUE
        assert len(result_of(store.message_query("TopicTest", "tbaekxa", 9, 0, 1 << 60)).records) == 1

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
    found = result_of(index.query("T", "k", 9, 0, 1 << 60, lambda phy_offset: True))
    assert (found.phy_offsets, found.last_update_timestamp_ms, found.last_update_phy_offset) == ([], 0, 0)


class TestDamage:
    def test_a_count_beyond_the_file(self, writer: StoreWriter, opened: OpenedStore, store: MessageStore) -> None:
        """Fault: A query of an index file with a count beyond its size raised a Python error."""
        put = writer.put("T", 0, b"", b"KEYS\x01k")
        (path,) = index_files(store.files, opened.paths.index)
        slot_at = 40 + 4 * (index_hash("T#k") % store.config.max_hash_slot_num)
        store.files.write(path, 36, struct.pack(">i", 0x7FFFFFFF))
        assert result_of(store.message_query("T", "k", 9, 0, 1 << 60)).records == [put.image]
        store.files.write(path, slot_at, struct.pack(">i", store.config.max_index_num))
        assert result_of(store.message_query("T", "k", 9, 0, 1 << 60)).records == []

    def test_an_end_below_zero_is_limited(self, writer: StoreWriter, opened: OpenedStore, store: MessageStore) -> None:
        """To the writer it is a huge number: no key would ever be entered again.
        Fault: An index file whose end lay beyond the log's, or below zero, accepted no more keys."""
        writer.put("T", 0, b"", b"KEYS\x01k")
        (path,) = index_files(store.files, opened.paths.index)
        store.files.write(path, 24, b"\xff" * 8)
        limit_index(store.files, opened.paths.index, 50)
        header = read_header(store.files, path)
        assert header is not None and header.end_phy_offset == 50

    def test_a_name_that_is_too_short_is_nobodys(self, config: MessageStoreConfig) -> None:
        close_store(open_store(config), clean=True)
        path = Path(config.store_path_root_dir) / "index" / "7"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(8440))
        opened = open_store(config)
        with StoreWriter(config, opened.control) as writer:
            writer.put("T", 0, b"", b"KEYS\x01k")
        close_store(opened, clean=True)
        assert len(list(path.parent.iterdir())) == 2 and path.read_bytes() == bytes(8440)

    def test_a_file_that_cannot_be_gone_on_with_is_named(self, config: MessageStoreConfig) -> None:
        """Not when the first key is to be entered: by then the store would be open.
        Fault: A store with an oversized index file opened, but its store worker could not start."""
        close_store(open_store(config), clean=True)
        path = Path(config.store_path_root_dir) / "index" / "20260102030405678"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100_000))
        with pytest.raises(StoreError, match=f"{path.name} has 100000 bytes, 8440 are configured"):
            open_store(config)
        close_store(open_store(attrs.evolve(config, message_index_enable=False)), clean=True)
