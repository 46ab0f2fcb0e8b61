"""Rows of an archive in their order: as by a sort of four columns, whether the log had them in order or not."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rocketpy.spark.jobs.archive_files import PLACE, _by_place, sorted_by_day

ORDER = (*PLACE, "queueOffset")
KINDS = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "storeTimestamp": pa.timestamp("us", "UTC"),
    "number": pa.int64(),
}


def rows_of(rng: random.Random, count: int, *, in_order: bool) -> Any:
    """A table in two chunks; some rows have no day."""
    ends: dict[tuple[str, int], int] = {}
    rows = []
    for number in range(count):
        place = rng.choice("ab"), rng.randrange(-1, 3)
        ends[place] = ends.get(place, -1) + 1
        offset = ends[place] if in_order else rng.randrange(20)
        time = None if rng.random() < 0.1 else datetime(2024, 1, 1 + rng.randrange(3), tzinfo=UTC)
        rows.append((*place, offset, time, number))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(KINDS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, KINDS.values(), strict=True)]
    table = pa.table(arrays, list(KINDS))
    return pa.concat_tables([table.slice(0, 2), table.slice(2)])


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_rows_are_in_the_order_of_four_columns(count: int, in_order: bool) -> None:
    for seed in range(20):
        table = rows_of(random.Random(seed), count, in_order=in_order)
        day = pc.cast(pc.floor_temporal(table["storeTimestamp"], unit="day"), pa.date32())
        expected = table.append_column("dt", day).sort_by([(column, "ascending") for column in ORDER])
        found = sorted_by_day(table)
        compared = expected.column_names if in_order else ORDER  # rows of one place may take any order
        assert found.select(compared).equals(expected.select(compared)), seed
        places = _by_place(table)
        repeated = [tuple(place) for place, rows in places.items() for _ in range(rows.num_rows)]
        assert repeated == list(zip(*(found[name].to_pylist() for name in PLACE), strict=True)), seed


def test_rows_of_a_batch_in_order_are_not_copied() -> None:
    """The archive of a store decodes batches in order: its bodies are copied once."""
    table = rows_of(random.Random(1), 20_000, in_order=True)
    ordered = sorted_by_day(table).drop_columns("dt").combine_chunks()
    (batch,) = ordered.to_batches()
    addresses = {buffer.address for column in batch.columns for buffer in column.buffers()[1:]}
    for rows in _by_place(ordered).values():
        for column in rows.drop_columns("dt").columns:
            assert all(chunk.buffers()[-1].address in addresses for chunk in column.chunks)


def test_short_runs_are_copied_into_one_batch() -> None:
    """Fault: A slice for each run of a batch took a gigabyte where messages of 10 000 topics alternate."""
    table = rows_of(random.Random(1), 4000, in_order=True)
    batches = pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=100))
    places = _by_place(batches)
    assert len(places) > 20 and all(rows["topic"].num_chunks == 1 for rows in places.values())
    assert sorted_by_day(batches)["topic"].num_chunks == 1
