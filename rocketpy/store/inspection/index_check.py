"""Checks index files: every chain of units, every slot, the counts; units whose record does not have their key, and
keys of records without a unit. Units without their key are no damage: after a power failure units of lost records are
left, and queries compare the keys.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..files import FileInfo
from ..formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT
from .findings import Check, Code, Inspected
from .index_keys import missing_keys
from .reader import guess_slots

UNIT_OFFSET_AT = 4
OFFSET = struct.Struct(">q")


class IndexCheck(Check):
    """All index files of a store, after the log."""

    def __init__(self, inspected: Inspected, *, log_begin: int, slots: int | None) -> None:
        super().__init__(inspected)
        self._log_begin = log_begin
        self._slots = slots
        self._log_files: list[FileInfo] = self._reader.log_files()
        self.units = 0

    def run(self) -> None:
        for path in self.checkable():
            self.check(path)
            self._listener.reached(self.units)

    def checkable(self) -> list[Path]:
        """The files that can be checked; findings name the others."""
        headers, paths = self._reader.index_headers(), []
        self._listener.begin("index", sum(header.index_count - 1 for _, header in headers if header), "keys")
        for number, (path, header) in enumerate(headers):
            if header is None:
                self._findings.problem(Code.INDEX, path, -1, "is too short to be an index file")
            elif self._state.in_use_by is not None and number == len(headers) - 1:
                self._findings.note(f"{self._findings.name(path)}: in use, not checked")
                self.units += header.index_count - 1
            else:
                paths.append(path)
        return paths

    def check(self, path: Path) -> None:
        """One file. Its units that name records of the log are followed there."""
        with self._reader.image(path) as image:
            if image is None:
                return
            slots = self._slots or guess_slots(len(image))
            if slots is None:
                size = f"{self._findings.name(path)} of {len(image)} bytes"
                self._findings.note(f"{size}: its number of slots cannot be told; give --hash-slots (maxHashSlotNum)")
                return
            units_at = INDEX_HEADER.size + slots * INDEX_SLOT.size
            check = ffi.new("rp_index_check *")
            with ffi.from_buffer("uint8_t[]", image) as view:
                room = max(0, len(image) - units_at) // INDEX_UNIT.size
                status = lib.rp_verify_index(view, len(image), slots, room, check)
                if status == Status.INVALID:
                    self._findings.problem(
                        Code.INDEX, path, -1, f"of {len(image)} bytes is too short for {slots} slots"
                    )
                    return
                self.units += check.units
                if check.faults:
                    self._findings.problem(Code.INDEX, path, *_fault(check, units_at))
                    return
                self._count_strays(path, image, view + units_at, check.units + 1, units_at)
        if missing := missing_keys(self._reader, path, units_at, self._log_begin):
            self._findings.problem(Code.INDEX_KEYS, path, -1, missing.describe(self._reader))

    def _count_strays(self, path: Path, image: Any, units: Any, end: int, units_at: int) -> None:
        unit, faults = ffi.new("uint32_t *", 1), 0
        while unit[0] < end:
            at = units_at + unit[0] * INDEX_UNIT.size
            (phy_offset,) = OFFSET.unpack_from(image, at + UNIT_OFFSET_AT)
            status = self._follow(units, unit, end, phy_offset)
            if status in (Status.OK, Status.END_OF_FILE):
                continue
            faults += 1
            unit[0] += 1
        if faults:
            self._findings.note(f"{self._findings.name(path)}: {faults} units name records without their key")

    def _follow(self, units: Any, unit: Any, end: int, phy_offset: int) -> int:
        """Check units from *unit on while their records are in the same log file."""
        for info in self._log_files:
            start = int(info.name)
            if start <= max(phy_offset, self._log_begin) < start + info.size:
                with self._reader.image(self._reader.paths.commitlog / info.name) as image:
                    if image is not None:
                        with ffi.from_buffer("uint8_t[]", image) as view:
                            before = unit[0]
                            status = lib.rp_verify_keys(units, unit, end, self._log_begin, view, len(image), start)
                            is_stuck = status == Status.END_OF_FILE and unit[0] == before
                            return Status.NOT_FOUND if is_stuck else int(status)
        return Status.NOT_FOUND


def _fault(check: Any, units_at: int) -> tuple[int, str]:
    """(byte in the file, what is wrong) of the first fault."""
    more = f"; {check.faults - 1} more faults" if check.faults > 1 else ""
    at, pair = check.at, f"{check.found}, expected {check.expected}{more}"
    unit_at = units_at + at * INDEX_UNIT.size
    texts = {
        lib.RP_INDEX_COUNT: (36, f"the header counts {check.found} units, there is room for {check.expected}"),
        lib.RP_INDEX_HASH: (unit_at, f"unit {at} has the hash {check.found}{more}"),
        lib.RP_INDEX_PREVIOUS: (unit_at, f"unit {at} follows on unit {pair}"),
        lib.RP_INDEX_SLOT: (INDEX_HEADER.size + at * INDEX_SLOT.size, f"slot {at} shows unit {pair}"),
    }
    return texts[check.reason]
