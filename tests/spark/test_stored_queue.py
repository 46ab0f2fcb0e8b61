"""Queues read from files: what is there comes as a broker gives it, and the reading ends before what is not."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import END_FILE_MIN_BLANK_LENGTH, decode_record, encode_blank
from rocketpy.spark.options import parse_options
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.store_source import plan
from rocketpy.spark.stored_queue import StoredQueue
from rocketpy.store.files import file_name
from rocketpy.store.formats.unit import BLANK_UNIT, CQ_STORE_UNIT_SIZE, CQ_UNIT
from tests.support.log_images import record

QUEUE = MessageQueue("A", "broker-a", 0)
SEGMENT = 2048
COUNT = 60
UNITS_PER_FILE = 4
FILE_BYTES = UNITS_PER_FILE * CQ_STORE_UNIT_SIZE


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Messages of A and B in two queues each: a log of several files, and four units to a file of a queue."""
    root = tmp_path / "s"
    units: dict[tuple[str, int], bytes] = defaultdict(bytes)
    log = b""
    for number in range(COUNT):
        made = record("A" if number % 3 else "B", b"%d" % number * 20, queue_id=number % 2)
        if len(log) % SEGMENT + made.size + END_FILE_MIN_BLANK_LENGTH > SEGMENT:
            rest = SEGMENT - len(log) % SEGMENT
            log += encode_blank(rest).ljust(rest, b"\x00")
        queue = (made.topic, made.queue_id)
        unit = CQ_UNIT.pack(len(log), made.size, 0)
        log += made.encode(phy_offset=len(log), queue_offset=len(units[queue]) // CQ_STORE_UNIT_SIZE)
        units[queue] += unit
    write_files(root / "commitlog", log, SEGMENT)
    for (topic, queue_id), data in units.items():
        write_files(root / "consumequeue" / topic / str(queue_id), data, FILE_BYTES)
    return root


def write_files(directory: Path, data: bytes, size: int) -> None:
    directory.mkdir(parents=True)
    for start in range(0, len(data), size):
        (directory / file_name(start)).write_bytes(data[start : start + size].ljust(size, b"\x00"))


def offsets(root: Path, begin: int, end: int, size_max: int = 1000) -> list[int]:
    """The queue offsets of the records that are found, all of the queue."""
    found = []
    for image in StoredQueue(root, QUEUE).images(begin, end, size_max):
        while image:
            size = int.from_bytes(image[:4], "big")
            record = decode_record(memoryview(image[:size]))
            assert record is not None and (record.topic, record.queue_id) == ("A", 0)
            found.append(record.queue_offset)
            image = image[size:]
    return found


def unit_file(root: Path, offset: int) -> tuple[Path, int]:
    """The file with the unit of an offset, and its place there."""
    place = offset * CQ_STORE_UNIT_SIZE
    return root / "consumequeue/A/0" / file_name(place - place % FILE_BYTES), place % FILE_BYTES


def write_unit(root: Path, offset: int, unit: bytes) -> None:
    path, at = unit_file(root, offset)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(unit)


def read_unit(root: Path, offset: int) -> bytes:
    path, at = unit_file(root, offset)
    return path.read_bytes()[at : at + CQ_STORE_UNIT_SIZE]


def test_any_range_in_images_of_any_size(store: Path) -> None:
    for begin, end in ((0, 20), (0, 1), (3, 9), (4, 8), (19, 20), (7, 7)):
        for size_max in (1, 700, 1 << 20):
            assert offsets(store, begin, end, size_max) == list(range(begin, end))
    images = list(StoredQueue(store, QUEUE).images(0, 20, 700))
    assert len(images) > 3 and all(len(image) < 700 + SEGMENT for image in images)


def test_the_reading_ends_where_the_queue_ends(store: Path) -> None:
    assert offsets(store, 0, 100) == list(range(20))
    assert offsets(store, 50, 100) == []
    write_unit(store, 13, bytes(CQ_STORE_UNIT_SIZE))
    assert offsets(store, 0, 20) == list(range(13))
    unit_file(store, 8)[0].unlink()
    assert offsets(store, 0, 20) == list(range(8))


def test_the_reading_ends_before_a_message_that_is_not_in_the_log(store: Path) -> None:
    place = CQ_UNIT.unpack(read_unit(store, 9))[0]
    (store / "commitlog" / file_name(place - place % SEGMENT)).unlink()
    found = offsets(store, 0, 20)
    assert found == list(range(len(found))) and len(found) <= 9
    assert offsets(store, 9, 20) == []


@pytest.mark.parametrize("lie", ["blank", "other record", "no record", "other size", "far", "negative"])
def test_units_that_lie_are_not_believed(store: Path, lie: str) -> None:
    place, size, _ = CQ_UNIT.unpack(read_unit(store, 5))
    units = {
        "blank": BLANK_UNIT,
        "other record": read_unit(store, 6),
        "no record": CQ_UNIT.pack(place + 4, size, 0),
        "other size": CQ_UNIT.pack(place, size - 1, 0),
        "far": CQ_UNIT.pack(1 << 60, size, 0),
        "negative": CQ_UNIT.pack(-5, size, 0),
    }
    write_unit(store, 5, units[lie])
    assert offsets(store, 0, 20) == list(range(5))


def test_a_record_that_has_not_arrived(store: Path) -> None:
    """A mount may show a unit before the bytes of its record."""
    place, size, _ = CQ_UNIT.unpack(read_unit(store, 5))
    with (store / "commitlog" / file_name(place - place % SEGMENT)).open("r+b") as file:
        file.seek(place % SEGMENT)
        file.write(bytes(size))
    assert offsets(store, 0, 20) == list(range(5))


def test_a_queue_without_files_and_a_directory_without_store(store: Path) -> None:
    assert list(StoredQueue(store, MessageQueue("A", "broker-a", 7)).images(0, 5, 100)) == []
    with pytest.raises(StoreError, match=r"/nowhere is no store: .* Option storePath names the root"):
        StoredQueue(Path("/nowhere"), QUEUE)


def planned(root: Path, **options: str) -> set[int]:
    """The segments that a query reads."""
    given = {"path": str(root), "pruneByQueues": "true", **options}
    return {piece.segment.start for piece in plan(parse_options(StoreOptions, given))}


def keep_units(root: Path, topic: str, begin: int, end: int) -> None:
    """Make a topic's queues point to records of this range of the log alone."""
    for path in (root / "consumequeue" / topic).glob("*/*"):
        kept = [unit for unit in CQ_UNIT.iter_unpack(path.read_bytes()) if unit[1] and begin <= unit[0] < end]
        path.write_bytes(b"".join(CQ_UNIT.pack(*unit) for unit in kept))


def test_only_files_that_hold_a_topic_are_read(store: Path) -> None:
    every = {piece.segment.start for piece in plan(parse_options(StoreOptions, {"path": str(store)}))}
    last = max(every)
    assert planned(store, topics="A,B") == every and last >= 3 * SEGMENT
    keep_units(store, "B", SEGMENT, 2 * SEGMENT)
    assert planned(store, topics="B") == {SEGMENT, last}
    assert planned(store, topics="B", endPhysicalOffset=str(3 * SEGMENT)) == {SEGMENT, 2 * SEGMENT}
    assert planned(store, topics="C") == {last}
    assert planned(store, topics="A,B") == every


def test_files_behind_the_last_dispatched_record_are_read(store: Path) -> None:
    every = {piece.segment.start for piece in plan(parse_options(StoreOptions, {"path": str(store)}))}
    keep_units(store, "A", 0, 3 * SEGMENT)
    keep_units(store, "B", 0, SEGMENT)
    assert planned(store, topics="B") == {0} | {start for start in every if start >= 2 * SEGMENT}
    keep_units(store, "A", 0, 0)
    keep_units(store, "B", 0, 0)
    assert planned(store, topics="B") == every
