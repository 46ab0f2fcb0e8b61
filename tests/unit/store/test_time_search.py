"""The reference's own results of searching by time."""

from __future__ import annotations

import os

from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.message_store import MessageStore
from tests.support.store_writer import StoreWriter


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
