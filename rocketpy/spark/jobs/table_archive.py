"""Job archive with `--format delta` or `iceberg`: the records of a store, or messages of topics, in a table.

A well-kept library writes the files and the log of the table; there are no manifests of ours. A commit adds rows
together with the positions after them, in the same atomic step. A killed run leaves at most files that no commit names.
How a format keeps positions, and how it refuses the second of two runs that append the same rows, is said in
delta_archive.py and iceberg_archive.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.errors import StoreError
from rocketpy.message.message_queue import MessageQueue

from ..cluster import CLUSTERS
from ..columns import TIMES, arrow_schema
from ..first_messages import place_of
from ..offsets import Firsts
from ..segments import list_segments
from ..slices import mean_message_bytes
from ..store_source import PieceReader, plan
from .archive import SPLIT_BYTES, begin_after, options_of
from .archive_files import COLUMNS, chunks
from .archive_log import Positions
from .archive_topics import PART_BYTES, TopicPart, compared, cut_parts, new_slices, parse_connection, read_part

logger = logging.getLogger(__name__)

COMMIT_BYTES = 128 << 20  # of rows in memory; to put them in order copies them once or twice
ROWS_SCHEMA = pa.schema(
    [pa.field(name, pa.timestamp("us", "UTC")) if name in TIMES else arrow_schema([name])[0] for name in COLUMNS]
)
"""The columns of the source."""


MARKS = {"parquet": "_rocketpy", "delta": "_delta_log", "iceberg": "catalog.db"}
"""The file or directory by which an archive of each format is known."""


FIRST = ("first-queue", "first-offset", "first-time")
"""Positions of a topic on a broker that keep its first message (first_messages.py); no queue has such a name."""


PASSWORD = re.compile(r"(://[^\s:/@]*):\S*@")


def without_password(error: BaseException) -> str:
    """Return the text of a library's error, without the passwords of addresses in it."""
    return PASSWORD.sub(r"\1:***@", str(error))


def check_free(target: str, format_name: str) -> None:
    """Raises StoreError if a directory is an archive of another format."""
    for other, mark in MARKS.items():
        if other != format_name and (Path(target) / mark).exists():
            raise StoreError(f"{target} is an archive of --format {other}: name another directory")


@attrs.define
class TableReport:
    """The work of a run."""

    rows: int = 0
    commits: int = 0
    unreadable: int = 0  # bodies that could not be decompressed, archived as stored
    version: int = 0  # of the table: what its format calls a version, or a snapshot
    merged_files: int = 0
    vacuumed_files: int = 0


class TableArchive(Protocol):
    """An open table, as it was at its last commit.

    Every method raises StoreError when the table cannot be reached, and ConnectionLost when its catalog is away.
    """

    uri: str
    report: TableReport

    def position(self, name: str) -> int | None:
        """Return the position that was committed under a name."""

    def append(self, rows: Any, positions: Mapping[str, int]) -> None:
        """Commit rows and positions, both or none of them. Raises StoreError also if another run has committed."""

    def compact(self) -> None:
        """Merge small files. Readers keep the version that they have opened."""

    def vacuum(self, days: int) -> None:
        """Forget versions older than `days` days, and remove files that only they name."""

    def done(self) -> TableReport:
        """Return the report of this run."""


def archive_store(
    archive: TableArchive,
    root: Path,
    broker: str,
    *,
    commit_bytes: int = COMMIT_BYTES,
    allow_gap: bool = False,
    live_tail: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Append what is new in a store.

    Args: as of `archive.archive`; `commit_bytes` is of rows in memory.
    Raises:
        StoreError: records are gone, the store is another one, or another run is busy. RecordCorrupt: damage.
    """
    root, name = root.absolute(), _name_of(broker)
    list_segments(root)
    if archive.position(f"{name}/topics") is not None:
        raise StoreError(f"{archive.uri}: broker {broker} is archived by its topics; rows would be there twice")
    begin = begin_after(root, archive.position(name), allow_gap)
    options = options_of(root, broker, begin, split_bytes=SPLIT_BYTES, live_tail=live_tail, skip_damage=False)

    def batches() -> Iterator[Any]:
        for piece in plan(options, begins_at_record=True):
            reader = PieceReader(options, COLUMNS, piece)
            reader.decoder.bad = []
            yield from reader.batches()
            archive.report.unreadable += len(reader.decoder.bad)
            for place in reader.decoder.bad:
                logger.warning("the body at log offset %d is archived as stored: %s", place.phy_offset, place.reason)

    for rows in chunks(batches(), commit_bytes):
        ends = pc.add(rows["physicalOffset"], pc.cast(rows["storeSize"], pa.int64()))
        archive.append(rows, {name: pc.max(ends).as_py()})
        if is_stopped():
            return


def archive_topics(
    archive: TableArchive,
    topics: tuple[str, ...],
    connection: Mapping[str, str],
    *,
    commit_bytes: int = COMMIT_BYTES,
    allow_gap: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Append what is new in topics of running brokers.

    Args: as of `archive_topics.archive_topics`; `commit_bytes` is of rows in memory.
    Raises: as there; StoreError also if another run is busy.
    """
    options = parse_connection(topics, connection, allow_gap=allow_gap)
    cluster = CLUSTERS.get(options.client_options())
    bounds = cluster.bounds(cluster.queues(topics))
    slices, changed = [], dict[str, int]()
    for broker in sorted({queue.broker_name for queue in bounds}):
        if archive.position(_name_of(broker)) is not None:
            raise StoreError(f"{archive.uri}: broker {broker} is archived by its store; rows would be there twice")
        of_broker = {queue: ends for queue, ends in sorted(bounds.items()) if queue.broker_name == broker}
        positions, kept = _positions_of(archive, of_broker), _firsts_of(archive, of_broker)
        firsts = compared(archive.uri, kept, positions, of_broker, cluster, options.pull_settings.group)
        changed |= _positions_with({queue: first for queue, first in firsts.items() if kept.get(queue) != first})
        slices += new_slices(positions, of_broker, allow_gap)
    size = mean_message_bytes(options, slices)
    for part in cut_parts(slices, max(1, min(PART_BYTES, commit_bytes) // size)):
        if is_stopped():
            return
        _append_part(archive, part, read_part(options, part), commit_bytes, changed)
        changed = {}


def _positions_of(archive: TableArchive, queues: Iterable[MessageQueue]) -> Positions:
    """Return how far queues of one broker are archived."""
    positions: Positions = {}
    for queue in queues:
        if (at := archive.position(_name_of(queue.broker_name, queue.topic, queue.queue_id))) is not None:
            positions.setdefault(queue.topic, {})[str(queue.queue_id)] = at
    return positions


def _firsts_of(archive: TableArchive, queues: Iterable[MessageQueue]) -> Firsts:
    """Return the first messages of these queues' topics, as far as the table has them."""
    firsts: Firsts = {}
    for topic, broker in sorted({place_of(queue) for queue in queues}):
        number, offset, time_ms = (archive.position(_name_of(broker, topic, name)) for name in FIRST)
        if number is not None and offset is not None and time_ms is not None:
            firsts[MessageQueue(topic, broker, number)] = StoredAt(offset, time_ms)
    return firsts


def _positions_with(firsts: Firsts) -> dict[str, int]:
    """Return the positions that keep first messages."""
    return {
        _name_of(queue.broker_name, queue.topic, name): value
        for queue, first in firsts.items()
        for name, value in zip(FIRST, (queue.queue_id, first.offset, first.time_ms), strict=True)
    }


def _append_part(
    archive: TableArchive, part: TopicPart, batches: Iterable[Any], commit_bytes: int, firsts: Mapping[str, int]
) -> None:
    """Commit the rows of a part, usually at once, with first messages and marks that brokers are archived by their
    topics. The last commit also passes offsets without a message."""
    kept = {**firsts, **{f"{_name_of(one.queue.broker_name)}/topics": 1 for one in part.slices}}
    ends = {_name_of(one.queue.broker_name, one.queue.topic, one.queue.queue_id): one.end for one in part.slices}
    held = None
    for rows in chunks(batches, commit_bytes):
        if held is not None:
            archive.append(held, {**kept, **_positions_after(held)})
        held = rows
    archive.append(arrow_schema(COLUMNS).empty_table() if held is None else held, {**kept, **ends})


def _positions_after(rows: Any) -> dict[str, int]:
    """Return the positions after rows, which are in order of each queue."""
    last = rows.group_by(["brokerName", "topic", "queueId"]).aggregate([("queueOffset", "max")]).to_pylist()
    return {_name_of(row["brokerName"], row["topic"], row["queueId"]): row["queueOffset_max"] + 1 for row in last}


def _name_of(*parts: object) -> str:
    """Return the application id of a position: of a broker's log, or of a queue."""
    return "/".join(("rocketpy", *map(str, parts)))
