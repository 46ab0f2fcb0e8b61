"""Reads consume queues: units of one queue at a time, as values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..control_block import ControlBlock, fail
from ..files import Files, is_file_name
from ..formats.consume_queue_ext import is_ext_address
from ..formats.unit import CQ_STORE_UNIT_SIZE, CQ_UNIT, ConsumeQueueUnit

FILES_MAX = 256  # descriptors that one reader keeps open


class ConsumeQueues:
    """Reader of all queues of a store; not thread-safe."""

    def __init__(
        self, directory: Path, control: ControlBlock, file_size: int, files: Files, ext_file_size: int
    ) -> None:
        self.directory = directory
        self.control = control
        self.file_size = file_size
        self.units_per_file = file_size // CQ_STORE_UNIT_SIZE
        self._files = files
        self._ext: Any = ffi.NULL
        self._reader = lib.rp_cq_reader_open(control.block, os.fsencode(directory), file_size, FILES_MAX)
        if self._reader == ffi.NULL:
            raise fail(f"cannot read {directory}")
        self._ext = lib.rp_cq_ext_open(control.block, os.fsencode(directory), ext_file_size)
        if self._ext == ffi.NULL:
            self.close()
            raise fail(f"cannot read {directory}_ext")
        self._ext_unit = ffi.new("rp_cq_ext_unit *")

    def close(self) -> None:
        if self._reader != ffi.NULL:
            lib.rp_cq_close(self._reader)
            self._reader = ffi.NULL
            lib.rp_cq_ext_close(self._ext)

    def release_files(self) -> None:
        """Close removed files, so that their disk space becomes free; called from time to time."""
        lib.rp_cq_release(self._reader)
        lib.rp_cq_ext_release(self._ext)

    def units(self, queue: Any, offset: int, count: int) -> list[ConsumeQueueUnit]:
        """Up to `count` raw units from `offset` on, of one file; empty if there are none."""
        return [ConsumeQueueUnit(*unit) for unit in CQ_UNIT.iter_unpack(self.raw_units(queue, offset, count))]

    def raw_units(self, queue: Any, offset: int, count: int) -> bytes:
        """The same, as bytes."""
        if offset < 0 or count <= 0:
            return b""
        buffer = ffi.new("uint8_t[]", min(count, self.units_per_file) * CQ_STORE_UNIT_SIZE)
        found = lib.rp_cq_read(self._reader, queue, offset, len(buffer) // CQ_STORE_UNIT_SIZE, buffer)
        if found < 0:
            raise fail(f"cannot read a consume queue in {self.directory}")
        return bytes(ffi.buffer(buffer, found * CQ_STORE_UNIT_SIZE))

    def with_tags(self, queue: Any, units: list[ConsumeQueueUnit]) -> list[ConsumeQueueUnit]:
        """Replace the third field of units with an extension by its tags code. If the extension is lost, the address
        stays: the tags code is unknown."""
        return [self._with_tags(queue, unit) if is_ext_address(unit.tags_code) else unit for unit in units]

    def _with_tags(self, queue: Any, unit: ConsumeQueueUnit) -> ConsumeQueueUnit:
        status = lib.rp_cq_ext_read(self._ext, queue, unit.tags_code, self._ext_unit)
        return unit._replace(tags_code=self._ext_unit.tags_code) if status == Status.OK else unit

    def unit(self, queue: Any, offset: int) -> ConsumeQueueUnit | None:
        units = self.units(queue, offset, 1)
        return units[0] if units else None

    def file_times(self, queue: Any) -> list[tuple[int, int]]:
        """(start in bytes, modification time in ms) of the queue's files, ascending."""
        topic = os.fsdecode(self.control.topic_of(queue))
        directory = self.directory / topic / str(queue.queue_id)
        entries = self._files.entries(directory)
        return [(int(info.name), info.mtime_ms) for info in entries if is_file_name(info.name)]
