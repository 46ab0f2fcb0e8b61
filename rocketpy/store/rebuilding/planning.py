"""From runs of units to queue files, and from keys to index files."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from rocketpy.message.record import FIXED_SIZE_V4

from ..formats.index_file import INDEX_NAME_DIGITS
from ..formats.unit import CQ_STORE_UNIT_SIZE, CQ_UNIT
from .collecting import KEY, RUN, Collected

UNITS_PER_PART = 1 << 20  # written by one task: 20 MB, unless a single file has more
FILES_PER_PART = 256


@attrs.frozen
class UnitRun:
    """Consecutive units, and where they are in the spool."""

    offset: int  # queue offset of the first; in a QueueFile: its place in the file
    count: int
    piece: str
    at: int  # number of the first unit in the piece's file


@attrs.frozen
class QueueFile:
    """One file of a consume queue. Places below `end` that no run has get pre-blank units."""

    topic: str
    queue_id: int
    number: int  # of the file in its queue
    runs: list[UnitRun]
    end: int  # place after its last unit

    @property
    def units(self) -> int:
        return sum(run.count for run in self.runs)


@attrs.define
class QueueRuns:
    """The units of a queue so far, as `bridge` of csrc/store/dispatch/dispatch_batch.c makes them of offsets."""

    units_per_file: int
    log_file_size: int
    runs: list[UnitRun] = attrs.field(factory=list)
    phy_end: int = 0  # end of the last unit's record
    resets: int = 0

    @property
    def end(self) -> int:
        """Queue offset after the last unit; 0 without units."""
        return self.runs[-1].offset + self.runs[-1].count if self.runs else 0

    def add(self, run: UnitRun, phy_offset: int, phy_end: int) -> None:
        """Add later units, of records in [phy_offset, phy_end). A gap stays; any other jump makes the queue begin again
        there."""
        if self.end and run.offset != self.end and not self._is_gap(run.offset, phy_offset):
            self.runs.clear()
            self.resets += 1
        self.runs.append(run)
        self.phy_end = phy_end

    def _is_gap(self, offset: int, phy_offset: int) -> bool:
        """Return True if the places before `offset` belong to records that cannot be read: `is_gap` in
        dispatch_batch.c."""
        if offset < self.end:
            return False
        if offset // self.units_per_file == (self.end - 1) // self.units_per_file:
            return True
        room = min(max(0, phy_offset - self.phy_end), self.log_file_size)
        return offset - self.end <= room // FIXED_SIZE_V4

    def files(self, topic: str, queue_id: int) -> Iterator[QueueFile]:
        """The runs, cut into files. Between them may be files without a unit."""
        found: dict[int, list[UnitRun]] = {}
        for run in self.runs:
            done = 0
            while done < run.count:
                number, at = divmod(run.offset + done, self.units_per_file)
                count = min(run.count - done, self.units_per_file - at)
                found.setdefault(number, []).append(UnitRun(at, count, run.piece, run.at + done))
                done += count
        last = max(found, default=-1)
        for number in range(min(found, default=0), last):
            yield QueueFile(topic, queue_id, number, found.get(number, []), self.units_per_file)
        if found:
            run = found[last][-1]
            yield QueueFile(topic, queue_id, last, found[last], run.offset + run.count)


def join_runs(
    pieces: Iterable[Collected],
    spool: Path,
    units_per_file: int,
    log_file_size: int,
    deleted_below: Mapping[tuple[str, int], int],
) -> dict[tuple[str, int], QueueRuns]:
    """The runs of each queue.

    Args:
        pieces: all of the log, in order.
        deleted_below: phy offsets; records of the queue below it went with their topic.
    """
    queues: dict[tuple[str, int], QueueRuns] = {}
    for piece in pieces:
        at = 0
        for batch in piece.runs:
            for offset, phy_offset, phy_end, count, queue in RUN.iter_unpack(batch):
                name = piece.queues[queue]
                run = UnitRun(offset, count, piece.name, at)
                at += count
                if deleted_below and phy_offset < deleted_below.get(name, 0):
                    run = _without_deleted(run, spool, deleted_below[name])
                if run.count:
                    runs = queues.get(name)
                    if runs is None:
                        runs = queues[name] = QueueRuns(units_per_file, log_file_size)
                    runs.add(run, phy_offset, phy_end)
    return queues


def _without_deleted(run: UnitRun, spool: Path, below: int) -> UnitRun:
    """The units of records at or after `below`: a topic that is created again continues its queue offsets."""
    with (spool / f"{run.piece}.units").open("rb") as file:

        def phy_offset(number: int) -> int:
            file.seek((run.at + number) * CQ_STORE_UNIT_SIZE)
            return int(CQ_UNIT.unpack(file.read(CQ_STORE_UNIT_SIZE))[0])

        gone = bisect.bisect_left(range(run.count), below, key=phy_offset)
    return UnitRun(run.offset + gone, run.count - gone, run.piece, run.at + gone)


def pack_files(queues: Mapping[tuple[str, int], QueueRuns]) -> list[list[QueueFile]]:
    """All files, in parts of about equal work."""
    parts: list[list[QueueFile]] = []
    units = UNITS_PER_PART
    for (topic, queue_id), runs in queues.items():
        for file in runs.files(topic, queue_id):
            if units >= UNITS_PER_PART or len(parts[-1]) >= FILES_PER_PART:
                parts.append([])
                units = 0
            parts[-1].append(file)
            units += file.units
    return parts


@attrs.frozen
class KeySpan:
    """Keys in the spool: `count` from the one with this number on."""

    piece: str
    at: int
    count: int


@attrs.frozen
class IndexPlan:
    """One index file: its keys, and the end of the file before it."""

    name: int
    spans: list[KeySpan]
    previous_timestamp_ms: int
    previous_phy_offset: int


def plan_index(pieces: Sequence[Collected], spool: Path, keys_per_file: int) -> list[IndexPlan]:
    """The index files. A name is the store time of the first record, where a broker takes the time of creation."""
    plans: list[IndexPlan] = []
    spans, room, ends = list[KeySpan](), keys_per_file, (0, 0)

    def close() -> None:
        nonlocal spans, room, ends
        first_ms, _ = _key_at(spool, spans[0].piece, spans[0].at)
        name = _index_name(first_ms, plans[-1].name if plans else 0)
        plans.append(IndexPlan(name, spans, *ends))
        ends = _key_at(spool, spans[-1].piece, spans[-1].at + spans[-1].count - 1)
        spans, room = [], keys_per_file

    for piece in pieces:
        at = 0
        while at < piece.keys:
            count = min(piece.keys - at, room)
            spans.append(KeySpan(piece.name, at, count))
            at, room = at + count, room - count
            if not room:
                close()
    if spans:
        close()
    return plans


def _key_at(spool: Path, piece: str, number: int) -> tuple[int, int]:
    """(store timestamp, phy offset) of a key."""
    with (spool / f"{piece}.keys").open("rb") as file:
        file.seek(number * KEY.size)
        phy_offset, timestamp_ms, _, _ = KEY.unpack(file.read(KEY.size))
    return timestamp_ms, phy_offset


def _index_name(timestamp_ms: int, previous: int) -> int:
    """Local time as yyyyMMddHHmmssSSS, and more than the name before."""
    try:
        text = time.strftime("%Y%m%d%H%M%S", time.localtime(timestamp_ms // 1000))
        name = int(f"{text}{timestamp_ms % 1000:03d}")
    except (OverflowError, ValueError, OSError):  # no date
        name = 0
    lowest = int("1".ljust(INDEX_NAME_DIGITS, "0"))
    return max(name if name < 10 * lowest else 0, previous + 1, lowest)
