"""Pulling by queue offset: every status, and what limits a pull."""

from __future__ import annotations

import pytest

from rocketpy.message.record import decode_record
from rocketpy.message.tags import string_hash
from rocketpy.store.reading.get_message import GetMessageStatus
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter


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


def test_a_unit_without_a_record_costs_one_message(store: MessageStore, writer: StoreWriter) -> None:
    """Dispatch leaves a blank where a record was damaged; the records behind it in the same file are there.
    Fault: Filtered and delayed reads skipped the rest of a log file behind a unit without a record."""
    first = writer.put("T", 0)
    writer.control.add_queue(b"T", 0).next_offset = 2
    last = writer.put("T", 0)
    result = store.get_message("T", 0, 0, 9)
    assert (result.records, result.next_begin_offset) == ([first.image], 1)
    result = store.get_message("T", 0, 1, 9)
    assert (result.status, result.records, result.next_begin_offset) == (GetMessageStatus.FOUND, [last.image], 3)


def test_get_message_when_the_log_was_cleaned(store: MessageStore, writer: StoreWriter, opened: OpenedStore) -> None:
    for _ in range(40):
        writer.put("T", 0, b"x" * 1000)
    opened.control.header.min_phy_offset = 16_384  # as cleaning does; the queue's minimum follows later
    result = store.get_message("T", 0, 0, 5)
    assert result.status is GetMessageStatus.FOUND
    assert all((decode_record(image) or pytest.fail("no record")).phy_offset >= 16_384 for image in result.records)


def test_a_queue_cleaned_between_two_looks_loses_nothing(
    store: MessageStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its file's rest would be passed over, as if it were missing."""
    for _ in range(5):
        writer.put("T", 0)
    entry = store.control.queue("T", 0)
    assert entry is not None

    def cleaned(*_: object) -> list[object]:
        entry.min_offset = 3
        return []

    monkeypatch.setattr(store.queues, "units", cleaned)
    result = store.get_message("T", 0, 1, 9)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, 3)
