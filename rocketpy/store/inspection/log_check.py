"""Checks the log from end to end in C (csrc/store/recovery/verify.c): CRC, own offset and queue offset of every record,
blanks, sizes and order of files, and the bytes after the log's end. It also counts, per queue, the units that the queue
must have."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.record import RECORD_START, decode_record
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..files import FileInfo
from .findings import Check, Code, Inspected
from .parts import LogPiece, first_record
from .reader import next_record, record_bytes
from .tally import QueueTally, tally_of

STEP = 64 << 20  # bytes between two progress reports
UNLIMITED = (1 << 64) - 1


class LogCheck(Check):
    """One walk through the log, or through one of its files. `begin`, `end` and the tallies are set at its end."""

    def __init__(self, inspected: Inspected, *, check_crc: bool = True) -> None:
        super().__init__(inspected)
        state = self._state
        self._check_crc = check_crc
        control = state.control
        self._is_closed = state.is_closed
        # The control block is used if the last broker wrote it, under the running kernel.
        known = control if control and control.is_current and (control.is_same_boot or control.is_clean) else None
        self._published = known.published_phy_offset if known else None
        self._stop = known.published_phy_offset if known and state.in_use_by is not None else UNLIMITED
        self.is_dispatch_known = known is not None
        self._units_limit = known.dispatched_phy_offset if known else UNLIMITED
        self.begin = self.end = 0
        self.first = self.reached = 0  # of a piece (PieceResult)
        self.damages: list[int] = []  # phy offsets, ascending
        self._verify = lib.rp_verify_open()
        if self._verify == ffi.NULL:
            raise StoreError("not enough memory to check a store")

    def __enter__(self) -> LogCheck:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lib.rp_verify_close(self._verify)
        self._verify = ffi.NULL

    @property
    def totals(self) -> Any:
        return self._verify.totals

    def tallies(self) -> Iterator[QueueTally]:
        """Of every queue that has records."""
        for index in range(self.totals.tallies):
            yield tally_of(self._verify.tallies[index])

    def run(self) -> None:
        infos = self._reader.log_files()
        self._listener.begin("log", sum(info.size for info in infos), "bytes")
        self.begin = self.end = int(infos[0].name) if infos else 0
        self.check_names(infos)
        for number, info in enumerate(infos):
            self.end = max(self.end, int(info.name))
            if not self._walk_file(info, infos[number + 1 :]):
                break
        self.check_end()
        self._name_findings(infos)

    def run_piece(self, piece: LogPiece) -> bool:
        """Walk one piece alone. Returns whether the log continues after it."""
        infos = self._reader.log_files()
        number = next((number for number, info in enumerate(infos) if info.name == piece.name), None)
        self.begin = self.end = self.first = self.reached = piece.begin
        if number is None:  # deleted meanwhile
            self.reached = piece.end
            return True
        continues = self._walk_file(infos[number], infos[number + 1 :], piece)
        self.reached = self.end if continues or self.end >= self._stop else int(piece.name) + infos[number].size
        self._name_findings(infos)
        return continues

    # --- files ---

    def check_names(self, infos: list[FileInfo]) -> None:
        directory = self._reader.paths.commitlog
        for before, info in itertools.pairwise(infos):
            if info.size != infos[0].size:
                text = f"has {info.size} bytes, the first file {infos[0].size}: all must be of one size"
                self._findings.problem(Code.LOG_FILES, directory / info.name, -1, text)
            expected = int(before.name) + before.size
            if int(info.name) != expected:
                text = f"follows on {before.name}: the file at {expected} is missing"
                self._findings.problem(Code.LOG_FILES, directory / info.name, -1, text)
        for info in self._reader.files.entries(directory):
            if not info.name.isdecimal() or not info.size:
                text = "does not belong here: Java brokers refuse the store"
                self._findings.problem(Code.LOG_FILES, directory / info.name, -1, text)

    def _walk_file(self, info: FileInfo, later: list[FileInfo], piece: LogPiece | None = None) -> bool:
        """Returns whether the log continues after the piece, by default in the next file."""
        piece = piece or LogPiece(info.name, int(info.name), int(info.name) + info.size)
        path = self._reader.paths.commitlog / info.name
        with self._reader.image(path) as image:
            if image is None:
                return bool(later)
            image.madvise(mmap.MADV_SEQUENTIAL)
            with ffi.from_buffer("uint8_t[]", image) as view:
                return self._walk(path, image, view, later, piece)

    def _walk(self, path: Path, image: mmap.mmap, view: Any, later: list[FileInfo], piece: LogPiece) -> bool:
        start, size = int(path.name), len(image)
        self.first = first_record(view, size, piece)
        position = ffi.new("uint64_t *", self.first)
        while True:
            stop = min(self._stop, piece.end, position[0] + STEP)
            status = lib.rp_verify_log(
                self._verify, view, size, start, position, stop, self._units_limit, self._check_crc
            )
            self.end = position[0]
            self._listener.reached(self.end - self.begin)
            if status == Status.NO_MEMORY:
                raise StoreError("not enough memory to check a store")
            if status == Status.END_OF_FILE or self.end == start + size:
                return self.end < self._stop
            if self.end >= self._stop:
                return False
            if self.end >= piece.end:
                return True
            if status == Status.EMPTY:
                self._check_rest(path, self.end - start, later)
                return False
            if status != Status.OK and not self._pass_damage(path, image, position, later):
                return self.end == start + size

    def _pass_damage(self, path: Path, image: mmap.mmap, position: Any, later: list[FileInfo]) -> bool:
        """Returns whether there are more records in this file. `end` is moved if the log continues in the next one."""
        start, at = int(path.name), position[0] - int(path.name)
        following = next_record(image, at, start)
        is_last = following == len(image)
        goes_on = not is_last or self._has_records(later)
        text = f"offset {position[0]}: {reason_of(image, at, position[0])}"
        if not goes_on and not self._is_closed and (self._published is None or self._published <= position[0]):
            place = f"{self._findings.name(path)} at byte {at}"
            self._findings.note(f"{place}: half a record, which the next start cuts off")
            return False
        extent = "; nothing sound follows" if not goes_on else f"; {following - at} bytes up to what is sound again"
        self._findings.problem(_code_of(image, at, position[0]), path, at, text + extent)
        self._verify.damage_at = position[0]
        self.damages.append(position[0])
        if is_last and goes_on:
            self.end = start + len(image)
        position[0] = start + following
        return not is_last

    def _has_records(self, later: list[FileInfo]) -> bool:
        directory = self._reader.paths.commitlog
        return any(self._reader.files.read(directory / info.name, 4, 4).strip(b"\0") for info in later)

    def _check_rest(self, path: Path, position: int, later: list[FileInfo]) -> None:
        """Check that only zeros follow the log's end; otherwise the log could later grow into old records."""
        if self._has_records(later):
            text = f"offset {self.end}: zeros, but later files have records"
            self._findings.problem(Code.TAIL, path, position, text)
        elif self._is_closed and not self._reader.files.is_zero(path, position):
            self._findings.problem(
                Code.TAIL, path, position, f"offset {self.end}: the log ends here, but old bytes lie after it"
            )
        if self._is_closed and len(later) > 2:
            self._findings.problem(
                Code.TAIL, path, -1, f"{len(later)} empty files follow: Java brokers stand no more than two"
            )

    def check_end(self) -> None:
        """Compare `end` with what the last broker has published."""
        if self._published is not None and self.end < self._published:
            text = f"says that the log ends at {self._published}, it ends at {self.end}"
            self._findings.problem(Code.STATE, self._reader.paths.control, -1, text)

    # --- findings ---

    def _name_findings(self, infos: list[FileInfo]) -> None:
        count = self.totals.findings
        for index in range(min(count, lib.RP_FINDINGS_MAX)):
            finding = self._verify.findings[index]
            info = next(info for info in reversed(infos) if int(info.name) <= finding.phy_offset)
            path, position = self._reader.paths.commitlog / info.name, finding.phy_offset - int(info.name)
            code = Code.QUEUE_OFFSET
            if finding.kind == lib.RP_FOUND_OWN_OFFSET:
                code = Code.OWN_OFFSET
                text = f"the record says that it is at {finding.found}"
            else:
                name = tally_of(self._verify.tallies[finding.tally]).name
                text = queue_offset_text(name, finding.found, finding.expected)
            self._findings.problem(code, path, position, f"offset {finding.phy_offset}: {text}")
        if count > lib.RP_FINDINGS_MAX:
            more = f"{count - lib.RP_FINDINGS_MAX} more records with wrong offsets"
            self._findings.problem(Code.QUEUE_OFFSET, self._reader.paths.commitlog, -1, more)


def queue_offset_text(queue: str, found: int, expected: int) -> str:
    return f"queue offset {found} of {queue}, expected {expected}"


def _code_of(image: mmap.mmap, position: int, phy_offset: int) -> Code:
    try:
        decode_record(record_bytes(image, position), phy_offset)
    except RecordCorrupt:
        return Code.RECORD
    return Code.CRC


def reason_of(image: mmap.mmap, position: int, phy_offset: int) -> str:
    """Why the bytes at `position` are no record: the error of the record decoder."""
    data = record_bytes(image, position)
    try:
        record = decode_record(data, phy_offset, check_crc=True)
    except RecordCorrupt as exc:
        return exc.reason
    if record is None:
        return f"a blank of {RECORD_START.unpack_from(data)[0]} bytes where {len(image) - position} are left"
    return "its fields do not fit each other"
