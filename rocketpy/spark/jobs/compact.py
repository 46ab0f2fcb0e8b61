"""Compaction of an archive: small files of a topic and day become one, by one manifest.

The new file has the name of the first one of its rows, with the number of the manifest, and the old ones are removed.
Spark lists directories: a reader that starts while files are moved can see rows twice, so compact while nothing reads.
"""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from rocketpy.errors import StoreError

from .archive_files import DELTA_ENCODED, new_attempt, opened_table, write_table
from .archive_log import ArchivedFile, ArchiveLog, Manifest, files_of, manifests_of
from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 256 << 20  # of a file after compaction, about
MEMORY_BYTES = 512 << 20  # of rows that one task has in memory
ORDER = [("queueId", "ascending"), ("queueOffset", "ascending")]
HASHES = 1 << 64
OFFSET_BYTES = 8  # of one in memory; files have differences


@attrs.frozen
class Group:
    """Files of one directory, in the order of the log, that become one."""

    files: list[ArchivedFile]

    @property
    def queues(self) -> dict[str, list[int]]:
        """First and last offset of each queue."""
        joined: dict[str, list[int]] = {}
        for file in self.files:
            for queue, (low, high) in file.queues.items():
                known = joined.setdefault(queue, [low, high])
                known[:] = min(known[0], low), max(known[1], high)
        return joined


def compact(
    spark: SparkSession | None,
    target: Path,
    broker: str,
    *,
    file_bytes: int = FILE_BYTES,
    memory_bytes: int = MEMORY_BYTES,
) -> Manifest | None:
    """Merge files of less than half of `file_bytes`. Returns the manifest; None if there was nothing to do.

    Args:
        target: the archive, at the same path on every worker.
        broker: the broker whose files are merged.
        file_bytes: of a merged file, about.
        memory_bytes: of the rows of a merged file, not compressed.
    Raises:
        StoreError: another run is busy, or a merged file does not have the rows of the old ones.
    """
    target = target.absolute()
    with ArchiveLog.opened(target, broker) as log:
        if log.end is None:
            return None
        groups = plan_groups(target, files_of(manifests_of(target)[broker]), file_bytes, memory_bytes)
        files = list(run_parts(spark, partial(merge, target, log.pending, log.number + 1), groups))
        if not files:
            return None
        removed = [file.path for group in groups for file in group.files]
        return log.commit(Manifest(log.end, log.end, files, removed))


def plan_groups(target: Path, files: list[ArchivedFile], file_bytes: int, memory_bytes: int) -> list[Group]:
    """Neighbours among the small files of each directory, as long as one file of them is not too large."""
    directories: dict[str, list[ArchivedFile]] = {}
    for file in files:
        directories.setdefault(file.path.rsplit("/", 1)[0], []).append(file)
    groups = []
    for neighbours in directories.values():
        group, stored, unpacked = list[ArchivedFile](), 0, 0
        for file in neighbours:
            is_small = file.bytes < file_bytes // 2
            size = _unpacked_bytes(target / file.path) if is_small else 0
            if not is_small or stored + file.bytes > file_bytes or unpacked + size > memory_bytes:
                groups.append(Group(group))
                group, stored, unpacked = [], 0, 0
            if is_small:
                group.append(file)
                stored, unpacked = stored + file.bytes, unpacked + size
        groups.append(Group(group))
    return [group for group in groups if len(group.files) > 1]


def _unpacked_bytes(path: Path) -> int:
    with opened_table(path) as file:
        metadata = file.metadata
        encoded = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
        return int(encoded) + OFFSET_BYTES * len(DELTA_ENCODED) * int(metadata.num_rows)


def merge(target: Path, pending: Path, number: int, group: Group) -> ArchivedFile:
    """Write one file with the rows of a group. Runs in a worker.

    Raises:
        StoreError: what was written does not have the rows of the old files.
    """
    tables = [_read(target / file.path) for file in group.files]
    expected = [sum(column) for column in zip(*map(sums_of, tables), strict=True)]
    path = f"{group.files[0].path.removesuffix('.parquet')}.{number:08}.parquet"
    attempt = new_attempt()
    place = pending / attempt / path
    size = write_table(pa.concat_tables(tables).sort_by(ORDER), place)
    written = sums_of(_read(place))
    if [written[0], written[1] % HASHES] != [expected[0], expected[1] % HASHES]:
        raise StoreError(f"{place} does not have the rows of {len(group.files)} files: nothing was changed")
    return ArchivedFile(path, written[0], size, group.queues, attempt)


def _read(path: Path) -> Any:
    with opened_table(path) as file:
        return file.read()


def sums_of(table: Any) -> tuple[int, int]:
    """Rows, and the sum of their hashes: of places, bodies and properties."""
    total = 0
    for batch in table.select(["physicalOffset", "queueId", "queueOffset", "body", "properties"]).to_batches(4096):
        columns = (column.to_pylist() for column in batch.columns)
        for offset, queue, queue_offset, body, properties in zip(*columns, strict=True):
            total += zlib.crc32(body, zlib.crc32(repr((offset, queue, queue_offset, properties)).encode()))
    return table.num_rows, total % HASHES
