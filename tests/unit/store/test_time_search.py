"""The reference's own results of searching by time."""

from __future__ import annotations

import os
import random

import pytest

from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT, ConsumeQueueUnit
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.reading.time_search import choose_file, offset_by_time, offset_since
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.cases import cases
from tests.support.store_writer import StoreWriter


def test_offset_by_time_table(store: MessageStore, writer: StoreWriter, opened: OpenedStore) -> None:
    """Results that the reference itself gave for this store.
    Holds: client, replay from a time."""
    for i in range(120):
        writer.put("T", 0, b"", store_timestamp_ms=1_000_000 + 1000 * i)
    directory = opened.paths.consumequeue / "T" / "0"
    for start, seconds in ((0, 1049), (1000, 1099), (2000, 1149)):
        os.utime(directory / f"{start:020d}", (seconds, seconds))
    table = {
        1: 0,
        1_000_000: 0,
        1_000_499: 0,
        1_000_500: 0,
        1_000_501: 1,
        1_000_999: 1,
        1_049_000: 49,
        1_049_001: 50,
        1_049_999: 50,
        1_050_000: 50,
        1_119_000: 119,
        9_999_999: 119,
    }
    assert {moment: store.offset_by_time("T", 0, moment) for moment in table} == table
    assert store.offset_by_time("none", 0, 5) == 0


BLANK = -1  # no message has this place


def by_time(times: list[int], moment: int, *, minimum: int = 0, log_min: int = 0, unreadable: int = -1) -> int:
    """One file; record i lies at i * 100 of the log and was stored at times[i]."""

    def read(offset: int, count: int) -> bytes:
        numbers = range(offset, min(offset + count, len(times)))
        return b"".join(BLANK_UNIT if times[n] == BLANK else CQ_UNIT.pack(n * 100, 100, 0) for n in numbers)

    def time_of(unit: ConsumeQueueUnit) -> int:
        return -1 if unit.phy_offset == unreadable * 100 else times[unit.phy_offset // 100]

    return offset_by_time([(0, 10**9)], 20_000, minimum, len(times), log_min, moment, read, time_of)


@cases(
    "times, moment, offset",
    [
        ([10], 1, 0),
        ([10], 10, 0),
        ([10], 11, 0),
        ([10, 20], 15, 0),  # a tie goes to the earlier one
        ([10, 20], 16, 1),
        ([10, 20, 20, 20, 30], 20, 2),  # one of several: that which the search meets first
        ([10, 20, 30], 1 << 60, 2),  # the last one, not behind it
        ([], 5, 0),
    ],
)
def test_the_nearest_message(times: list[int], moment: int, offset: int) -> None:
    assert by_time(times, moment) == offset


@pytest.mark.parametrize(
    ("minimum", "log_min", "moment", "offset"),
    [
        (2, 0, 1, 2),  # nothing below the queue's minimum
        (0, 200, 1, 2),  # nor what the log has no more, though the minimum was not yet moved
        (0, 200, 31, 2),
        (4, 400, 99, 3 + 1),
        (5, 500, 30, 5),  # all have expired: the queue goes on there
        (0, 500, 30, 0),  # ... and the minimum does not know yet
    ],
)
def test_what_has_expired_is_not_found(minimum: int, log_min: int, moment: int, offset: int) -> None:
    assert by_time([10, 20, 30, 40, 50], moment, minimum=minimum, log_min=log_min) == offset


def test_an_unreadable_record_on_the_way_gives_0(store: MessageStore) -> None:
    assert by_time([10, 20, 30, 40, 50], 50, unreadable=2) == 0
    assert by_time([10, 20, 30, 40, 50], 50, unreadable=0) == 4  # it is not met


@pytest.mark.parametrize("log_min", [0, 100])
def test_places_without_a_message_are_passed_over(log_min: int) -> None:
    """The first messages of the log may have expired; a blank unit has place 0 in it."""
    choose = random.Random(7)
    for _ in range(2_000):
        count, blank_share = choose.randrange(2, 60), choose.choice((0.1, 0.5, 0.9))
        times = [BLANK if choose.random() < blank_share else 10 * n for n in range(count)]
        found = {time: n for n, time in enumerate(times) if time != BLANK and n * 100 >= log_min}
        moment = choose.randrange(10 * count + 20)
        if not found:
            continue
        nearest = min(found, key=lambda time: (abs(time - moment), time))
        assert by_time(times, moment, log_min=log_min) == found[nearest], (times, moment)


def test_a_queue_with_a_gap_is_searched(store: MessageStore, writer: StoreWriter, opened: OpenedStore) -> None:
    """Messages in the middle were damaged; their places have blank units since a rebuild.
    Fault: A search by time that met a blank unit gave 0, so a reset repeated the whole queue."""
    for i in range(40):
        writer.put("T", 0, b"", store_timestamp_ms=1_000_000 + 1000 * i)
    with (opened.paths.consumequeue / "T" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(10 * CQ_UNIT.size)
        file.write(BLANK_UNIT * 20)
    assert store.offset_by_time("T", 0, 1_005_000) == 5
    assert store.offset_by_time("T", 0, 1_012_000) == 9
    assert store.offset_by_time("T", 0, 1_035_000) == 35


@pytest.mark.parametrize(
    ("moment", "start"), [(0, 0), (100, 0), (101, 1000), (200, 1000), (201, 2000), (300, 2000), (999, 2000)]
)
def test_the_file_is_chosen_by_its_modification_time(moment: int, start: int) -> None:
    assert choose_file([(0, 100), (1000, 200), (2000, 300)], moment) == start


def test_the_first_message_since_a_time(store: MessageStore, writer: StoreWriter) -> None:
    """Fault: A reset to a time began at any of the messages that were stored in that millisecond."""
    for i in range(400):
        writer.put("T", 0, b"", store_timestamp_ms=1_000_000 + i // 200)
    firsts = {moment: store.offset_since("T", 0, moment) for moment in (1, 1_000_000, 1_000_001, 1_000_002)}
    assert firsts == {1: 0, 1_000_000: 0, 1_000_001: 200, 1_000_002: 400}
    assert store.offset_since("none", 0, 1) == 0


@pytest.mark.parametrize("unreadable", [-1, 7])
def test_since_with_blanks_and_expired_messages(unreadable: int) -> None:
    choose = random.Random(9)
    for _ in range(1_000):
        count, minimum, log_min = choose.randrange(1, 60), choose.randrange(5), 100 * choose.randrange(3)
        times = [BLANK if choose.random() < 0.2 else n // choose.choice((1, 9)) for n in range(count)]
        times = [BLANK if time == BLANK else max(times[: n + 1]) for n, time in enumerate(times)]
        moment = choose.randrange(count + 2)

        def read(offset: int, size: int, times: list[int] = times) -> bytes:
            numbers = range(offset, min(offset + size, len(times)))
            return b"".join(BLANK_UNIT if times[n] == BLANK else CQ_UNIT.pack(n * 100, 100, 0) for n in numbers)

        def time_of(unit: ConsumeQueueUnit, times: list[int] = times) -> int:
            return -1 if unit.phy_offset == unreadable * 100 else times[unit.phy_offset // 100]

        found = offset_since(min(minimum, count), count, log_min, moment, read, time_of)
        wanted = [n for n in range(minimum, count) if times[n] >= moment and n * 100 >= log_min and n != unreadable]
        missed = [n for n in wanted if n < found]
        older = [n for n in range(found, count) if BLANK < times[n] < moment and n * 100 >= log_min]
        assert not missed and (unreadable >= 0 or not older), (times, moment, minimum, log_min, found)
