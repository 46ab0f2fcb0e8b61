"""The CommitLog of a store directory, cut into pieces that can be read independently.

A piece begins and ends where records begin; the planner finds these places, so every record is in one piece exactly.
Inside of a file they come from a consume queue, whose units name records, or from looking for records in the bytes
(`resync` of native_rows.py), or from a walk over the records before.

A reader must never see a record that is still being written. A broker dispatches a record to its consume queue when it
is complete, so the log ends after the last record that any consume queue names. A store without consume queues is at
rest: its log ends after the last valid record.
"""

from __future__ import annotations

import bisect
import errno
import itertools
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.record import RECORD_HEAD_MAX, RECORD_START, decode_record, store_timestamp_of
from rocketpy.native import Status
from rocketpy.store.files import StorePaths, is_file_name, translated

from .consume_queues import Queue, each_queue, end_of_queue, first_place_from, largest_queues
from .decoder import Decoder
from .scan import TIME_MAX_MS, TIME_MIN_MS, Checks, Selection

SEARCH_BYTES = 8 << 20  # twice the largest record of default settings; a log's last file may end in a gigabyte of zeros


@attrs.frozen
class Segment:
    """A file of the CommitLog. `size` is up to the next file; the last one with records may have room left."""

    path: Path
    start: int
    size: int
    is_last: bool

    @property
    def end(self) -> int:
        return self.start + self.size


@attrs.frozen
class Piece:
    """Records of one segment that start from `begin` on and before `end`, phy offsets both. The begin of a piece is the
    begin of a record, and its end that of another one or the end of the segment."""

    segment: Segment
    begin: int
    end: int


def list_segments(root: Path) -> list[Segment]:
    """Return the files of the CommitLog in `root`, without the empty files that a broker has prepared after the last
    record.

    Raises:
        StoreError: there is none, or one is missing between others, or is shorter than the next one's name says.
    """
    directory = StorePaths.of(root).commitlog
    if not directory.is_dir():
        raise StoreError(f"{root} is no store: it has no directory commitlog (option path names the store's root)")
    with translated(directory, "list"):
        names = sorted(name for name in os.listdir(directory) if is_file_name(name))
        sizes = [os.stat(directory / name).st_size for name in names]
    segments: list[Segment] = []
    for number, (name, size) in enumerate(zip(names, sizes, strict=True)):
        start, is_last = int(name), number == len(names) - 1
        following = start + size if is_last else int(names[number + 1])
        if following != start + size:
            raise StoreError(
                f"{directory / name} has {size} bytes, but the next file is {names[number + 1]}: a file is missing "
                "or was cut short; startPhysicalOffset or endPhysicalOffset can exclude the gap"
            )
        segments.append(Segment(directory / name, start, size, is_last))
    while len(segments) > 1 and _is_prepared(segments[-1]):
        segments.pop()
        segments[-1] = attrs.evolve(segments[-1], is_last=True)
    return segments


def _is_prepared(segment: Segment) -> bool:
    """Return True if the file does not begin with a record."""
    with translated(segment.path, "read"), segment.path.open("rb") as file:
        return not any(file.read(RECORD_START.size))


@contextmanager
def mapped(segment: Segment) -> Iterator[mmap.mmap | bytes]:
    """The bytes of a segment; pages are read as they are used."""
    with translated(segment.path, "read"), segment.path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image:
            with suppress(OSError, AttributeError):
                image.madvise(mmap.MADV_SEQUENTIAL)
            yield image


def prune_by_time(segments: list[Segment], from_ms: int, to_ms: int) -> list[Segment]:
    """The segments that can have records stored at from_ms <= time < to_ms: store times do not decrease."""
    if (from_ms, to_ms) == (TIME_MIN_MS, TIME_MAX_MS):
        return segments
    firsts = [_first_store_time(segment) for segment in segments]
    kept = []
    for number, segment in enumerate(segments):
        first, following = firsts[number], next((t for t in firsts[number + 1 :] if t is not None), None)
        if (first is not None and first >= to_ms) or (following is not None and following < from_ms):
            continue
        kept.append(segment)
    return kept


def _first_store_time(segment: Segment) -> int | None:
    with translated(segment.path, "read"), segment.path.open("rb") as file:
        return store_timestamp_of(file.read(RECORD_HEAD_MAX))


def prune_by_queues(
    root: Path, segments: list[Segment], topics: frozenset[str], queue_ids: frozenset[int]
) -> list[Segment]:
    """The segments that these topics' queues point into, and those with records that may not be dispatched yet: from
    the last one that any queue points into. All segments, if no queue points into them."""
    queues = dict(each_queue(root))
    kept = _with_records(segments, [files for queue, files in queues.items() if _is_wanted(queue, topics, queue_ids)])
    for number in reversed(range(len(segments))):
        kept.add(number)
        if any(first_place_from(files, segments[number].start) is not None for files in queues.values()):
            break
    return [segments[number] for number in sorted(kept)]


def _is_wanted(queue: Queue, topics: frozenset[str], queue_ids: frozenset[int]) -> bool:
    topic, queue_id = queue
    return topic in topics and (not queue_ids or queue_id in {str(number) for number in queue_ids})


def _with_records(segments: Sequence[Segment], queues: Sequence[list[Path]]) -> set[int]:
    """Numbers of the segments that these queues point into."""
    starts = [segment.start for segment in segments]
    found: set[int] = set()
    for files in queues:
        place: int | None = starts[0] if starts else None
        while place is not None and (place := first_place_from(files, place)) is not None:
            number = bisect.bisect_right(starts, place) - 1
            found.add(number)
            place = segments[number].end if place < segments[-1].start else None
    return found


@attrs.define(eq=False)
class Boundaries:
    """Finds where records begin inside of segments.

    Args:
        how: auto (a consume queue, otherwise the bytes), resync (the bytes), walk (from the segment's start).
    """

    root: Path
    how: str
    _queues: list[list[Path]] | None = None

    def pieces(self, segment: Segment, begin: int, end: int, split_bytes: int) -> list[Piece]:
        """Cut the part of a segment between two phy offsets into pieces of about `split_bytes`."""
        begin, end = max(begin, segment.start), min(end, segment.end)
        if begin >= end:
            return []
        with mapped(segment) as image:
            first = self._exact(segment, image, begin, segment.start, hints=False)
            last = self._exact(segment, image, end, first, hints=False)
            return self._split(segment, image, first, last, split_bytes)

    def between(self, segment: Segment, begin: int, end: int, split_bytes: int) -> list[Piece]:
        """As `pieces`, where records are known to begin at `begin` and `end`, or the log to end."""
        begin, end = max(begin, segment.start), min(end, segment.end)
        if begin >= end:
            return []
        with mapped(segment) as image:
            return self._split(segment, image, begin, end, split_bytes)

    def first_record(self, segment: Segment, place: int, known: int | None = None) -> int:
        """The begin of the first record at or after `place`, or the end of the segment. A record begins at `known`."""
        with mapped(segment) as image:
            return self._exact(segment, image, place, segment.start if known is None else known, hints=False)

    def _split(self, segment: Segment, image: mmap.mmap | bytes, begin: int, end: int, split_bytes: int) -> list[Piece]:
        places, searched = [begin], begin  # no record begins between the last place and what was searched
        for place in range(begin + split_bytes, end, split_bytes):
            if place > places[-1] and place >= searched:  # otherwise a record is longer than a piece
                near = min(segment.end, place + SEARCH_BYTES)
                exact = self._exact(segment, image, place, places[-1], hints=self.how == "auto", stop=near)
                if exact >= end:
                    break
                if exact == near:  # the log ends before it, or is damaged, or has a longer record
                    if segment.is_last and _is_blank(segment, place):
                        break  # a gigabyte of zeros may follow, which would be searched for nothing
                    searched = near
                else:
                    places.append(exact)
        return [Piece(segment, low, high) for low, high in itertools.pairwise([*places, end]) if low < high]

    def _exact(
        self,
        segment: Segment,
        image: mmap.mmap | bytes,
        place: int,
        known: int,
        *,
        hints: bool,
        stop: int | None = None,
    ) -> int:
        """The begin of the first record at or after `place`, of a later one with `hints`; `stop`, or the segment's end,
        if the bytes before it have none. `known`: a record begins there, before `place`."""
        if place in (segment.start, segment.end):
            return place
        if self.how == "walk":
            return _by_walk(segment, image, known, place)
        for candidate in self._hints(segment, place) if hints else ():
            with suppress(RecordCorrupt):
                if _is_record(image, segment, candidate):
                    return candidate
        stop = segment.end if stop is None else stop
        found = walker().resync(image, segment.start, place - segment.start, stop - segment.start)
        return stop if found is None else segment.start + found

    def _hints(self, segment: Segment, place: int) -> list[int]:
        """Places of records at or after `place` by consume queues, nearest first."""
        with suppress(StoreError):  # the bytes of the log say it as well
            if self._queues is None:
                self._queues = largest_queues(self.root)
            hints = (first_place_from(files, place) for files in self._queues)
            return sorted(hint for hint in hints if hint is not None and hint < segment.end)
        return []


def _is_blank(segment: Segment, place: int) -> bool:
    """Return True if the file has no data from `place` on; False also where a file system does not know its holes."""
    with translated(segment.path, "read"), segment.path.open("rb") as file:
        try:
            os.lseek(file.fileno(), place - segment.start, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
    return False


def _by_walk(segment: Segment, image: mmap.mmap | bytes, known: int, place: int) -> int:
    decoder = walker()
    with decoder.rows.image(image) as view:
        found = decoder.rows.find(view, segment.start, known - segment.start, place - segment.start)
    return segment.start + found.position if found.status is Status.OK else segment.end


def walker() -> Decoder:
    """A decoder that checks structure and place, and wants no row: time before all times."""
    return Decoder((), Selection(store_time_to_ms=TIME_MIN_MS), Checks(place=True))


def _is_record(image: mmap.mmap | bytes, segment: Segment, phy_offset: int) -> bool:
    at = phy_offset - segment.start
    size = int.from_bytes(image[at : at + 4], "big")
    record = decode_record(image[at : at + min(size, segment.size - at)], phy_offset)
    return record is not None and record.phy_offset == phy_offset


def end_of_log(root: Path, segments: list[Segment]) -> int:
    """Return the phy offset after the last complete record; 0 for a log without files."""
    if not segments:
        return 0
    end = end_by_queues(root)
    return end_by_walk(segments[-1]) if end is None else max(segments[0].start, end)


def end_by_queues(root: Path) -> int | None:
    """Return the phy offset after the last record that any consume queue names; None for a store without them."""
    return max((end_of_queue(files) for _, files in each_queue(root)), default=None)


def end_by_walk(segment: Segment) -> int:
    """Return the phy offset up to which all records of a segment are valid; its end if all are."""
    with mapped(segment) as image:
        if not image:
            return segment.start
        decoder = walker()
        with decoder.rows.image(image) as view:
            found = decoder.rows.find(view, segment.start, 0, segment.size)
    return segment.end if found.status is Status.END_OF_FILE else segment.start + found.position
