"""Collects the units and keys of a piece of the log (csrc/store/recovery/rebuild.h)."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from rocketpy.errors import StoreError
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..files import translated
from ..formats.unit import CQ_STORE_UNIT_SIZE
from ..inspection.log_check import reason_of
from ..inspection.parts import LogPiece, first_record
from ..replaced_file import replaced

RUN = struct.Struct(
    "=Q"  # queue offset of the first unit
    "Q"  # phy offset of its record
    "Q"  # end of the record of the last unit
    "I"  # units
    "I"  # queue
)
KEY = struct.Struct(
    "=Q"  # phy offset
    "q"  # store timestamp, ms
    "i"  # hash
    "I"  # nothing
)
assert RUN.size == ffi.sizeof("rp_rebuild_run") and KEY.size == ffi.sizeof("rp_index_key")


@attrs.frozen
class CollectJob:
    """The settings that all pieces share."""

    commitlog: Path
    spool: Path
    delay_levels_ms: list[int]
    with_keys: bool


@attrs.frozen
class Damage:
    """Bytes of the log between two records."""

    phy_offset: int
    size: int
    reason: str


@attrs.frozen
class Collected:
    """A piece, and its two files in the spool: `NAME.units` and `NAME.keys`."""

    name: str
    first: int
    reached: int
    end: int  # phy offset after the last record
    is_open: bool  # from `end` on, the piece has no records
    records: int
    keys: int
    unplaced: int
    cut_short: int
    last_phy_offset: int
    last_store_timestamp_ms: int
    runs: list[bytes]  # of RUN, a piece of the units' file each, in its order
    queues: list[tuple[str, int]]  # (topic, queue id) by number
    damages: list[Damage]


def collect(job: CollectJob, piece: LogPiece) -> Collected:
    """Collect a piece. Runs in a worker; a repetition writes the same files.

    Raises:
        StoreError: a file cannot be read or written.
    """
    path, name = job.commitlog / piece.name, f"{piece.begin:020d}"
    with (
        translated(path, "read"),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image,
        replaced(job.spool / f"{name}.units") as units,
        replaced(job.spool / f"{name}.keys") as keys,
        _Collector(job) as collector,
    ):
        image.madvise(mmap.MADV_SEQUENTIAL)
        with ffi.from_buffer("uint8_t[]", image) as view:
            walk = _PieceWalk(collector, image, view, piece, units, keys)
            walk.run()
        return walk.collected(name)


class _Collector:
    """An open rp_rebuild."""

    def __init__(self, job: CollectJob) -> None:
        self._levels = ffi.new("int64_t[]", job.delay_levels_ms or [0])  # the collector reads them
        self.handle = lib.rp_rebuild_open(self._levels, len(job.delay_levels_ms), job.with_keys)
        if self.handle == ffi.NULL:
            raise StoreError("not enough memory to rebuild a store")

    def __enter__(self) -> _Collector:
        return self

    def __exit__(self, *_: object) -> None:
        lib.rp_rebuild_close(self.handle)

    @property
    def totals(self) -> Any:
        return self.handle.totals

    def take(self, units: BinaryIO, keys: BinaryIO) -> bytes:
        """Move the batch to the files; returns its runs."""
        totals = self.totals
        units.write(ffi.buffer(lib.rp_rebuild_units(self.handle), totals.batch_units * CQ_STORE_UNIT_SIZE))
        keys.write(ffi.buffer(self.handle.keys, totals.batch_keys * KEY.size))
        runs = bytes(ffi.buffer(self.handle.runs, totals.batch_runs * RUN.size))
        lib.rp_rebuild_clear(self.handle)
        return runs

    def queues(self) -> list[tuple[str, int]]:
        queues = [self.handle.queues[number] for number in range(self.totals.queues)]
        return [(os.fsdecode(bytes(queue.topic[0 : queue.topic_size])), queue.queue_id) for queue in queues]


@attrs.define(eq=False)
class _PieceWalk:
    """One walk over a piece."""

    collector: _Collector
    image: mmap.mmap
    view: Any
    piece: LogPiece
    units: BinaryIO
    keys: BinaryIO
    first: int = attrs.field(init=False, default=0)
    reached: int = attrs.field(init=False, default=0)
    end: int = attrs.field(init=False, default=0)
    is_open: bool = attrs.field(init=False, default=False)
    runs: list[bytes] = attrs.field(init=False, factory=list)
    damages: list[Damage] = attrs.field(init=False, factory=list)

    def run(self) -> None:
        size, start, stop = len(self.image), self.piece.start, self.piece.end
        self.first = self.end = first_record(self.view, size, self.piece)
        position = ffi.new("uint64_t *", self.first)
        while position[0] < stop:
            status = lib.rp_rebuild_log(self.collector.handle, self.view, size, start, position, stop)
            if status == Status.NO_MEMORY:
                raise StoreError("not enough memory to rebuild a store")
            if status == Status.FULL:
                self._take()
            elif status not in (Status.OK, Status.END_OF_FILE):
                self._pass_damage(position)
            self.end = self.end if self.is_open else position[0]
        self._take()
        self.reached = position[0]

    def _take(self) -> None:
        if runs := self.collector.take(self.units, self.keys):
            self.runs.append(runs)

    def _pass_damage(self, position: Any) -> None:
        """Go on at the next record of the file, or end; as dispatch does."""
        at, size = position[0] - self.piece.start, len(self.image)
        distance = int(lib.rp_recovery_resync(self.view + at, size - at, position[0]))
        reason = reason_of(self.image, at, position[0]) if any(self.image[at : at + 8]) else "zeros"
        self.damages.append(Damage(position[0], distance, reason))
        self.is_open = at + distance == size
        self.end = position[0]
        position[0] += distance

    def collected(self, name: str) -> Collected:
        totals = self.collector.totals
        return Collected(
            name=name,
            first=self.first,
            reached=self.reached,
            end=self.end,
            is_open=self.is_open,
            records=totals.records,
            keys=totals.keys,
            unplaced=totals.unplaced,
            cut_short=totals.cut_short,
            last_phy_offset=totals.last_phy_offset,
            last_store_timestamp_ms=totals.last_store_timestamp_ms,
            runs=self.runs,
            queues=self.collector.queues(),
            damages=self.damages,
        )
