"""Job archive: the records of a store as Parquet files, `topic=T/dt=2026-11-22/broker-a-00000000000000000000.parquet`.

A run archives what the log has behind the end of the run before. Each worker writes the files of its piece to a
directory that readers do not see. After every PIECES_PER_COMMIT pieces the driver creates a manifest (archive_log.py)
and moves their files to their places. After a run that was cut short, the next one moves what the last manifest names
and goes on behind it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketpy.errors import StoreError

from ..bad_places import BadPlace
from ..columns import SETS, arrow_schema, parse_columns
from ..options import parse_options
from ..segments import Piece, list_segments
from ..store_options import StoreOptions
from ..store_source import PieceReader, plan
from .archive_log import ArchivedFile, ArchiveLog, Manifest
from .bad_rows import bad_table
from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 64 << 20  # of the log: a worker holds a piece in memory, to sort it
PIECES_PER_COMMIT = 256
COLUMNS = parse_columns(SETS[-1], diagnostics=False)
IN_FILES = tuple(name for name in COLUMNS if name != "topic")  # which the directory says
ORDER = ("topic", "dt", "queueId", "queueOffset")
NO_DAY = "__HIVE_DEFAULT_PARTITION__"


@attrs.frozen
class PieceResult:
    """What a worker has written of one piece; `end` is the phy offset behind its last record, or 0 without one."""

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
    allow_gap: bool = False,
    live_tail: bool = False,
    skip_damage: bool = False,
) -> list[Manifest]:
    """Archive what is new in a store.

    Args:
        root: the store, at the same path on every worker, as is `target`.
        target: the archive; made if it is not there. Several brokers may share it.
        broker: the broker's name; it tells the stores in one archive apart.
        split_bytes: log bytes of one task, about.
        allow_gap: go on where retention has deleted records before they were archived.
        live_tail: a broker is writing: its unfinished record ends the log.
        skip_damage: go on behind damaged records, which are then in the side table.
    Returns: the manifests of this run; none if there was nothing new.
    Raises:
        StoreError: another run is busy, records are gone, or the store is another one. RecordCorrupt: damage.
    """
    root, target = root.absolute(), target.absolute()
    with ArchiveLog.opened(target, broker) as log:
        begin = _begin(root, log, allow_gap)
        options = parse_options(
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
        pieces, manifests = plan(options), []
        for at in range(0, len(pieces), PIECES_PER_COMMIT):
            work = partial(archive_piece, options, log.pending)
            results = list(run_parts(spark, work, pieces[at : at + PIECES_PER_COMMIT]))
            files = [file for result in results for file in result.files]
            bad = [file for result in results for file in result.bad]
            if files or bad:
                end = max(begin, *(result.end for result in results))
                manifests.append(log.commit(Manifest(begin=begin, end=end, files=files, bad=bad)))
                begin = end
        return manifests


def _begin(root: Path, log: ArchiveLog, allow_gap: bool) -> int:
    """The phy offset from which on this run reads."""
    segments = list_segments(root)
    first, end = (segments[0].start, segments[-1].end) if segments else (0, 0)
    if log.end is None:
        return first
    if log.end > end:
        raise StoreError(f"{root}: the log ends before {end}, but is archived up to {log.end}: this is another store")
    if log.end < first and not allow_gap:
        raise StoreError(
            f"{root}: the log begins at {first}, and is archived up to {log.end}: what was between is deleted; "
            "--allow-gap goes on without it"
        )
    return max(first, log.end)


def archive_piece(options: StoreOptions, pending: Path, piece: Piece) -> PieceResult:
    """Write the records of a piece, a file for each topic and day. Runs in a worker; a repetition writes the same."""
    reader = PieceReader(options, COLUMNS, piece)
    places = reader.decoder.bad = []
    table = pa.Table.from_batches(list(reader.batches()), arrow_schema(COLUMNS))
    bad = _write_bad(options, pending, piece, places)
    if not table.num_rows:
        return PieceResult(0, [], bad)
    ends = pc.add(table["physicalOffset"], pc.cast(table["storeSize"], pa.int64()))
    table = table.append_column("dt", pc.cast(pc.floor_temporal(table["storeTimestamp"], unit="day"), pa.date32()))
    table = table.sort_by([(name, "ascending") for name in ORDER])
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
        name = _name(row["topic"], row["dt"], f"{options.broker_name}-{piece.begin:020}.parquet")
        size = write_table(part, pending / name)
        files.append(ArchivedFile(name, part.num_rows, size, ranges[row["topic"], row["dt"]]))
    return PieceResult(pc.max(ends).as_py(), files, bad)


def _write_bad(options: StoreOptions, pending: Path, piece: Piece, places: Sequence[BadPlace]) -> list[ArchivedFile]:
    if not places:
        return []
    broker = options.broker_name or ""
    name = f"_rocketpy/{broker}/bad/{broker}-{piece.begin:020}.parquet"
    size = write_table(bad_table(broker, piece.segment, places), pending / name)
    return [ArchivedFile(name, len(places), size, {})]


def _name(topic: str, day: datetime.date | None, file: str) -> str:
    """Below the archive; Spark undoes the escapes."""
    return f"topic={quote(topic, safe='')}/dt={day.isoformat() if day else NO_DAY}/{file}"


def write_table(table: Any, path: Path) -> int:
    """Write a file and bring it to the disk, then give it its name. Returns its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unnamed = path.with_name(f"{uuid4().hex}.unfinished")
    with unnamed.open("wb") as file:
        pq.write_table(table, file, compression="zstd", use_dictionary=["brokerName", "tags", "bornHost", "storeHost"])
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    unnamed.replace(path)
    return size
