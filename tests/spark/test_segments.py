"""Pieces of a store: every record in one piece exactly, whatever the size of the pieces and the state of the store."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.spark import segments
from rocketpy.spark.decoder import Decoder
from rocketpy.spark.options import parse_options
from rocketpy.spark.segments import SEARCH_BYTES, list_segments
from rocketpy.spark.store_options import StoreOptions
from rocketpy.store.files import file_name
from rocketpy.store.formats.unit import BLANK_UNIT, CQ_UNIT
from tests.support.log_images import BORN_MS, image_of, record
from tests.support.records import Record

SEGMENT = 2048
BLANK_MIN = 8


def make_store(root: Path, count: int = 60, *, units: bool = False, zeros: int = 0) -> list[int]:
    """A log of several files, of records that are numbered by their bodies. Returns the records' phy offsets."""
    records = [
        record("A" if n % 3 else "B", b"%d" % n * 20, queue_id=n % 2, store_timestamp_ms=BORN_MS + n)
        for n in range(count)
    ]
    places = write_log(root, records)
    if zeros:
        with max((root / "commitlog").iterdir()).open("ab") as file:
            file.write(bytes(zeros))
    if units:
        make_queue(root / "consumequeue/A/0", places, records)
    return places


def write_log(root: Path, records: list[Record], segment: int = SEGMENT) -> list[int]:
    """Write a log of files of `segment` bytes. Returns the records' phy offsets."""
    (root / "commitlog").mkdir(parents=True)
    start, places, rest = 0, list[int](), records
    while rest:
        fitting, size = 0, 0
        while fitting < len(rest) and size + rest[fitting].size + BLANK_MIN <= segment:
            size += rest[fitting].size
            fitting += 1
        image = image_of(rest[:fitting], start, file_size=segment if fitting < len(rest) else None)
        (root / "commitlog" / file_name(start)).write_bytes(image.data)
        places += [start + place for place in image.records]
        rest, start = rest[fitting:], start + segment
    return places


def make_queue(directory: Path, places: list[int], records: list[Any]) -> None:
    directory.mkdir(parents=True)
    units = [
        CQ_UNIT.pack(place, item.size, 0) for place, item in zip(places, records, strict=True) if item.topic == "A"
    ]
    (directory / file_name(0)).write_bytes(BLANK_UNIT * 3 + b"".join(units) + bytes(100))


def read(root: Path, **options: Any) -> list[dict[str, Any]]:
    from rocketpy.spark.store_source import PieceReader, plan

    texts = {key: str(value) for key, value in options.items()}
    parsed = parse_options(StoreOptions, {"path": str(root), **texts})
    columns = parsed.names(diagnostics=True)
    pieces = plan(parsed)
    assert pieces == sorted(pieces, key=lambda piece: piece.begin)
    rows: list[dict[str, Any]] = []
    for piece in pieces:
        assert piece.segment.start <= piece.begin < piece.end <= piece.segment.end
        for batch in PieceReader(parsed, columns, piece).batches():
            rows += batch.to_pylist()
    return rows


def places_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


@pytest.mark.parametrize("prepared", [1, 2])
@pytest.mark.parametrize("live_tail", [False, True])
def test_files_that_a_broker_has_prepared_are_no_end_of_the_log(tmp_path: Path, prepared: int, live_tail: bool) -> None:
    """A running broker makes the next file before the last one is full.
    Fault: `rocketmq_store` and `pipeline archive` refused a store with a prepared CommitLog file."""
    places = make_store(tmp_path, 60, zeros=300)
    last = list_segments(tmp_path)[-1]
    with last.path.open("ab") as file:
        file.truncate(SEGMENT)
    for number in range(prepared):
        (tmp_path / "commitlog" / file_name(last.start + SEGMENT * (number + 1))).write_bytes(bytes(SEGMENT))
    assert places_of(read(tmp_path, columns="min", liveTail=live_tail)) == places
    assert list_segments(tmp_path)[-1].path == last.path


def test_a_log_of_prepared_files_alone_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for number in range(2):
        (tmp_path / "commitlog" / file_name(SEGMENT * number)).write_bytes(bytes(SEGMENT))
    assert read(tmp_path, columns="min") == []


@pytest.mark.parametrize("boundary", ["auto", "walk", "resync"])
@pytest.mark.parametrize("units", [False, True])
def test_every_split_size_gives_every_record_once(tmp_path: Path, boundary: str, units: bool) -> None:
    places = make_store(tmp_path / "s", 60, units=units, zeros=777)
    assert len(list_segments(tmp_path / "s")) > 2
    for split in (1, 2, 17, 64, 100, 131, 500, 1000, 4096, 1 << 30):
        assert places_of(read(tmp_path / "s", splitBytes=split, boundary=boundary, columns="min")) == places, split


def test_all_zeros_after_a_log_are_not_searched_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: To plan a store, Spark searched all zeros of the last file, a gigabyte that nobody had written."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / file_name(0)
    path.write_bytes(image_of([record("A", b"%d" % n * 20) for n in range(5000)]).data)
    os.truncate(path, 1 << 30)
    searched = []
    resync = Decoder.resync

    def counted(self: Decoder, data: Any, start: int, position: int, stop: int) -> int | None:
        searched.append(stop - position)
        return resync(self, data, start, position, stop)

    monkeypatch.setattr(Decoder, "resync", counted)
    for split in ("64m", "1m"):
        searched.clear()
        assert len(read(tmp_path, splitBytes=split, columns="min")) == 5000
        assert 0 < sum(searched) <= SEARCH_BYTES


def test_a_file_system_that_does_not_know_its_holes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some refuse the question for the next data of a file."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    places = make_store(tmp_path, 60, zeros=2 * SEARCH_BYTES)
    monkeypatch.setattr(segments.os, "lseek", refuse)
    assert places_of(read(tmp_path, splitBytes=1 << 20)) == places


def test_records_after_a_hole_of_the_last_file_are_damage(tmp_path: Path) -> None:
    """A plan that ended at the hole would leave them out, as if nothing had been written there."""
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / file_name(0)
    hole = 3 * SEARCH_BYTES
    first = image_of([record("A", b"%d" % n * 20) for n in range(30)])
    path.write_bytes(first.data)
    os.truncate(path, hole)
    with path.open("ab") as file:
        file.write(image_of([record("A", b"%d" % n * 20) for n in range(30)], hole).data)
    for boundary in ("auto", "resync"):
        with pytest.raises(RecordCorrupt, match="zeros, where records follow"):
            read(tmp_path, splitBytes="4m", columns="min", boundary=boundary)


def test_a_range_begins_and_ends_at_the_records_that_it_names(tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60, units=True)
    for start, end in ((0, 1), (1, 5000), (places[7], places[50]), (places[7] + 1, places[50] + 1), (4096, 8192)):
        expected = [place for place in places if start <= place < end]
        for boundary in ("auto", "walk", "resync"):
            rows = read(
                tmp_path / "s", startPhysicalOffset=start, endPhysicalOffset=end, boundary=boundary, splitBytes=300
            )
            assert places_of(rows) == expected, (start, end, boundary)


def test_topics_queues_and_times(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    rows = read(tmp_path / "s", topics="B", queueIds=1, columns="topic,queueId,segment,brokerName", brokerName="b1")
    assert {(row["topic"], row["queueId"], row["brokerName"]) for row in rows} == {("B", 1, "b1")}
    assert len(rows) == 10 and rows[0]["segment"] == file_name(0)
    rows = read(tmp_path / "s", fromStoreTimestamp=BORN_MS + 20, toStoreTimestamp=BORN_MS + 40, columns="body")
    assert [row["body"] for row in rows] == [b"%d" % n * 20 for n in range(20, 40)]


def test_a_queue_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    """Else files of the log would be left out that have messages of its topic.
    Fault: With pruneByQueues, Spark left out log files of a consume queue that could not be read."""
    make_store(tmp_path, 60, units=True)
    queues = tmp_path / "consumequeue"
    (queues / "A").rename(queues / "Other")  # shows that the log is dispatched to its end
    (queues / "A/0" / file_name(0)).mkdir(parents=True)  # reading it fails
    with pytest.raises(StoreError, match=r"cannot read .*consumequeue/A/0/0+: Is a directory"):
        read(tmp_path, topics="A", pruneByQueues=True)
    assert len(read(tmp_path, topics="A", splitBytes=300)) == 40, "where records begin is known by their bytes as well"


def test_segments_outside_of_the_time_are_not_opened(tmp_path: Path) -> None:
    from rocketpy.spark.store_source import plan

    make_store(tmp_path / "s", 60)
    first, *_, last = list_segments(tmp_path / "s")
    early = parse_options(StoreOptions, {"path": str(tmp_path / "s"), "toStoreTimestamp": str(BORN_MS + 1)})
    assert {piece.segment for piece in plan(early)} == {first}
    late = parse_options(StoreOptions, {"path": str(tmp_path / "s"), "fromStoreTimestamp": str(BORN_MS + 59)})
    assert {piece.segment for piece in plan(late)} == {last}


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store whose tenth record has a wrong magic code, and whose twelfth a wrong body."""
    places = make_store(tmp_path / "s", 60)
    path = tmp_path / "s/commitlog" / file_name(0)
    data = bytearray(path.read_bytes())
    data[places[10] + 4] ^= 1
    data[places[12] + 90] ^= 1
    path.write_bytes(data)
    return tmp_path / "s", places


def test_damage_fails_the_query_by_default(damaged: tuple[Path, list[int]]) -> None:
    root, places = damaged
    with pytest.raises(RecordCorrupt, match=rf"record at {places[10]}: magic is 0xdba320a7 \(.*{file_name(0)}\)"):
        read(root)


def test_damage_is_skipped_and_reported(damaged: tuple[Path, list[int]]) -> None:
    root, places = damaged
    rows = read(root, onCorrupt="skip", checkCRC="true", columns="physicalOffset,crcOk,corruptReason,segment")
    assert places_of(rows) == places
    bad = [(row["physicalOffset"], row["corruptReason"].split(" is ")[0]) for row in rows if not row["crcOk"]]
    assert bad == [(places[10], "magic"), (places[12], "body CRC")]
    without_crc = read(root, onCorrupt="skip", columns="min")
    assert places_of(without_crc) == places[:10] + places[11:]


def test_damage_can_end_the_piece(damaged: tuple[Path, list[int]]) -> None:
    root, places = damaged
    rows = read(root, onCorrupt="truncate", columns="min")
    assert places_of(rows) == places[:10] + [place for place in places if place >= SEGMENT]


def test_a_torn_record_at_the_end_is_no_damage(tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60)
    last = list_segments(tmp_path / "s")[-1]
    last.path.write_bytes(last.path.read_bytes()[:-5])
    assert places_of(read(tmp_path / "s")) == places[:-1]


def test_a_live_tail_may_hold_anything(tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60)
    last = list_segments(tmp_path / "s")[-1]
    with last.path.open("ab") as file:
        file.write(b"half a record" * 9 + bytes(500))
    with pytest.raises(RecordCorrupt):
        read(tmp_path / "s")
    assert places_of(read(tmp_path / "s", liveTail="true")) == places


def test_zeros_within_the_log_are_damage(tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60)
    first = list_segments(tmp_path / "s")[0]
    data = first.path.read_bytes()
    first.path.write_bytes(data[: places[5]] + bytes(SEGMENT - places[5]))
    with pytest.raises(RecordCorrupt, match="zeros, where other files of the log follow"):
        read(tmp_path / "s")
    kept = places_of(read(tmp_path / "s", onCorrupt="skip"))
    assert kept == places[:5] + [place for place in places if place >= SEGMENT]


@pytest.mark.parametrize("live_tail", ["false", "true"])
@pytest.mark.parametrize("filler", [b"\0", b"x"])
def test_damage_before_the_last_piece_is_not_the_end_of_the_log(tmp_path: Path, filler: bytes, live_tail: str) -> None:
    """The last file, in two pieces. A query that took the damage for the end would leave out the record behind it.
    Fault: Damage in one piece of the last log file was taken for its end, and the rest was left out."""
    places = make_store(tmp_path / "s", 5)
    (segment,) = list_segments(tmp_path / "s")
    data = segment.path.read_bytes()
    segment.path.write_bytes(data[: places[1]] + filler * (places[2] - places[1]) + data[places[2] :])
    options = {"splitBytes": places[2] + 10, "liveTail": live_tail, "columns": "min"}
    with pytest.raises(RecordCorrupt, match=f"record at {places[1]}"):
        read(tmp_path / "s", **options)
    assert places_of(read(tmp_path / "s", onCorrupt="skip", **options)) == [places[0], *places[2:]]


def test_a_missing_file_and_no_store(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    list_segments(tmp_path / "s")[1].path.unlink()
    with pytest.raises(StoreError, match="a file is missing or was cut short"):
        read(tmp_path / "s")
    with pytest.raises(StoreError, match="it has no directory commitlog"):
        read(tmp_path)
    (tmp_path / "empty/commitlog").mkdir(parents=True)
    assert read(tmp_path / "empty") == []


def test_a_boundary_that_is_no_record_is_seen(tmp_path: Path) -> None:
    from rocketpy.spark.segments import Piece
    from rocketpy.spark.store_source import PieceReader

    places = make_store(tmp_path / "s", 60)
    options = parse_options(StoreOptions, {"path": str(tmp_path / "s")})
    piece = Piece(list_segments(tmp_path / "s")[0], 0, places[4] + 3)
    with pytest.raises(RecordCorrupt, match="read with boundary=walk"):
        list(PieceReader(options, ("body",), piece).batches())


def test_units_that_lie_are_not_believed(tmp_path: Path) -> None:
    places = make_store(tmp_path / "s", 60, units=True)
    path = tmp_path / "s/consumequeue/A/0" / file_name(0)
    units = [CQ_UNIT.pack(place + 7, 100, 0) for place in places]
    path.write_bytes(b"".join(units))
    assert places_of(read(tmp_path / "s", splitBytes=500)) == places
    with contextlib.suppress(FileNotFoundError):
        path.write_bytes(b"\xff" * 999)
    assert places_of(read(tmp_path / "s", splitBytes=500)) == places
