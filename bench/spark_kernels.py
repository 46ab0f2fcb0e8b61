"""The measure of Spark's sources: the same work by processes without Spark.

Each function does its work once and returns what it read; who calls it takes the time. They run in processes of their
own, so they take and return values that can be pickled.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rocketpy.spark.cluster import CLUSTERS
from rocketpy.spark.decoder import Decoder
from rocketpy.spark.options import parse_options
from rocketpy.spark.pulls import Slice
from rocketpy.spark.scan import TIME_MIN_MS, Checks, Found, Selection
from rocketpy.spark.segments import Piece, mapped
from rocketpy.spark.slices import read_slices
from rocketpy.spark.store_options import StoreOptions
from rocketpy.spark.store_source import PieceReader, plan
from rocketpy.spark.topic_options import TopicOptions

PROCESSES = 2


def pieces_of(path: str, **options: str) -> list[Piece]:
    """Return the parts of a store at rest, as Spark gets them by these options."""
    return plan(parse_options(StoreOptions, {"path": path, **options}))


def scan(piece: Piece) -> int:
    """Scan in C: every record's structure and the CRC of its body; nothing is kept. Returns: the number of records."""
    return _walked(piece).records


def record_bytes(piece: Piece) -> int:
    """Bytes of a piece's records. The end of the last file of a store is allocated, and holds none."""
    return piece.segment.start + _walked(piece).position - piece.begin


def _walked(piece: Piece) -> Found:
    decoder = Decoder((), Selection(store_time_to_ms=TIME_MIN_MS), Checks(place=True, crc=True))
    start = piece.segment.start
    with mapped(piece.segment) as image:
        stop = piece.end - start
        with decoder.rows.image(image) as view:
            return decoder.rows.find(view, start, piece.begin - start, stop)


def nothing(piece: Piece) -> int:
    """Do nothing: the cost of a job by itself."""
    return 0


def decode(columns: tuple[str, ...], path: str, piece: Piece) -> int:
    """Decode the records of a piece to Arrow batches. Returns rows."""
    options = parse_options(StoreOptions, {"path": path})
    return sum(batch.num_rows for batch in PieceReader(options, columns, piece).batches())


def decode_image(columns: tuple[str, ...], image: bytes) -> int:
    """Decode an image of the log that is in memory, in one thread. Returns rows."""
    decoder = Decoder(columns, checks=Checks(place=True), constants={"brokerName": "broker-a"})
    return sum(batch.num_rows for batch in decoder.decode(image))


def pull(given: dict[str, str], wanted: Sequence[Slice]) -> int:
    """Read slices of queues from their broker, decoded to Arrow, as a task of Spark does. Returns messages."""
    options = parse_options(TopicOptions, given)
    return sum(batch.num_rows for batch in read_slices(options, options.names(), wanted))


def slices_of(given: dict[str, str]) -> list[Slice]:
    """Return all that the queues of a topic have now."""
    options = parse_options(TopicOptions, given)
    cluster = CLUSTERS.get(options.client_options())
    bounds = cluster.bounds(cluster.queues(options.topics or ()))
    return [Slice(queue, one.min_offset, one.max_offset) for queue, one in sorted(bounds.items())]


def in_processes(work: Callable[[Any], int], parts: Sequence[Any], processes: int = PROCESSES) -> Callable[[], int]:
    """Return a call that does all parts in a pool. The pool is warm, and lives as long as the call."""
    pool = multiprocessing.get_context("spawn").Pool(processes)
    pool.map(_imported, range(processes * 4), chunksize=1)
    return partial(_sum_of, pool, work, list(parts))


def _imported(_: int) -> None:
    """Makes a process import this module."""


def _sum_of(pool: Any, work: Callable[[Any], int], parts: list[Any]) -> int:
    return sum(pool.map(work, parts, chunksize=1))
