"""The Parquet files of an archive: rows become a file for each topic and day, sorted, in bounded memory."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
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
    """The rows with the column `dt`, the UTC day of storing, by topic, day, queue and offset."""
    table = table.append_column("dt", pc.cast(pc.floor_temporal(table["storeTimestamp"], unit="day"), pa.date32()))
    return table.sort_by([(column, "ascending") for column in ORDER])


def _write_chunk(table: Any, pending: Path, attempt: str, name: str) -> list[ArchivedFile]:
    """A file for each topic and day."""
    table = sorted_by_day(table)
    queues = table.group_by(["topic", "dt", "queueId"]).aggregate([("queueOffset", "min"), ("queueOffset", "max")])
    ranges: dict[tuple[str, Any], dict[str, list[int]]] = {}
    for row in queues.to_pylist():
        of_file = ranges.setdefault((row["topic"], row["dt"]), {})
        of_file[str(row["queueId"])] = [row["queueOffset_min"], row["queueOffset_max"]]
    groups = table.group_by(["topic", "dt"]).aggregate([([], "count_all")])
    files, at = [], 0
    for row in groups.sort_by([("topic", "ascending"), ("dt", "ascending")]).to_pylist():
        part = table.slice(at, row["count_all"]).select(IN_FILES)
        at += row["count_all"]
        path = _path(row["topic"], row["dt"], name)
        size = write_table(part, pending / attempt / path)
        files.append(ArchivedFile(path, part.num_rows, size, ranges[row["topic"], row["dt"]], attempt))
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
