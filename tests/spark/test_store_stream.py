"""A stream over a store: every record once, over limits, growth, restarts and deleted files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from rocketpy.errors import ConfigError, StoreError
from rocketpy.spark.options import parse_options
from rocketpy.spark.segments import end_of_log, list_segments
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.store_source import PieceReader, StoreReader
from rocketpy.spark.store_stream import StoreStreamReader, document_of
from rocketpy.store.formats.unit import CQ_STORE_UNIT_SIZE, CQ_UNIT
from tests.spark.test_segments import SEGMENT, make_store

BLANKS = 3  # at the begin of the queue that make_store writes


def reader_of(root: Path, **given: Any) -> StoreStreamReader:
    texts = {key: str(value) for key, value in given.items()}
    options = parse_options(StoreOptions, {"path": str(root), "columns": "min", **texts})
    return StoreStreamReader(options, StoreReader(options, options.names()).read)


def places_of(reader: StoreStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    pieces = [task.value for task in reader.partitions(start, end)]
    names = reader.options.names()
    batches = (batch for piece in pieces for batch in PieceReader(reader.options, names, piece).batches())
    return [row["physicalOffset"] for batch in batches for row in batch.to_pylist()]


def follow(reader: StoreStreamReader, at: dict[str, Any], limit: ReadLimit) -> tuple[list[list[int]], dict[str, Any]]:
    """The batches up to the end of the store, and where it is."""
    batches = []
    while (end := reader.latestOffset(at, limit)) != at:
        batches.append(places_of(reader, at, end))
        at = end
    return batches, at


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("limit", [1, 100, 777, 1 << 20])
@pytest.mark.parametrize("split", [150, 1 << 20])
def test_batches_of_every_size_have_each_record_once(tmp_path: Path, units: bool, limit: int, split: int) -> None:
    places = make_store(tmp_path, 60, units=units, zeros=500)
    reader = reader_of(tmp_path, splitBytes=split, maxBytesPerTrigger=limit)
    batches, end = follow(reader, reader.initialOffset(), ReadMaxBytes(limit))
    found = [place for batch in batches for place in batch]
    last = len(found) if units else 60  # the last record may be of topic B, which has no queue here
    assert found == places[:last] and last >= 58
    assert end == document_of(end_of_log(tmp_path, list_segments(tmp_path)))
    assert len(batches) > 20 or limit > 100


def test_a_record_is_read_when_it_was_dispatched(tmp_path: Path) -> None:
    """What is behind the last unit may still be on its way into the file."""
    places = make_store(tmp_path, 60, units=True)
    queue = next((tmp_path / "consumequeue/A/0").iterdir())
    units = queue.read_bytes()
    phy_offsets = [CQ_UNIT.unpack_from(units, (BLANKS + n) * CQ_STORE_UNIT_SIZE)[0] for n in (9, 10)]
    queue.write_bytes(units[: (BLANKS + 10) * CQ_STORE_UNIT_SIZE] + bytes(200))
    reader = reader_of(tmp_path)
    (first,), at = follow(reader, reader.initialOffset(), ReadAllAvailable())
    assert first == [place for place in places if place <= phy_offsets[0]]
    queue.write_bytes(units)
    (second,), _ = follow(reader, at, ReadAllAvailable())
    assert second[: len(second)] == places[len(first) : len(first) + len(second)] and phy_offsets[1] in second


def test_where_a_stream_begins_and_ends(tmp_path: Path) -> None:
    places = make_store(tmp_path, 60)
    reader = reader_of(tmp_path, startPhysicalOffset=places[5] - 1, endPhysicalOffset=places[40] + 1)
    assert reader.initialOffset() == document_of(places[5])
    (batch,), _ = follow(reader, reader.initialOffset(), ReadAllAvailable())
    assert batch == places[5:41]


def test_available_now_reads_what_was_there(tmp_path: Path) -> None:
    places = make_store(tmp_path / "a", 60)
    reader = reader_of(tmp_path / "a")
    reader.prepareForTriggerAvailableNow()
    longer = make_store(tmp_path / "b", 90)
    assert longer[:60] == places
    for path in (tmp_path / "b/commitlog").iterdir():
        (tmp_path / "a/commitlog" / path.name).write_bytes(path.read_bytes())
    batches, at = follow(reader, reader.initialOffset(), ReadAllAvailable())
    assert batches == [places]
    assert follow(reader_of(tmp_path / "a"), at, ReadAllAvailable())[0] == [longer[60:]]


def test_deleted_files_are_an_error_or_passed_over(tmp_path: Path) -> None:
    places = make_store(tmp_path, 60)
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    list_segments(tmp_path)[0].path.unlink()
    with pytest.raises(StoreError, match=f"the log begins at {SEGMENT}, and 0 to .* With failOnDataLoss=false"):
        reader.partitions(start, end)
    assert places_of(reader_of(tmp_path, failOnDataLoss="false"), start, end) == [p for p in places if p >= SEGMENT]


@pytest.mark.parametrize("limit", [1000, 1 << 20])
def test_a_limit_counts_from_what_is_left_of_the_log(tmp_path: Path, limit: int) -> None:
    """Fault: A stream over a store ended with StopIteration when files past its checkpoint were deleted."""
    places = make_store(tmp_path, 60)
    first = list_segments(tmp_path)[0]
    first.path.unlink()
    for loss, expected in (("true", None), ("false", [place for place in places if place >= first.end])):
        reader = reader_of(tmp_path, maxBytesPerTrigger=limit, failOnDataLoss=loss)
        if expected is None:
            with pytest.raises(StoreError, match="files were deleted before they were read"):
                follow(reader, document_of(0), ReadMaxBytes(limit))
        else:
            batches, _ = follow(reader, document_of(0), ReadMaxBytes(limit))
            assert [place for batch in batches for place in batch] == expected


def test_the_topic_of_the_newest_records_may_be_deleted(tmp_path: Path) -> None:
    """Fault: A stream over a store took a deleted topic for another store."""
    places = make_store(tmp_path, 60, units=True)
    reader = reader_of(tmp_path)
    batches, at = follow(reader, reader.initialOffset(), ReadAllAvailable())
    queue = next((tmp_path / "consumequeue/A/0").iterdir())
    units = queue.read_bytes()
    queue.write_bytes(units[: (BLANKS + 10) * CQ_STORE_UNIT_SIZE] + bytes(200))  # other topics have fewer records
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    queue.write_bytes(units)
    assert follow(reader, at, ReadAllAvailable()) == ([], at)
    assert len(batches[0]) in (len(places), len(places) - 1)


def test_another_store_is_noticed(tmp_path: Path) -> None:
    make_store(tmp_path, 10)
    with pytest.raises(StoreError, match=re.escape("was read up to 1000000, but the log ends at")):
        reader_of(tmp_path).latestOffset(document_of(1_000_000), ReadAllAvailable())
    with pytest.raises(ConfigError, match="holds no phy offset"):
        reader_of(tmp_path).latestOffset({"q": {}, "v": 1}, ReadAllAvailable())


def test_an_empty_store_waits(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    reader = reader_of(tmp_path)
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == reader.initialOffset() == document_of(0)


def test_a_query_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    store, longer = tmp_path / "store", tmp_path / "longer"
    counts = []
    for count in (40, 60):
        places = make_store(longer / str(count), count)
        (store / "commitlog").mkdir(parents=True, exist_ok=True)
        for path in (longer / str(count) / "commitlog").iterdir():
            (store / "commitlog" / path.name).write_bytes(path.read_bytes())
        options = {"path": str(store), "columns": "min", "maxBytesPerTrigger": "6000"}
        stream = spark.readStream.format("rocketmq_store").options(**options).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "out")).select("physicalOffset").collect()
        assert sorted(row.physicalOffset for row in rows) == places
        counts.append(len(rows))
    assert counts == [40, 60]
