"""Job archive: the records of a store as Parquet files, `topic=T/dt=2026-11-22/broker-a-00000000000000000000.parquet`.

Bytes of the log that are no message, and messages with bodies that cannot be decompressed, are rows of a side table.
Its files are in `_rocketpy/BROKER/bad`, where readers of the archive do not look, and are named by manifests.

A run archives what the log has after the end of the run before. Each worker writes the files of its piece to a
directory that readers do not see. After every COMMIT_BYTES of the log the driver creates a manifest (archive_log.py)
and moves the files to their places. After a run that was cut short, the next one moves what the last manifest names
and goes on after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.errors import StoreError
from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.verify import NO_LISTENER

from ..decoder import RowOrder
from ..decoding import ROWS_MAX
from ..options import parse_options
from ..scan import BadPlace
from ..segments import Piece, Segment, list_segments, mapped
from ..store_options import StoreOptions
from ..store_source import PieceReader, plan
from .archive_files import COLUMNS, ORDERED_BY, new_attempt, queue_order, write_rows, write_table
from .archive_log import ArchivedFile, ArchiveLog, Manifest
from .running import run_in_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SPLIT_BYTES = 64 << 20  # of the log, for one task
COMMIT_BYTES = 2 << 30  # of the log, for one manifest: some seconds of work are lost when a run is killed
ORDERED_BYTES = 4 << 20  # of records that are decoded in one order; with 1 or 16 MiB it takes more CPU
RAW_MAX = 4 << 20  # bytes of a place that are kept: one of zeros may be as large as its file
BAD_SCHEMA = pa.schema(
    [
        ("brokerName", pa.string()),
        ("segment", pa.string()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.binary()),
    ]
)


@attrs.frozen
class PieceResult:
    """The files that a worker has written for one piece; `end` is the phy offset after its last record, 0 without
    one."""

    end: int
    files: list[ArchivedFile]
    bad: list[ArchivedFile]  # of the side table: one, or none


def archive(
    spark: SparkSession | None,
    root: Path,
    target: Path,
    *,
    broker: str,
    split_bytes: int = SPLIT_BYTES,
    commit_bytes: int = COMMIT_BYTES,
    allow_gap: bool = False,
    live_tail: bool = False,
    skip_damage: bool = False,
    listener: ProgressListener = NO_LISTENER,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Manifest]:
    """Archive what is new in a store.

    Args:
        root: the store, at the same path on every worker, as is `target`.
        target: the archive; made if it is not there. Several brokers may share it.
        broker: the broker's name; it tells the stores in one archive apart.
        split_bytes: log bytes of one task, about.
        commit_bytes: log bytes of one manifest, about; at least a task for each core is committed at a time.
        allow_gap: go on where retention has deleted records before they were archived.
        live_tail: a broker is writing: its unfinished record ends the log.
        skip_damage: go on after damaged records, which are then in the side table.
        is_stopped: asked after each commit; True ends the run there.
    Returns: the manifests of this run; none if there was nothing new.
    Raises:
        StoreError: another run is busy, records are gone, or the store is another one. RecordCorrupt: damage.
    """
    root, target = root.absolute(), target.absolute()
    list_segments(root)  # before anything is made: the store may be misspelt
    with ArchiveLog.opened(target, broker) as log:
        if log.positions:
            raise StoreError(
                f"{target}: the archive of broker {broker} is made of its topics; rows would be there twice: name "
                "another directory"
            )
        begin = begin_after(root, log.end, allow_gap)
        options = options_of(
            root,
            broker,
            begin,
            split_bytes=min(split_bytes, commit_bytes),
            live_tail=live_tail,
            skip_damage=skip_damage,
        )
        manifests: list[Manifest] = []
        pieces = plan(options, begins_at_record=True)
        work = partial(archive_piece, options, log.pending)
        size = max(1, commit_bytes // split_bytes)
        for _, results in run_in_groups(spark, lambda: work, pieces, size, "archive", listener, is_stopped):
            files = [file for result in results for file in result.files]
            bad = [file for result in results for file in result.bad]
            if files or bad:
                end = max(begin, *(result.end for result in results))
                manifests.append(log.commit(Manifest(begin=begin, end=end, files=files, bad=bad)))
                begin = end
        return manifests


def begin_after(root: Path, archived: int | None, allow_gap: bool) -> int:
    """Return the phy offset from which on a run reads; `archived` is where the run before has ended, if there was one.

    Raises:
        StoreError: the log does not go on there.
    """
    segments = list_segments(root)
    first, end = (segments[0].start, segments[-1].end) if segments else (0, 0)
    if archived is None:
        return first
    if archived > end:
        raise StoreError(f"{root}: the log ends before {end}, but is archived up to {archived}: this is another store")
    if archived < first and not allow_gap:
        raise StoreError(
            f"{root}: the log begins at {first}, and is archived up to {archived}: what was between is deleted; "
            "--allow-gap goes on without it"
        )
    if archived < first:
        lost = (root, first - archived, archived, first)
        logger.warning("%s: %d bytes of the log, %d to %d, were deleted before they were archived", *lost)
    return max(first, archived)


def options_of(
    root: Path, broker: str, begin: int, *, split_bytes: int, live_tail: bool, skip_damage: bool
) -> StoreOptions:
    """Return the options of the source for a run."""
    return parse_options(
        StoreOptions,
        {
            "path": str(root),
            "brokerName": broker,
            "startPhysicalOffset": str(begin),
            "splitBytes": str(split_bytes),
            "liveTail": str(live_tail).lower(),
            "checkCRC": "true",
            "onCorrupt": "skip" if skip_damage else "fail",
        },
    )


def archive_piece(options: StoreOptions, pending: Path, piece: Piece) -> PieceResult:
    """Write the records of a piece. Runs in a worker; with `liveTail` a repetition may find more of them."""
    reader = PieceReader(attrs.evolve(options, rows_max=ROWS_MAX, bytes_max=ORDERED_BYTES), COLUMNS, piece)
    reader.decoder.order = RowOrder(ORDERED_BY, queue_order)
    places = reader.decoder.bad = []
    files, end = write_rows(reader.batches(), pending, partial(_name, options.broker_name, piece.begin))
    return PieceResult(end, files, _write_bad(options, pending, piece, places))


def _name(broker: str | None, begin: int, number: int, chunk: Any) -> str:
    """By the phy offset from which on the file has records."""
    return f"{broker}-{pc.min(chunk['physicalOffset']).as_py() if number else begin:020}.parquet"


def _write_bad(options: StoreOptions, pending: Path, piece: Piece, places: Sequence[BadPlace]) -> list[ArchivedFile]:
    if not places:
        return []
    broker = options.broker_name or ""
    name = f"_rocketpy/{broker}/bad/{broker}-{piece.begin:020}.parquet"
    attempt = new_attempt()
    size = write_table(bad_table(broker, piece.segment, places), pending / attempt / name)
    return [ArchivedFile(name, len(places), size, {}, attempt)]


def bad_table(broker: str, segment: Segment, places: Sequence[BadPlace]) -> Any:
    """Return a row of the side table for each place, with the first RAW_MAX bytes of it."""
    rows = []
    with mapped(segment) as image:
        for place in places:
            at = place.phy_offset - segment.start
            raw = bytes(image[at : at + min(place.size, RAW_MAX)])
            rows.append((broker, segment.path.name, place.phy_offset, place.size, place.reason, raw))
    columns = zip(*rows, strict=True) if rows else ((),) * len(BAD_SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, BAD_SCHEMA, strict=True)], schema=BAD_SCHEMA
    )
