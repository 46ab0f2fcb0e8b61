"""From record to unit and key: golden bytes of store.md 15.5, and the rules of which record gets what."""

from __future__ import annotations

import struct

import pytest

from rocketpy.message.tags import string_hash
from rocketpy.store.files import file_name
from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.message_store import MessageStore
from tests.support.store_writer import StoreWriter

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
