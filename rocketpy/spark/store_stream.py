"""The streaming side of the source `rocketmq_store`: follows the log of a store, by phy offsets.

A batch ends where a record begins, and the checkpoint keeps these places: `{"phyOffset": 1234, "v": 1}`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rocketpy.errors import ConfigError, StoreError

from .segments import Boundaries, Piece, Segment, end_by_walk, end_of_log, list_segments
from .store_options import StoreOptions
from .worker import Origin

logger = logging.getLogger(__name__)

VERSION = 1


class PiecePartition(InputPartition):
    """One task: a piece of the log."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece)
        self.origin = Origin()


def document_of(phy_offset: int) -> dict[str, Any]:
    return {"phyOffset": phy_offset, "v": VERSION}


def offset_of(document: Mapping[str, Any]) -> int:
    """Raises ConfigError for a document of another source or version."""
    phy_offset = document.get("phyOffset")
    if document.get("v") != VERSION or not isinstance(phy_offset, int):
        raise ConfigError(f"the checkpoint holds no phy offset of this source: {dict(document)}")
    return phy_offset


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source in the driver; `read_piece` runs in executors."""

    def __init__(self, options: StoreOptions, read_piece: Callable[[InputPartition], Iterator[Any]]) -> None:
        self.options = attrs.evolve(options, live_tail=True)
        self._read_piece = read_piece
        self._target: int | None = None  # of availableNow

    def initialOffset(self) -> dict[str, Any]:
        """The first record at or after startPhysicalOffset."""
        segments = list_segments(self.options.path)
        start = max(self.options.start, segments[0].start if segments else 0)
        boundaries = Boundaries(self.options.path, self.options.boundary)
        within = next((one for one in segments if one.start <= start < one.end), None)
        return document_of(start if within is None else boundaries.first_record(within, start))

    def getDefaultReadLimit(self) -> ReadLimit:
        bytes_max = self.options.trigger_bytes_max
        return ReadAllAvailable() if bytes_max is None else ReadMaxBytes(bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = end_of_log(self.options.path, list_segments(self.options.path))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset at which the batch after `start` ends; `start` itself if there is nothing new."""
        begin, segments = offset_of(start), list_segments(self.options.path)
        end = self._end(begin, segments)
        end = end if self._target is None else min(end, self._target)
        first = max(begin, segments[0].start) if segments else begin  # where there is something to read
        limits = [self.options.end]
        if isinstance(limit, ReadMaxBytes):
            limits.append(first + limit.max_bytes)
        if first < min(limits) < end:
            end = min(end, self._record_from(segments, first, min(limits)))
        return document_of(end if begin < min(limits) else begin)

    def _end(self, begin: int, segments: list[Segment]) -> int:
        """The end of the log, at least `begin`: with a deleted topic the newest units go, but not its records.

        Raises:
            StoreError: the records do not reach `begin`.
        """
        end = end_of_log(self.options.path, segments)
        if begin > end and segments:
            within = next((one for one in segments if one.start <= begin <= one.end), None)
            reached = end if within is None else end_by_walk(within)
            if reached < begin:
                raise StoreError(
                    f"{self.options.path}: was read up to {begin}, but the log ends at {reached}: another store?"
                )
        return max(begin, end)

    def _record_from(self, segments: list[Segment], known: int, place: int) -> int:
        """The first record at or after `place`, or the end of the segment; a record begins at `known`."""
        within = next(one for one in segments if one.start <= place < one.end)
        return Boundaries(self.options.path, "walk").first_record(within, place, max(known, within.start))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [PiecePartition(piece) for piece in self._pieces(offset_of(start), offset_of(end))]

    def _pieces(self, begin: int, end: int) -> list[Piece]:
        segments = list_segments(self.options.path)
        if begin < end and (not segments or begin < segments[0].start):
            first = segments[0].start if segments else end
            if self.options.fail_on_data_loss:
                raise StoreError(
                    f"{self.options.path}: the log begins at {first}, and {begin} to {end} are to be read: files were "
                    "deleted before they were read. With failOnDataLoss=false the query goes on with what is there"
                )
            logger.warning("%s: the log from %d to %d was deleted before it was read", self.options.path, begin, first)
        boundaries = Boundaries(self.options.path, self.options.boundary)
        return [
            piece for segment in segments for piece in boundaries.between(segment, begin, end, self.options.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read_piece(partition)
