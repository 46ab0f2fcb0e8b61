"""The Parquet files of an archive: rows become a file for each topic and day, sorted, in bounded memory."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
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

CHUNK_BYTES = 128 << 20  # of rows that a task sorts; sorting takes them three times. Bodies may inflate a thousandfold
PAGE_BYTES = 1 << 20  # of a Parquet page, about: the writer looks at its size only after a batch of rows
PAGE_ROWS = 1024
COLUMNS = parse_columns(SETS[-1], diagnostics=False)
IN_FILES = tuple(name for name in COLUMNS if name != "topic")  # which the directory says
ORDER = ("topic", "dt", "queueId", "queueOffset")
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


def sorted_by_day(table: Any) -> Any:
    """The rows with the column `dt`, the UTC day of storing, by topic, day, queue and offset.

    A log has the messages of a queue in their order, unless something went wrong: a stable sort of one number for
    each topic, day and queue is enough then, and takes half the time of one by four columns.
    """
    day = pc.cast(pc.floor_temporal(table["storeTimestamp"], unit="day"), pa.date32())
    table = table.append_column("dt", day).combine_chunks()
    groups = _numbered(table, ORDER[:-1])
    order = pc.sort_indices(groups)
    groups, table = groups.take(order), table.take(order)
    offsets, last = table["queueOffset"], max(0, table.num_rows - 1)
    steps_back = pc.less(offsets.slice(1), offsets.slice(0, last))
    if pc.any(pc.and_(steps_back, pc.equal(groups.slice(1), groups.slice(0, last)))).as_py():
        return table.sort_by([(column, "ascending") for column in ORDER])
    return table


def _numbered(table: Any, columns: Sequence[str]) -> Any:
    """A number for each row that is in the order of these columns; nulls come last."""
    numbers = None
    for column in columns:
        encoded = _one_array(table[column]).dictionary_encode()
        ranks = pc.sort_indices(pc.sort_indices(encoded.dictionary))
        own = pc.fill_null(pc.cast(ranks.take(encoded.indices), pa.int64()), len(ranks))
        numbers = own if numbers is None else pc.add(pc.multiply(numbers, len(ranks) + 1), own)
    return numbers


def _one_array(column: Any) -> Any:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


class Run(NamedTuple):
    """Neighbouring rows of one topic, day and queue."""

    topic: str
    day: datetime.date | None
    queue_id: int
    begin: int
    end: int


def _runs(table: Any) -> Iterator[Run]:
    """The runs of a sorted table, in order."""
    days = pc.fill_null(pc.cast(table["dt"], pa.int32()), NO_DAY_NUMBER)
    changes = pa.chunked_array([], pa.bool_())
    for column in (table["topic"], days, table["queueId"]):
        differs = pc.not_equal(column.slice(1), column.slice(0, table.num_rows - 1))
        changes = pc.or_(changes, differs) if len(changes) else differs
    begins = [0, *(at + 1 for at in pc.indices_nonzero(changes).to_pylist())]
    for begin, end in itertools.pairwise([*begins, table.num_rows]):
        topic, day, queue_id = (table[name][begin].as_py() for name in ORDER[:-1])
        yield Run(topic, day, queue_id, begin, end)


def _write_chunk(table: Any, pending: Path, attempt: str, name: str) -> list[ArchivedFile]:
    """A file for each topic and day."""
    table = sorted_by_day(table)
    offsets, files = table["queueOffset"], []
    for (topic, day), group in itertools.groupby(_runs(table), key=lambda run: (run.topic, run.day)):
        runs = list(group)
        ranges = {str(run.queue_id): [offsets[at].as_py() for at in (run.begin, run.end - 1)] for run in runs}
        part = table.slice(runs[0].begin, runs[-1].end - runs[0].begin).select(IN_FILES)
        path = _path(topic, day, name)
        size = write_table(part, pending / attempt / path)
        files.append(ArchivedFile(path, part.num_rows, size, ranges, attempt))
    return files


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
            write_batch_size=max(1, min(PAGE_ROWS, PAGE_BYTES * table.num_rows // max(1, table.nbytes))),
        )
        return file.tell()
