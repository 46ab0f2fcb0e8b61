"""The Parquet files of an archive: rows become a file for each topic and day, sorted, in bounded memory."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketpy.atomic_file import make_directory
from rocketpy.errors import StoreError
from rocketpy.store.files import translated
from rocketpy.store.replaced_file import durably_replaced

from ..columns import SETS, arrow_schema, parse_columns
from .archive_log import ArchivedFile

CHUNK_BYTES = 128 << 20  # of rows that a task holds; bodies may inflate a thousandfold
PAGE_BYTES = 1 << 20  # of a Parquet page, about: the writer looks at its size only after a batch of rows
PAGE_ROWS = 1024
COLUMNS = parse_columns(SETS[-1], diagnostics=False)
IN_FILES = tuple(name for name in COLUMNS if name != "topic")  # which the directory says
WITHOUT_STATISTICS = ("body", "properties", "raw", "offsetMsgId")
"""No query skips pages by the least and greatest of these; offsetMsgId has storeHost and physicalOffset."""
DELTA_ENCODED = ("queueOffset", "physicalOffset")  # by DELTA_BINARY_PACKED: 20 times smaller in half of the time
PLACE = ("topic", "dt", "queueId")
ORDERED_BY = ("topic", "storeTimestamp", "queueId")  # what queue_order looks at
DAY_US = 86_400_000_000
CHUNK_ROWS_MIN = 256  # of a chunk, on average
NO_DAY_NUMBER = -(1 << 31)
NO_DAY = "__HIVE_DEFAULT_PARTITION__"

NameOf = Callable[[int, Any], str]
"""The name of a chunk's files, by its number and its rows; later rows of a queue have later names."""


def write_rows(batches: Iterable[Any], pending: Path, name_of: NameOf) -> tuple[list[ArchivedFile], int]:
    """Write batches of COLUMNS.

    Args:
        pending: gets a directory for this attempt, which the paths of the files are below.
    Returns: the files, and the phy offset after the last record; 0 without records.
    """
    files: list[ArchivedFile] = []
    attempt, number, end = new_attempt(), 0, 0
    for chunk in chunks(batches, CHUNK_BYTES):
        files += _write_chunk(chunk, pending, attempt, name_of(number, chunk))
        ends = pc.add(chunk["physicalOffset"], pc.cast(chunk["storeSize"], pa.int64()))
        end, number = max(end, pc.max(ends).as_py()), number + 1
        del chunk  # before the next one is made
    return files, end


def chunks(batches: Iterable[Any], chunk_bytes: int) -> Iterator[Any]:
    """Tables of about so many bytes."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= chunk_bytes:
            yield pa.Table.from_batches(held, arrow_schema(COLUMNS))
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, arrow_schema(COLUMNS))


class Place(NamedTuple):
    """The sort key of an archive's rows, before `queueOffset`."""

    topic: str
    day: datetime.date | None  # UTC; rows without one come last
    queue_id: int

    @property
    def rank(self) -> tuple[str, bool, datetime.date, int]:
        return self.topic, self.day is None, self.day or datetime.date.min, self.queue_id


def sorted_by_day(table: Any) -> Any:
    """The rows with the column `dt`, the UTC day of storing, by topic, day, queue and offset."""
    places = list(_by_place(table).values())
    return _with_long_chunks(pa.concat_tables(places)) if places else table.append_column("dt", _days(table))


def _by_place(table: Any) -> dict[Place, Any]:
    """The rows of each place in the order of queueOffset, with the column `dt`; the places in order.

    Rows are slices of the table's batches where these have long runs of a place, as an archive decodes them. Otherwise
    all rows are copied once into this order: a slice costs 8 KiB.
    """
    table = table.append_column("dt", _days(table))
    batches = table.to_batches()
    begins = [_begins(batch) for batch in batches]
    if CHUNK_ROWS_MIN * sum(map(len, begins)) > table.num_rows:
        batches = [batch.take(queue_order(batch)) for batch in table.combine_chunks().to_batches()]
        begins = [_begins(batch) for batch in batches]
    found: dict[Place, list[Any]] = defaultdict(list)
    for batch, starts in zip(batches, begins, strict=True):
        columns = [batch[name].take(pa.array(starts, pa.int64())).to_pylist() for name in PLACE]
        for start, end, *place in zip(starts, [*starts[1:], batch.num_rows], *columns, strict=True):
            found[Place(*place)].append(batch.slice(start, end - start))
    return {place: _by_offset(pa.Table.from_batches(found[place])) for place in sorted(found, key=lambda one: one.rank)}


def _by_offset(table: Any) -> Any:
    return table.sort_by("queueOffset") if _has_steps_back(_one_array(table["queueOffset"])) else table


def _begins(batch: Any) -> list[int]:
    """Return where each run of one place begins."""
    if not batch.num_rows:
        return []
    last = batch.num_rows - 1
    changes = None
    for name in PLACE:
        column = pc.fill_null(pc.cast(batch[name], pa.int32()), NO_DAY_NUMBER) if name == "dt" else batch[name]
        differs = pc.not_equal(column.slice(1), column.slice(0, last))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist())]


def queue_order(batch: Any) -> Any:
    """The numbers of a batch's rows by topic, day and queue, and as they are in the log within a queue.

    A stable sort of one number for each topic, day and queue takes half the time of one by three columns. Most batches
    have one topic and day; sorting these by queueId alone takes a quarter of that.
    """
    if _has_one_topic_and_day(batch["topic"], batch["storeTimestamp"]):
        return pc.sort_indices(batch["queueId"])
    numbers = None
    for column in (batch["topic"], _days(batch), batch["queueId"]):
        encoded = column.dictionary_encode()
        ranks = pc.sort_indices(pc.sort_indices(encoded.dictionary))
        own = pc.fill_null(pc.cast(ranks.take(encoded.indices), pa.int64()), len(ranks))  # nulls come last
        numbers = own if numbers is None else pc.add(pc.multiply(numbers, len(ranks) + 1), own)
    return pc.sort_indices(numbers)


def _has_one_topic_and_day(topics: Any, times: Any) -> bool:
    """Return True if all rows have one topic and one UTC day."""
    if not len(topics) or times.null_count:
        return False
    topic, time = pc.min_max(topics), pc.min_max(times)
    return bool(topic["min"] == topic["max"] and time["min"].value // DAY_US == time["max"].value // DAY_US)


def _days(rows: Any) -> Any:
    """The UTC days of storing. Without its zone, which is UTC, a time is not looked up in a table of zones."""
    days = pc.floor_temporal(pc.cast(rows["storeTimestamp"], pa.timestamp("us")), unit="day")
    return pc.cast(days, pa.date32())


def _has_steps_back(numbers: Any) -> bool:
    return bool(pc.any(pc.less(numbers.slice(1), numbers.slice(0, max(0, len(numbers) - 1)))).as_py())


def _one_array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _with_long_chunks(table: Any) -> Any:
    """Join chunks if they are short: a writer has work for each."""
    return table if table.num_rows >= CHUNK_ROWS_MIN * table["queueId"].num_chunks else table.combine_chunks()


def _write_chunk(table: Any, pending: Path, attempt: str, name: str) -> list[ArchivedFile]:
    """A file for each topic and day."""
    files = []
    for (topic, day), group in itertools.groupby(_by_place(table).items(), key=lambda item: item[0][:2]):
        places = dict(group)
        ranges = {str(place.queue_id): _ends(rows["queueOffset"]) for place, rows in places.items()}
        part = _with_long_chunks(pa.concat_tables(places.values()).select(IN_FILES))
        path = _path(topic, day, name)
        size = write_table(part, pending / attempt / path)
        files.append(ArchivedFile(path, part.num_rows, size, ranges, attempt))
    return files


def _ends(offsets: Any) -> list[int]:
    return [offsets[0].as_py(), offsets[-1].as_py()]


def _path(topic: str, day: datetime.date | None, name: str) -> str:
    """Below the archive; Spark undoes the escapes."""
    return f"topic={quote(topic, safe='')}/dt={day.isoformat() if day else NO_DAY}/{name}"


@contextmanager
def opened_table(path: Path) -> Iterator[Any]:
    """A pq.ParquetFile.

    Raises:
        StoreError: the file cannot be read, or is damaged; also within the block.
    """
    try:
        with translated(path, "read"), pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowException as error:
        raise StoreError(f"{path} is damaged, or is no Parquet file: {error}") from error


def new_attempt() -> str:
    """A name that no other attempt at a task has."""
    return uuid4().hex


def write_table(table: Any, path: Path) -> int:
    """Write a file and bring it to the disk, then give it its name. Returns its size."""
    with translated(path, "write"):
        make_directory(path.parent)
    with durably_replaced(path) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            use_dictionary=["brokerName", "tags", "bornHost", "storeHost"],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in DELTA_ENCODED if name in table.column_names},
            write_statistics=[name for name in table.column_names if name not in WITHOUT_STATISTICS],
            write_batch_size=max(1, min(PAGE_ROWS, PAGE_BYTES * table.num_rows // max(1, table.nbytes))),
        )
        return file.tell()
