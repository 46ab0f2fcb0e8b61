"""Source `rocketmq_store`: the CommitLog of a store directory as a table, without a broker.

The driver lists the files and cuts them into pieces (segments.py); each task maps its piece and decodes it.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from rocketpy.errors import RecordCorrupt
from rocketpy.message.record import END_FILE_MIN_BLANK_LENGTH
from rocketpy.native import Status

from .columns import COLUMNS, DIAGNOSTICS, columns_of
from .decoder import Decoder, End, fault_at
from .options import OF_SPARK, parse_options
from .scan import BadPlace
from .segments import Boundaries, Piece, end_by_queues, list_segments, mapped, prune_by_queues, prune_by_time
from .store_options import StoreOptions
from .store_stream import PiecePartition, StoreStreamReader
from .table_options import options_of_new_table, options_of_table, schema_with
from .worker import prepare_worker, reason_first

logger = logging.getLogger(__name__)

ALWAYS_READ = {Status.OK, Status.END_OF_FILE}


class StoreSource(DataSource):
    """`spark.read.format("rocketmq_store")`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    @reason_first()
    def schema(self) -> Any:
        table = options_of_new_table(self.options)
        if table is None:
            return _parsed(self.options).ddl(diagnostics=True)
        return schema_with(table, _parsed(table).ddl(diagnostics=True))

    @reason_first()
    def reader(self, schema: Any) -> StoreReader:
        table = options_of_table(self.options, schema, self.name())
        options = _parsed(self.options if table is None else table)
        columns = columns_of(schema, diagnostics=True, json_properties=options.properties_as == "json")
        return StoreReader(options, columns)

    @reason_first()
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        reader = self.reader(schema)
        reader.options = attrs.evolve(reader.options, live_tail=True)
        return StoreStreamReader(reader.options, reader.read)


def _parsed(options: Mapping[str, str]) -> StoreOptions:
    return parse_options(StoreOptions, options, ignored=OF_SPARK - {"path"})


class StoreReader(DataSourceReader):
    """Plans in the driver, reads in the executors; pickled between them."""

    def __init__(self, options: StoreOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    @reason_first()
    def partitions(self) -> list[InputPartition]:
        return [PiecePartition(piece) for piece in plan(self.options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, PiecePartition):  # an empty plan arrives as one InputPartition(None)
            with reason_first():
                partition.origin.check()
                prepare_worker()
                yield from PieceReader(self.options, self.columns, partition.value).batches()


def plan(options: StoreOptions, *, begins_at_record: bool = False) -> list[Piece]:
    """The pieces that together hold every record in the asked range, each record once.

    Args:
        begins_at_record: a record is known to begin at startPhysicalOffset, or the log to end: if none is there, the
            first piece begins with damage. Otherwise it begins with the first record after that place.
    """
    segments = [
        segment
        for segment in list_segments(options.path)
        if segment.end > options.start and segment.start < options.end
    ]
    if options.prune_by_queues:
        segments = prune_by_queues(options.path, segments, options.topics, options.queue_ids)
    boundaries = Boundaries(options.path, options.boundary)
    cut = boundaries.between if begins_at_record else boundaries.pieces
    return [
        piece
        for segment in prune_by_time(segments, options.from_ms, options.to_ms)
        for piece in cut(segment, options.start, options.end, options.split_bytes)
    ]


@attrs.define(eq=False)
class PieceReader:
    """Reads one piece, and decides what damage means."""

    options: StoreOptions
    columns: tuple[str, ...]
    piece: Piece
    decoder: Decoder = attrs.field(init=False)
    _dispatched: int | None = attrs.field(init=False, default=None)  # end of the log by its queues, once at the tail
    _tried_again: int = attrs.field(init=False, default=-1)  # place in the segment that was incomplete once

    def __attrs_post_init__(self) -> None:
        constants: Mapping[str, object] = {
            "brokerName": self.options.broker_name,
            "segment": self.piece.segment.path.name,
            "crcOk": True if self.options.check_crc else None,
            "corruptReason": None,
        }
        self.decoder = self.options.decoder(
            self.columns, self.options.selection, crc=self.options.check_crc, place=True, constants=constants
        )

    def batches(self) -> Iterator[Any]:
        """Batches of the wanted records.

        Raises:
            RecordCorrupt: damage, with onCorrupt=fail.
        """
        position: int | None = self.piece.begin - self.piece.segment.start
        while position is not None:  # mapped anew: a mount may show what was written meanwhile only then
            with mapped(self.piece.segment) as image:
                position = yield from self._batches(image, position)

    def _batches(self, image: Any, position: int) -> Generator[Any, None, int | None]:
        """Batches from `position` on. Returns where to try again what a broker was just writing; None at the end."""
        segment, start = self.piece.segment, self.piece.segment.start
        stop = self.piece.end - start
        while position < stop:
            end: End = yield from self.decoder.decode(image, start, position, stop)
            if self._is_end(end, image, stop):
                return None
            if self._is_worth_another_try(end):
                return end.position
            if self.options.on_corrupt == "truncate":
                logger.warning(
                    "%s: damage at log offset %d; the rest of this part is not read (onCorrupt=truncate)",
                    segment.path,
                    start + end.position,
                )
                return None
            if self.options.on_corrupt == "fail":
                raise RecordCorrupt(start + end.position, f"{self._reason(image, end)} ({segment.path})")
            found = self.decoder.resync(image, start, end.position + 1, stop)
            position = stop if found is None else found
            bad = BadPlace(start + end.position, position - end.position, self._reason(image, end))
            logger.warning(
                "%s: %s at log offset %d; skipped %d bytes", segment.path, bad.reason, bad.phy_offset, bad.size
            )
            if self.decoder.bad is not None:
                self.decoder.bad.append(bad)
            if set(self.columns) & set(DIAGNOSTICS):
                yield self._corrupt_row(bad.phy_offset, bad.reason)
        return None

    def _is_worth_another_try(self, end: End) -> bool:
        """Return True if the record may still have been in the middle of its write when it was read: a broker
        dispatches a record only when it is complete. Each place is tried again once, so damage is found."""
        if not self.options.live_tail or not self._is_at_tail or self._tried_again == end.position:
            return False
        self._tried_again = end.position
        return True

    @property
    def _is_at_tail(self) -> bool:
        """Return True if the piece is the last one of the log."""
        return self.piece.segment.is_last and self.piece.end == self.piece.segment.end

    def _is_end(self, end: End, image: Any, stop: int) -> bool:
        """Return True if the scan ended where a sound log ends: in its last piece, with no record after it."""
        segment = self.piece.segment
        if end.status in ALWAYS_READ:
            if end.status is Status.OK and end.position > stop and stop < segment.size:
                raise RecordCorrupt(
                    segment.start + stop,
                    f"the next piece does not begin with a record ({segment.path}): read with boundary=walk",
                )
            return True
        if not self._is_at_tail:
            left = len(image) - end.position
            return end.status is Status.INCOMPLETE and left < END_FILE_MIN_BLANK_LENGTH and not any(image[-left:])
        if end.status is Status.INCOMPLETE:
            logger.warning(
                "%s: the last record, at log offset %d, is not complete; reading ends before it",
                segment.path,
                segment.start + end.position,
            )
        may_end = self.options.live_tail or end.status in (Status.EMPTY, Status.INCOMPLETE)
        return may_end and not self._is_named_after(end.position)

    def _is_named_after(self, position: int) -> bool:
        """Return True if a consume queue names a record at or after this position: then the log does not end here.

        The queues are asked once: beside a broker the piece ends where the log ended when its end was first reached.
        """
        if self._dispatched is None:
            self._dispatched = end_by_queues(self.options.path) or 0
        return self._dispatched > self.piece.segment.start + position

    def _reason(self, image: Any, end: End) -> str:
        if end.status is Status.EMPTY:
            if self._is_at_tail:
                return "zeros, where a consume queue names records"
            followers = "records" if self.piece.segment.is_last else "other files of the log"
            return f"zeros, where {followers} follow"
        if end.status is Status.INCOMPLETE:
            return "its size goes beyond the end of the file"
        return fault_at(image, self.piece.segment.start, end.position, self.decoder.checks)

    def _corrupt_row(self, phy_offset: int, reason: str) -> Any:
        known: dict[str, object] = {
            "segment": self.piece.segment.path.name,
            "physicalOffset": phy_offset,
            "brokerName": self.options.broker_name,
            "crcOk": False,
            "corruptReason": reason,
        }
        schema = self.decoder.schema
        arrays = [pa.array([known.get(name)], schema.field(name).type) for name in self.columns]
        assert all(name in COLUMNS for name in self.columns)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
