"""The read facade against a small store written as the send processor writes it."""

from __future__ import annotations

import os

import pytest

from rocketpy.message.record import decode_record
from rocketpy.message.tags import string_hash
from rocketpy.store.get_message import GetMessageStatus
from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.message_store import MessageStore
from tests.support.store_writer import StoreWriter


def test_offsets_of_unknown_and_known_queues(store: MessageStore, writer: StoreWriter) -> None:
    assert (store.min_offset("none", 0), store.max_offset("none", 0)) == (0, 0)
    for _ in range(3):
        writer.put("T", 5)
    assert (store.min_offset("T", 5), store.max_offset("T", 5)) == (0, 3)
    assert [state.queue_id for state in store.queue_states("T")] == [5]
    assert store.dispatch_behind_bytes == 0
    writer.put("T", 5, dispatch=False)
    assert store.dispatch_behind_bytes > 0 and store.max_offset("T", 5) == 3


def test_look_message_by_offset(store: MessageStore, writer: StoreWriter) -> None:
    puts = [writer.put(body=b"x" * size) for size in (0, 1, 3000, 4096, 9000, 8000)]  # rolls on the way
    for put in puts:
        assert store.look_message_by_offset(put.phy_offset) == put.image
    assert store.look_message_by_offset(puts[-1].phy_offset + puts[-1].size) is None
    assert store.look_message_by_offset(-1) is None
    assert store.look_message_by_offset(1 << 50) is None


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
        (10, GetMessageStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 10),
        (0, GetMessageStatus.FOUND, 4),
        (8, GetMessageStatus.FOUND, 10),
    ],
)
def test_get_message_by_place(
    store: MessageStore, writer: StoreWriter, offset: int, status: GetMessageStatus, next_offset: int
) -> None:
    puts = [writer.put("T", 1, b"%d" % i) for i in range(10)]
    result = store.get_message("T", 1, offset, 4)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 10)
    if status is GetMessageStatus.FOUND:
        assert result.records == [put.image for put in puts[offset:next_offset]]


def test_get_message_of_missing_and_empty_queues(store: MessageStore, writer: StoreWriter) -> None:
    assert store.get_message("none", 0, 0, 1).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    writer.control.add_queue(b"empty", 0)
    assert store.get_message("empty", 0, 7, 1).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE


def test_get_message_ends_with_the_queue_file(store: MessageStore, writer: StoreWriter) -> None:
    for _ in range(60):
        writer.put("T", 0, b"")
    assert store.get_message("T", 0, 40, 32).next_begin_offset == 50  # 50 units of 20 bytes per file
    assert store.get_message("T", 0, 50, 32).next_begin_offset == 60


def test_get_message_with_tags_counts_what_it_passed_over(store: MessageStore, writer: StoreWriter) -> None:
    for i in range(9):
        writer.put("T", 0, b"", b"TAGS\x01" + (b"A" if i % 3 == 0 else b"B"))
    found = store.get_message("T", 0, 0, 2, {string_hash("A")})
    assert (len(found.records), found.next_begin_offset) == (2, 4)  # full: the next unit is not looked at
    none = store.get_message("T", 0, 0, 2, {string_hash("C")})
    assert (none.status, none.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 9)


def test_get_message_limits_bytes_but_never_the_first(store: MessageStore, writer: StoreWriter) -> None:
    for _ in range(40):
        writer.put("T", 0, b"x" * 12_000)
    result = store.get_message("T", 0, 0, 40)
    assert len(result.records) == 262_144 // len(result.records[0])
    far = MessageStore(store.config, store.control, memory_bytes=0)
    assert len(far.get_message("T", 0, 0, 40).records) == 65_536 // len(result.records[0])
    assert far.get_message("T", 0, 0, 40).suggest_slave
    far.close()


def test_get_message_when_the_log_was_cleaned(
    store: MessageStore, writer: StoreWriter, opened: OpenedStore
) -> None:
    for _ in range(40):
        writer.put("T", 0, b"x" * 1000)
    opened.control.header.min_phy_offset = 16_384  # as cleaning does; the queue's minimum follows later
    result = store.get_message("T", 0, 0, 5)
    assert result.status is GetMessageStatus.FOUND
    assert all((decode_record(image) or pytest.fail("no record")).phy_offset >= 16_384 for image in result.records)


def test_times(store: MessageStore, writer: StoreWriter) -> None:
    assert store.earliest_message_time() == -1
    for i in range(5):
        writer.put("T", 0, store_timestamp_ms=1000 + i)
    assert store.earliest_message_time() == 1000
    assert store.message_store_timestamp("T", 0, 3) == 1003
    assert store.message_store_timestamp("T", 0, 5) == -1
    assert store.message_store_timestamp("none", 0, 0) == -1


def test_offset_by_time_table(store: MessageStore, writer: StoreWriter, opened: OpenedStore) -> None:
    """The reference's own results, store.md 15.8."""
    for i in range(120):
        writer.put("T", 0, b"", store_timestamp_ms=1_000_000 + 1000 * i)
    directory = opened.paths.consumequeue / "T" / "0"
    for start, seconds in ((0, 1049), (1000, 1099), (2000, 1149)):
        os.utime(directory / f"{start:020d}", (seconds, seconds))
    table = {
        1: 0, 1_000_000: 0, 1_000_499: 0, 1_000_500: 0, 1_000_501: 1, 1_000_999: 1, 1_049_000: 49, 1_049_001: 50,
        1_049_999: 50, 1_050_000: 50, 1_119_000: 119, 9_999_999: 119,
    }  # fmt: skip
    assert {moment: store.offset_by_time("T", 0, moment) for moment in table} == table
    assert store.offset_by_time("none", 0, 5) == 0


def test_query_message(store: MessageStore, writer: StoreWriter) -> None:
    wanted = []
    for i in range(30):
        put = writer.put("T", 0, b"", b"KEYS\x01odd" if i % 2 else b"KEYS\x01even k%d" % i)
        if i % 2:
            wanted.append(put.image)
    result = store.query_message("T", "odd", 64, 0, 1 << 60)
    assert result.records == wanted
    assert len(store.query_message("T", "k4", 64, 0, 1 << 60).records) == 1
    assert store.query_message("T", "none", 64, 0, 1 << 60).records == []
    assert store.query_message("Other", "odd", 64, 0, 1 << 60).records == []
    assert len(store.query_message("T", "odd", 4, 0, 1 << 60).records) == 4


def test_statistics(store: MessageStore, writer: StoreWriter) -> None:
    put = writer.put("T", 0)
    statistics = store.statistics()
    assert statistics.published_phy_offset == statistics.dispatched_phy_offset == put.size
    assert statistics.flush_behind_bytes == put.size
    assert (statistics.queue_count, statistics.topic_count) == (1, 1)
    assert 0 < statistics.commitlog_disk_ratio <= 1
    assert store.is_in_disk(0) is False
